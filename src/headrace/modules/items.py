"""The items that modules get: values, rows of several values, or events with lifetimes.

A row and an event are named tuples of a module's fields. An incremental module may keep them in its state, which is
stored and sent to other processes. So they are pickled by the names of their fields, and loading them creates the
class: one class for each list of names, in every process.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Literal

__all__ = ["event_type", "items_of", "row_type"]

Kind = Literal["Event", "Row"]


def row_type(names: Sequence[str]) -> Any:
    """The class of items of several fields."""
    return _type("Row", tuple(names))


def event_type(names: Sequence[str]) -> Any:
    """The class of items with lifetimes: `le`, `re` and the fields."""
    return _type("Event", ("le", "re", *names))


def items_of(names: Sequence[str], rows: Iterable[tuple[Any, ...]], *, timed: bool) -> list[Any]:
    """Tuples as the items of a module; those of a time-sensitive one, `(le, re, *values)`, become events."""
    if timed:
        return list(map(event_type(names)._make, rows))
    if len(names) == 1:
        return [value for (value,) in rows]
    return list(map(row_type(names)._make, rows))


@cache
def _type(kind: Kind, names: tuple[str, ...]) -> Any:
    def __reduce__(self: tuple[Any, ...]) -> Any:  # noqa: N807 - of the class below
        return _made, (kind, names, *self)

    # `names` is one object for all items, so a pickled list of items has the names once.
    fields = namedtuple(kind, names)  # type: ignore[misc]  # noqa: PYI024 - the fields are known only now
    return type(kind, (fields,), {"__slots__": (), "__module__": __name__, "__reduce__": __reduce__})


def _made(kind: Kind, names: tuple[str, ...], *values: Any) -> Any:
    return _type(kind, names)._make(values)
