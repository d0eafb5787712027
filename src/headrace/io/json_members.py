"""The names of the members in lines of JSON, found without reading all lines.

A search for a name is one for `"name":` in bytes, so it is fast, and may find the name in another object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

__all__ = ["SPACE", "first_members", "member_pattern", "members_of_block"]

#: The longest space between a name and its colon that a search crosses.
SPACE = 16
#: How many rows are looked at for the names that are there.
_SHOWN_ROWS = 20
_PAYLOAD = "payload"


def member_pattern(name: str) -> re.Pattern[bytes]:
    """A name as a writer of JSON may write it, and the colon after it."""
    forms = {json.dumps(name, ensure_ascii=escaped).encode() for escaped in (True, False)}
    return re.compile(rb"(?:%s)\s{0,%d}:" % (b"|".join(map(re.escape, sorted(forms))), SPACE))


def first_members(lines: bytes) -> list[str]:
    """The members of the first rows, in the order of their appearance; those of a payload, if there is one."""
    found: dict[str, None] = {}
    for row in _first_rows(lines):
        members = row.get(_PAYLOAD)
        found |= dict.fromkeys(members if isinstance(members, dict) else row)
    return list(found)


def members_of_block(lines: bytes, wanted: Iterable[str], *, nested: bool) -> list[str]:
    """The members of the first rows, and those of `wanted` that a later row of the block has.

    Empty if none of the first rows is an object.
    """
    found: dict[str, None] = {}
    for row in _first_rows(lines):
        payload = row.pop(_PAYLOAD, None) if nested else None
        found |= dict.fromkeys([*row, *(payload if isinstance(payload, dict) else ())])
    later = [name for name in wanted if name not in found and member_pattern(name).search(lines)]
    return [*found, *later] if found else []


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
