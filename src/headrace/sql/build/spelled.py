"""Literals and operators that are other spellings of what the tree has: intervals of standard SQL, regular expressions
of PostgreSQL and of SIMILAR TO, paths of JSON.
"""

from __future__ import annotations

import re

__all__ = ["in_any_case", "interval_amounts", "json_steps", "similar"]

_AMOUNT = re.compile(r"([\d.]+)\s*([^\W\d]+)")
_AMOUNTS = re.compile(r"\s*(?:\d+(?:\.\d+)?\s*[^\W\d]+\s*)+")
_CLOCK = r"(\d+):(\d+)(?::(\d+(?:\.\d+)?))?"
#: `1 day 02:03:04`, `02:03:04`.
_TIMED = re.compile(rf"\s*((?:\d+(?:\.\d+)?\s*[^\W\d]+\s*)*){_CLOCK}\s*")
#: The forms of `INTERVAL '…' DAY TO SECOND` and its like: what is written, and the units of its numbers.
_TO = {
    ("year", "month"): (r"(\d+)-(\d+)", ("year", "month")),
    ("day", "hour"): (r"(\d+)\s+(\d+)", ("day", "hour")),
    ("day", "minute"): (r"(\d+)\s+(\d+):(\d+)", ("day", "hour", "minute")),
    ("day", "second"): (r"(\d+)\s+(\d+):(\d+):(\d+(?:\.\d+)?)", ("day", "hour", "minute", "second")),
    ("hour", "minute"): (r"(\d+):(\d+)", ("hour", "minute")),
    ("hour", "second"): (r"(\d+):(\d+):(\d+(?:\.\d+)?)", ("hour", "minute", "second")),
    ("minute", "second"): (r"(\d+):(\d+(?:\.\d+)?)", ("minute", "second")),
}


def interval_amounts(inside: str, unit: str) -> tuple[bool, list[tuple[str, str]]] | None:
    """Whether an interval is negative, and its numbers with their units; None for a text that is none.

    `unit` is what stands behind the text: `DAY`, `DAY TO SECOND`, or nothing.
    """
    inside = inside.strip()
    negative = inside.startswith("-")
    inside = inside.lstrip("-+").strip() if inside[:1] in ("-", "+") else inside
    words = unit.lower().split()
    if "to" in words:
        found = _divided(inside, words[0].rstrip("s"), words[-1].rstrip("s"))
    elif words:
        found = _summed(f"{inside} {unit}")
    else:
        found = _summed(inside)
    return None if found is None else (negative, found)


def _divided(inside: str, largest: str, least: str) -> list[tuple[str, str]] | None:
    if (largest, least) not in _TO:
        return None
    form, units = _TO[largest, least]
    matched = re.fullmatch(form, inside)
    return None if matched is None else _kept(list(zip(matched.groups(), units, strict=True)))


def _summed(inside: str) -> list[tuple[str, str]] | None:
    if _AMOUNTS.fullmatch(inside):
        return _AMOUNT.findall(inside)
    timed = _TIMED.fullmatch(inside)
    if timed is None:
        return None
    before, *clock = timed.groups()
    return _kept([*_AMOUNT.findall(before), *zip(map(str, (one or 0 for one in clock)), _UNITS, strict=True)])


_UNITS = ("hour", "minute", "second")


def _kept(amounts: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The amounts that are not 0, and one of them at least, as whole numbers without leading zeros."""
    written = [(number.lstrip("0") if "." not in number else number, unit) for number, unit in amounts]
    return [(number, unit) for number, unit in written if number and float(number)] or [("0", amounts[-1][1])]


def similar(pattern: str) -> str | None:
    """The regular expression of a pattern of SIMILAR TO; None for one that ends in an escape."""
    found, places = [], iter(pattern)
    bracket = False
    for one in places:
        if one == "\\":
            escaped = next(places, None)
            if escaped is None:
                return None
            found.append(re.escape(escaped))
            continue
        bracket = one == "[" or (bracket and one != "]")
        found.append(one if bracket else {"%": ".*", "_": ".", ".": r"\.", "^": r"\^", "$": r"\$"}.get(one, one))
    return f"^(?:{''.join(found)})$"


_PIECE = re.compile(r"\\.|\[\^?\]?[^\]]*\]|.", re.DOTALL)
_RANGE = re.compile(r"\\.|([A-Za-z])-([A-Za-z])|.", re.DOTALL)


def in_any_case(pattern: str) -> str:
    """A regular expression that takes each letter in both cases: no engine's own sign for that is known to all."""
    return "".join(_both(piece[0]) for piece in _PIECE.finditer(pattern))


def _both(piece: str) -> str:
    if piece.startswith("[") and len(piece) > 1:
        return "[" + "".join(map(_ranged, _RANGE.finditer(piece[1:-1]))) + "]"
    return f"[{piece}{piece.swapcase()}]" if len(piece) == 1 and piece.swapcase() != piece else piece


def _ranged(found: re.Match[str]) -> str:
    one = found[0]
    if found[1] is not None:
        return one + one.swapcase()
    return one + one.swapcase() if len(one) == 1 and one.swapcase() != one else one


def json_steps(path: str) -> list[str | int] | None:
    """The steps of a path `{a,0,b}`; None for a text that is none."""
    inside = re.fullmatch(r"\s*\{(.*)\}\s*", path)
    steps = [step.strip().strip('"') for step in inside[1].split(",")] if inside and inside[1].strip() else None
    return None if steps is None else [int(step) if re.fullmatch(r"-?\d+", step) else step for step in steps]
