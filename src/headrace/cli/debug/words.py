"""The words of commands: operators by number, conditions, values of columns."""

from __future__ import annotations

import ast
import re
from typing import Any

from headrace.display.words import clipped
from headrace.errors import PlanError
from headrace.tracing.comparisons import masked

__all__ = ["Edit", "after_number", "edit_of", "number_of", "split_at", "split_when", "values_of"]

_EDIT = re.compile(
    r"(?P<number>\d{1,18})\s+(?:"
    r"(?:(?P<what>remove|replace)\s+(?P<rows>.+?)(?:\s+with\s+(?P<values>.+?))?)|"
    r"(?:add\s+(?P<added>.+?))"
    r")(?:\s+from\s+batch\s+(?P<batch>\d{1,18}))?",
    re.IGNORECASE | re.DOTALL,
)
_EDITS = "N remove CONDITION, N replace CONDITION with x=1, N add x=1, y='a'; each with `from batch B`"

#: The arguments of `DebugSession.change_input`, by name.
Edit = dict[str, Any]


def number_of(text: str, what: str = "operator") -> int:
    """A number; `#3` is 3."""
    found = re.fullmatch(r"#?(\d{1,18})", text.strip())
    if found is None:
        raise PlanError(
            f"the number of {'an' if what == 'operator' else 'a'} {what} is missing",
            given=clipped(text, 60),
            allowed="1, 2, 3, …",
            instead="where, which shows the operators" if what == "operator" else "",
        )
    return int(found[1])


def after_number(text: str) -> tuple[int | None, str]:
    """The number at the beginning of a text, if there is one, and the rest."""
    found = re.match(r"#?(\d{1,18})(?:\s+|$)", text)
    return (int(found[1]), text[found.end() :]) if found else (None, text)


def split_when(text: str) -> tuple[str, str | None]:
    """What stands before and after `when`."""
    found = re.search(r"\bwhen\b", masked(text), re.IGNORECASE)
    return (text[: found.start()].strip(), text[found.end() :].strip()) if found else (text.strip(), None)


def split_at(text: str) -> tuple[str, str | None]:
    """What stands before `at TIME` at the end of a text, and the time."""
    text = text.strip()
    found = re.fullmatch(r".+?(\s+at\s+)\S+", masked(text), re.IGNORECASE | re.DOTALL)
    return (text[: found.start(1)], text[found.end(1) :]) if found else (text, None)


def values_of(text: str) -> dict[str, Any]:
    """Values of columns, written as in a call in Python: `x=1, k='a'`."""
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        written = call.keywords if isinstance(call, ast.Call) and not call.args else []
        values = {word.arg: ast.literal_eval(word.value) for word in written if word.arg is not None}
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):  # those of a text that nests too deeply
        values = {}
    if not values:
        raise PlanError("these are not values of columns", given=text, allowed="x=1, k='a'; None is null")
    return values


def edit_of(text: str) -> tuple[int, Edit]:
    """The input and the change that `edit` names."""
    text = text.strip()
    found = _EDIT.fullmatch(masked(text))
    spans = {} if found is None else {name: found.span(name) for name in found.groupdict() if found[name] is not None}
    parts = {name: text[slice(*span)] for name, span in spans.items()}
    if not parts or (parts.get("what", "").lower() == "replace") != ("values" in parts):
        raise PlanError("this is not a change", given=text, allowed=_EDITS, instead="edit 1 remove price > 90")
    edit: Edit = {"batch": int(parts["batch"])} if "batch" in parts else {}
    if "added" in parts:
        edit["add"] = [values_of(parts["added"])]
    elif "values" not in parts:
        edit["remove"] = parts["rows"]
    else:
        edit["replace"] = parts["rows"], values_of(parts["values"])
    return int(parts["number"]), edit
