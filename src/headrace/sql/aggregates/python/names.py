"""Map names of a user's text to unused Python names."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

from headrace.schema import RESERVED

__all__ = ["Names", "field_names"]

_ODD = re.compile(r"[^A-Za-z0-9_]")
_LONGEST = 40


class Names:
    """Unique names."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def give(self, wanted: str) -> str:
        """An unused name similar to the one wanted."""
        plain = _ODD.sub("_", wanted).strip("_")[:_LONGEST]
        if not plain or plain[0].isdigit():
            plain = f"c{plain}"
        if keyword.iskeyword(plain):
            plain += "_"
        found, number = plain, 2
        while found in self._taken:
            found, number = f"{plain}_{number}", number + 1
        self._taken.add(found)
        return found


def field_names(names: Iterable[str]) -> list[str]:
    """The field names of a module, for columns of these names."""
    given = Names(RESERVED)
    return [given.give(name) for name in names]
