"""Writes the page of the grammar from the grammar itself: `python docs/make_grammar.py`.

The rules of `grammar.lark` in the notation of the FlinkCQL thesis, section by section, with the comments that stand
above them. A test checks that the page is what this script writes.
"""
# ruff: noqa: INP001 - a script, not a package

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headrace.sql.tables import RESERVED, grammar

PAGE = Path(__file__).parent / "sql" / "grammar.md"
WIDTH = 100
_SECTION = re.compile(r"// ---- (.+?) -+")
_HELPER = re.compile(r'(?:\w+|\([^()]*\))[?*]|"[^"]*"')
_PART = re.compile(r'"(?:[^"\\]|\\.)*"|/(?:[^/\\]|\\.)+/|->\s*\w+|\w+|[()|?*+]')

INTRODUCTION = """\
# The grammar of Headrace SQL

<!-- written by docs/make_grammar.py from src/headrace/sql/grammar.lark -->

The notation is that of the FlinkCQL thesis: `[ x ]` may be missing, `{ x }` may be missing or repeat, `|` separates
alternatives. Words in capitals are keywords, in any case; signs stand in quotes, patterns of tokens between slashes.

Only these words are never names, unless they stand in quotes (`"order"` or `` `order` ``):

"""


class Block(NamedTuple):
    """Rules or tokens that stand together, and what is said above them."""

    prose: list[str]
    rules: list[tuple[str, str]]


class Section(NamedTuple):
    """A part of the page."""

    title: str
    blocks: list[Block]


def sections(text: str) -> list[Section]:
    """The grammar, cut at its headings, and within them at its comments."""
    found: list[Section] = []
    for line in text.splitlines():
        heading = _SECTION.match(line)
        if heading:
            found.append(Section(heading[1], [Block([], [])]))
        elif found:
            _add(found[-1], line)
    return found


def _add(section: Section, line: str) -> None:
    definition = re.match(r"([?!]?\w+(?:\.\d+)?):\s*(.*)", line)
    if line.startswith("//"):
        if section.blocks[-1].rules:
            section.blocks.append(Block([], []))
        section.blocks[-1].prose.append(line[2:].strip())
    elif definition:
        section.blocks[-1].rules.append((definition[1].lstrip("?!"), definition[2]))
    elif line.strip() and not line.startswith("%"):
        name, body = section.blocks[-1].rules[-1]
        section.blocks[-1].rules[-1] = (name, f"{body} {line.strip()}")


def helpers(found: list[Section]) -> dict[str, str]:
    """Rules that are shown where they are used: `_where: where?`, and those that are a single word or sign."""
    rules = (rule for section in found for block in section.blocks for rule in block.rules)
    return {name: body for name, body in rules if _HELPER.fullmatch(body) and not name[0].isupper()}


def notation(body: str, inlined: dict[str, str]) -> list[str]:
    """The alternatives of a rule, in the notation of the page."""
    parts = [part for part in _PART.findall(body) if not part.startswith("->")]
    parts = [piece for part in parts for piece in _PART.findall(inlined.get(part, part))]
    return [" ".join(words) for words in _alternatives(iter(parts))]


def _alternatives(parts: Iterator[str]) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for part in parts:
        if part == ")":
            break
        if part == "|":
            found.append([])
        elif part == "(":
            found[-1].append("( " + " | ".join(" ".join(words) for words in _alternatives(parts)) + " )")
        elif part in "?*+":
            found[-1][-1] = _repeated(found[-1][-1], part)
        else:
            found[-1].append(_symbol(part))
    return found


def _repeated(words: str, sign: str) -> str:
    words = words.removeprefix("( ").removesuffix(" )")
    if sign == "?":
        return f"[ {words} ]"
    return f"{{ {words} }}" if sign == "*" else f"{words} {{ {words} }}"


def _symbol(part: str) -> str:
    if not part.startswith('"'):
        return part.lstrip("_")
    text = part[1:-1]
    return text if text[0].isalpha() else f"'{text}'"


def _rule(name: str, alternatives: list[str]) -> str:
    """A rule on one line if it fits, else with one alternative a line."""
    head = f"{name.lstrip('_')} ::= "
    if len(head) + len(" | ".join(alternatives)) <= WIDTH:
        return head + " | ".join(alternatives)
    bar = "\n" + " " * (len(head) - 2) + "| "
    wrapped = ["\n".join(textwrap.wrap(a, WIDTH, subsequent_indent=" " * (len(head) + 4))) for a in alternatives]
    return head + bar.join(wrapped)


def _written(section: Section, inlined: dict[str, str]) -> str:
    return "\n\n".join([f"## {section.title}", *(_block(block, inlined) for block in section.blocks)])


def _block(block: Block, inlined: dict[str, str]) -> str:
    prose = "\n".join(textwrap.wrap(" ".join(block.prose), 120))
    rules = "\n".join(_shown(name, body, inlined) for name, body in block.rules if name not in inlined)
    return f"{prose}\n\n```ebnf\n{rules}\n```".lstrip()


def _shown(name: str, body: str, inlined: dict[str, str]) -> str:
    """A rule in the notation of the page, or a token as the pattern it is."""
    return f"{name.partition('.')[0]} ::= {body}" if name[0].isupper() else _rule(name, notation(body, inlined))


def page() -> str:
    """The page as text."""
    found = sections(grammar())
    inlined = helpers(found)
    reserved = "\n".join(textwrap.wrap(", ".join(sorted(RESERVED)) + ".", 120))
    return "\n\n".join([f"{INTRODUCTION}{reserved}", *(_written(section, inlined) for section in found)]) + "\n"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
