"""The names of the members in lines of JSON.

A search for a name is one for `"name":` in bytes, so it is fast, and may find the name in another object. All names are
found by a scan of all objects (`json_shapes.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

import numpy as np

from headrace.io.json_shapes import ESCAPED, PAYLOAD, WHOLE, ByteSpans, Form, objects_of, shapes_of

__all__ = ["SPACE", "all_members", "first_members", "member_pattern", "members_of_block", "parsed_members"]

#: The longest space between a name and its colon that a search crosses.
SPACE = 16
#: How many rows are looked at for the names that are there.
_SHOWN_ROWS = 20
#: How many objects with other members are read by Python after each scan: mostly all of them have the same.
_READ = (1, 10, 100)


def member_pattern(name: str) -> re.Pattern[bytes]:
    """A name as a writer of JSON may write it, and the colon after it."""
    forms = {json.dumps(name, ensure_ascii=escaped).encode() for escaped in (True, False)}
    return re.compile(rb"(?:%s)\s{0,%d}:" % (b"|".join(map(re.escape, sorted(forms))), SPACE))


def first_members(lines: bytes) -> list[str]:
    """The members of the first rows, in the order of their appearance; those of a payload, if there is one."""
    found: dict[str, None] = {}
    for row in _first_rows(lines):
        members = row.get(PAYLOAD)
        found |= dict.fromkeys(members if isinstance(members, dict) else row)
    return list(found)


def members_of_block(lines: bytes, wanted: Iterable[str], *, nested: bool) -> list[str] | None:
    """The members of the first rows, and those of `wanted` that a later row of the block has.

    None if none of the first rows is an object.
    """
    found, rows = dict[str, None](), list(_first_rows(lines))
    for row in rows:
        payload = row.pop(PAYLOAD, None) if nested else None
        found |= dict.fromkeys([*row, *(payload if isinstance(payload, dict) else ())])
    later = [name for name in wanted if name not in found and member_pattern(name).search(lines)]
    return [*found, *later] if rows else None


def all_members(lines: ByteSpans, names: Iterable[str], form: Form) -> list[str] | None:
    """All members of all lines; `names` are those that they probably have. None if no line has an object."""
    objects = objects_of(lines, form)
    found = _members(objects, names)
    if form == "nested":
        objects, outside = lines, _members(lines, [*names, PAYLOAD])
        outside.pop(PAYLOAD, None)
        found = outside | found
    return list(found) if found or _has_empty(objects) else None


def _has_empty(objects: ByteSpans) -> bool:
    """Whether one of these is an object without members."""
    shapes = shapes_of(objects, ())
    likely = objects.part((shapes.known == WHOLE) & (shapes.others == 0))
    return any(parsed_members(likely[row]) == {} for row in range(len(likely.starts)))


def _members(objects: ByteSpans, names: Iterable[str]) -> dict[str, None]:
    known, found = dict.fromkeys(names), dict[str, None]()
    for count in _READ:
        shapes = shapes_of(objects, tuple(known))
        has = np.count_nonzero(shapes.seen[shapes.known > 0], axis=0).tolist()
        found |= dict.fromkeys(name for name, there in zip(known, has, strict=True) if there)
        objects = objects.part((shapes.known == ESCAPED) | ((shapes.known == WHOLE) & (shapes.others > 0)))
        for row in range(min(count, len(objects.starts))):
            known |= parsed_members(objects[row]) or {}
    for row in range(len(objects.starts)):
        found |= parsed_members(objects[row]) or {}
    return found


def parsed_members(text: bytes) -> dict[str, None] | None:
    """The members of an object as Python reads it; None of one that it cannot read: the decoder refuses it."""
    try:
        return dict.fromkeys(json.loads(text))
    except (ValueError, RecursionError):
        return None


def _first_rows(lines: bytes) -> Iterator[dict[str, object]]:
    start, rows = 0, 0
    while start < len(lines) and rows < _SHOWN_ROWS:
        end = lines.find(b"\n", start)
        end = len(lines) if end < 0 else end
        try:
            row = json.loads(lines[start:end])
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            rows += 1
            yield row
        start = end + 1
