"""Writes signatures and docstrings into the pages of the reference: `python docs/make_reference.py`.

A page names what it is about in its headings: a public name, such as `tumbling`, or one of its methods, such as
`Stream.where`. What stands between `<!-- made -->` and `<!-- example -->` below such a heading is written by this
script; the rest, the examples above all, is written by hand. A page is finished by `link_terms`. A test checks that the
pages are what this script writes, that they name everything that is public, and that everything has an example.
"""
# ruff: noqa: INP001 - a script, not a package

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from enum import Enum
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import link_terms  # beside this script
from typer.main import get_command

from headrace.api import options
from headrace.cli import app
from headrace.errors import HeadraceError
from headrace.expr import fluent

FOLDER = Path(__file__).parent / "reference"
#: Where names are looked up, in this order, and what is written before those of a module.
MODULES = {
    "headrace": "hr.", "headrace.errors": "", "headrace.testing": "", "headrace.notebook": "", "pytest_headrace": "",
}  # fmt: skip
#: Classes that are not made by name, but come back from what is public.
GIVEN = {
    "SavedQuery": "headrace.host.saved.query.SavedQuery",
    "Client": "headrace.server.client.Client",
    "ServerStream": "headrace.server.client.ServerStream",
    "Subscriber": "headrace.server.client.Subscriber",
    "DebugSession": "headrace.tracing.debugging.DebugSession",
    "Expr": "headrace.expr.Expr",
    "Grouped": "headrace.api.grouped.Grouped",
    "Framed": "headrace.api.grouped.Framed",
    "Pattern": "headrace.patterns.Pattern",
    "Query": "headrace.host.driving.query.Query",
    "Script": "headrace.sql.scripts.Script",
    "Timeline": "headrace.display.timeline.Timeline",
    "TracedRun": "headrace.tracing.traced.TracedRun",
    "Windowed": "headrace.api.grouped.Windowed",
}
WIDTH = 100

