"""Paths into JSON texts: `$.order.items[0].price`.

A path is a chain of steps: a key of an object, or the place of an element of an array, counted from 0, or from the end
with a negative number. A step that fits nothing, such as a key of an array, finds nothing; nothing is unwrapped.
"""

from __future__ import annotations

import re
from functools import lru_cache

from headrace.errors import ExpressionError

__all__ = ["JsonStep", "check_json_path", "json_path", "json_steps"]

#: A key, or the place of an element.
JsonStep = str | int

_MODE = re.compile(r"\s*(?:lax|strict)?\s*\$")
_STEP = re.compile(
    r"""\s*(?:\.\s*(?P<name>[^\W\d][\w$]*)
      | \.\s*"(?P<quoted>[^"\\]*)"
      | \[\s*(?P<place>-?\d{1,9})\s*\]
      | \[\s*"(?P<double>[^"\\]*)"\s*\]
      | \[\s*'(?P<single>[^'\\]*)'\s*\])""",
    re.VERBOSE,
)
_PLAIN = re.compile(r"[^\W\d][\w$]*")


@lru_cache(maxsize=1024)
def json_steps(path: str) -> tuple[JsonStep, ...]:
    """The steps of a path.

    >>> json_steps('$.order.items[0]."unit price"')
    ('order', 'items', 0, 'unit price')
    """
    begin = _MODE.match(path)
    if begin is None:
        raise _no_path(path, "a path into JSON begins with $")
    steps: list[JsonStep] = []
    at = begin.end()
    while path[at:].strip():
        step = _STEP.match(path, at)
        if step is None:
            raise _no_path(path, f"{path[at:].strip()!r} is no step of a path into JSON")
        place, at = step["place"], step.end()
        steps.append(int(place) if place is not None else next(t for t in step.group(1, 2, 4, 5) if t is not None))
    return tuple(steps)


def json_path(*steps: JsonStep) -> str:
    """The path of some steps.

    >>> json_path("order", 0, "unit price")
    '$.order[0]."unit price"'
    """
    for step in steps:
        if type(step) not in (str, int) or (isinstance(step, str) and set(step) & {*'"\\'}):
            raise ExpressionError(
                "a step into JSON is a key or a place",
                given=step,
                allowed="a text without quotes and backslashes, or a whole number",
                instead="'name', or 0",
            )
    return "$" + "".join(map(_written, steps))


def _written(step: JsonStep) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _PLAIN.fullmatch(step) else f'."{step}"'


def check_json_path(path: str) -> None:
    """Raise if a text is no path."""
    json_steps(path)


def _no_path(path: str, message: str) -> ExpressionError:
    return ExpressionError(
        message,
        given=path,
        allowed='$ for the text itself, .key or ."any key" of an object, [0] of an array, [-1] from its end',
        instead="'$.order.items[0].price'",
    )