_HEADING = re.compile(r"^(?P<level>###+) `(?P<name>[\w.]+)`$", re.MULTILINE)
_MADE = re.compile(r"<!-- made -->.*?<!-- example -->", re.DOTALL)
_OPTIONS = re.compile(r"<!-- options of (?P<kind>\w+) -->.*?<!-- end -->", re.DOTALL)
_RULE = re.compile(r"\brule (\d+)\.(\d+)")
_METHODS = re.compile(r"<!-- methods -->.*?<!-- end -->", re.DOTALL)
_COMMANDS = re.compile(r"<!-- commands -->.*?<!-- end -->", re.DOTALL)
_CODES = re.compile(r"<!-- codes -->.*?<!-- end -->", re.DOTALL)
_PROMPT = re.compile(r"^(?P<indent> *)>>> .*?(?=^\s*$|\Z)", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """The pages of the reference."""
    return sorted(FOLDER.glob("*.md"))


def public(module: str) -> list[str]:
    """The public names of a module."""
    return list(importlib.import_module(module).__all__)


def found(name: str) -> tuple[Any, str]:
    """What a heading is about, and how it is written."""
    first, _, rest = name.partition(".")
    if first in GIVEN:
        module, _, own = GIVEN[first].rpartition(".")
        thing, written = getattr(importlib.import_module(module), own), name
    else:
        module = next(module for module in MODULES if first in public(module))
        thing, written = getattr(importlib.import_module(module), first), f"{MODULES[module]}{name}"
    if rest:
        thing, written = inspect.getattr_static(thing, rest), name
    return thing, written


def signature(thing: Any, written: str) -> str:
    """How it is called, on one line or on several."""
    if isinstance(thing, ModuleType):
        return f"from headrace.testing import {written}"
    if isinstance(thing, (int, property, cached_property)) or not (callable(thing) or isinstance(thing, classmethod)):
        return written
    if isinstance(thing, type) and issubclass(thing, (Exception, Enum)):
        return f"class {written}({', '.join(base.__name__ for base in thing.__bases__)})"
    shown = inspect.signature(_function(thing))
    some = [one for name, one in shown.parameters.items() if name not in ("self", "cls")]
    back = shown.return_annotation
    if isinstance(thing, type) or back is inspect.Signature.empty:
        back = ""
    plain = [str(one.replace(annotation=_unquoted(one.annotation))) for one in _marked(some)]
    arrow = f" -> {_unquoted(back)}" if back else ""
    line = f"{written}({', '.join(plain)}){arrow}"
    if len(line) <= WIDTH:
        return line
    return f"{written}(\n" + "".join(f"    {one},\n" for one in plain) + f"){arrow}"


def _function(thing: Any) -> Any:
    """What a class method or a fixture of pytest is made of; all else as it is."""
    if isinstance(thing, classmethod):
        return thing.__func__
    return thing if isinstance(thing, ModuleType) else inspect.unwrap(thing)


class _Sign:
    """A `*` or `/` between parameters."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.annotation = inspect.Parameter.empty

    def replace(self, **_: Any) -> _Sign:
        return self

    def __str__(self) -> str:
        return self.text


def _marked(some: list[inspect.Parameter]) -> Iterator[Any]:
    """Parameters with the signs between them."""
    kinds = [one.kind for one in some]
    for position, one in enumerate(some):
        before = kinds[:position]
        if one.kind is one.KEYWORD_ONLY and not {one.KEYWORD_ONLY, one.VAR_POSITIONAL} & set(before):
            yield _Sign("*")
        yield one
        if one.kind is one.POSITIONAL_ONLY and one.POSITIONAL_ONLY not in kinds[position + 1 :]:
            yield _Sign("/")


def _unquoted(annotation: Any) -> Any:
    """An annotation that is a text is written without quotes."""
    return _Text(annotation) if isinstance(annotation, str) else annotation


class _Text:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def description(thing: Any) -> str:
    """The docstring, with its examples in blocks of their own, and links to the rules that it cites."""
    if isinstance(thing, int):
        return ""
    text = inspect.getdoc(_function(thing)) or ""
    text = _RULE.sub(r"[rule \1.\2](../semantics.md#rule-\1-\2)", text)
    return _PROMPT.sub(lambda block: f"```pycon\n{inspect.cleandoc(block[0])}\n```\n", text).strip()


def made(name: str) -> str:
    """What stands below the heading of a name."""
    thing, written = found(name)
    parts = ["<!-- made -->", f"```py\n{signature(thing, written)}\n```", description(thing), "<!-- example -->"]
    return "\n\n".join(part for part in parts if part)


def table_of(kind: str) -> str:
    """The options of a kind, each with what its docstring says."""
    tree = ast.parse(inspect.getsource(getattr(options, kind)))
    (body,) = (node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    rows = []
    for field, text in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            written = _cell(ast.unparse(field.annotation))
            rows.append(f"| `{ast.unparse(field.target)}` | `{written}` | {text.value.value} |\n")
    return f"<!-- options of {kind} -->\n\n| option | type | |\n|---|---|---|\n{''.join(rows)}\n<!-- end -->"


def methods() -> str:
    """The methods of expressions, each with the first line of its docstring."""
    shown = [
        f"| `{name}{_without_self(function)}` | {(inspect.getdoc(function) or '').partition(chr(10))[0]} |\n"
        for name, function in vars(fluent.Fluent).items()
        if inspect.isfunction(function) and not name.startswith("_")
    ]
    return f"<!-- methods -->\n\n| method | |\n|---|---|\n{''.join(shown)}\n<!-- end -->"


def _without_self(function: Any) -> str:
    some = list(inspect.signature(function).parameters.values())[1:]
    return f"({', '.join(str(one.replace(annotation=one.empty)) for one in some)})"


def commands() -> str:
    """Every command of the command line, with its arguments and options."""
    return "\n\n".join(["<!-- commands -->", *_commands(get_command(app), "headrace"), "<!-- end -->"])


def _commands(command: Any, path: str) -> Iterator[str]:
    for name, below in sorted(getattr(command, "commands", {}).items()):
        yield from _commands(below, f"{path} {name}")
    if not hasattr(command, "commands"):
        rows = "".join(
            f"| {_written(one)} | {(one.help or '').replace('|', chr(92) + '|')} |\n" for one in command.params
        )
        table = f"| argument or option | |\n|---|---|\n{rows}".rstrip() if rows else ""
        yield "\n\n".join(part for part in (f"## {path}", inspect.cleandoc(command.help or ""), table) if part)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _written(parameter: Any) -> str:
    """How an argument or an option is written on the command line."""
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`"
    return ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])


def codes() -> str:
    """Every error with its code, by code."""
    kinds = {HeadraceError}
    while more := {child for kind in kinds for child in kind.__subclasses__() if _ours(child)} - kinds:
        kinds |= more
    rows = [
        f"| `{kind.code}` | [`{kind.__name__}`](#{kind.__name__.lower()}) | {_builtins(kind)} |\n"
        for kind in sorted(kinds, key=lambda kind: kind.code)
    ]
    return f"<!-- codes -->\n\n| code | class | is also |\n|---|---|---|\n{''.join(rows)}\n<!-- end -->"


def _ours(kind: type) -> bool:
    return kind.__name__ in public("headrace.errors")


def _builtins(kind: type) -> str:
    also = [base.__name__ for base in kind.__mro__ if base.__module__ == "builtins"]
    return ", ".join(f"`{name}`" for name in also if name not in ("object", "BaseException", "Exception"))


def page(text: str) -> str:
    """A page with everything that is made, anew."""
    text = _OPTIONS.sub(lambda part: table_of(part["kind"]), text)
    text = _CODES.sub(lambda _: codes(), text)
    text = _METHODS.sub(lambda _: methods(), text)
    text = _COMMANDS.sub(lambda _: commands(), text)
    pieces = _HEADING.split(text)
    whole = pieces[0]
    for level, name, rest in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        parts = _MADE.split(rest, maxsplit=1)
        whole += f"{level} `{name}`\n\n{made(name)}{parts[-1] if len(parts) > 1 else rest}"
    terms = link_terms.terms(link_terms.GLOSSARY.read_text(encoding="utf-8"))
    return link_terms.linked(whole, terms, "../glossary.md")


def main() -> None:
    """Write what is made into every page."""
    for one in pages():
        one.write_text(page(one.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
