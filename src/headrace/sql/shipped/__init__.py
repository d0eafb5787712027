"""The library: aggregates written in the dialect itself, one file each.

`headrace.stdlib` is what users import.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files

from headrace.errors import ModuleError, nearest
from headrace.sql.aggregates import SqlAggregate, SqlRows, modules_of

__all__ = ["LIBRARY", "NAMES", "about", "aggregate"]

_FOLDER = files(__name__)
#: The names of all aggregates of the library.
NAMES = sorted(one.name.removesuffix(".sql") for one in _FOLDER.iterdir() if one.name.endswith(".sql"))
#: SQL may qualify their names with this prefix.
_PREFIX = "stdlib."


def about(name: str) -> str:
    """The description of an aggregate: what it does, its arguments and its state."""
    comment = _text(_known(name)).partition("CREATE ")[0]
    return "\n".join(line.removeprefix("--").removeprefix(" ") for line in comment.splitlines())


class _Library(Mapping[str, SqlAggregate | SqlRows]):
    """The aggregates by name, each read on first use."""

    def __getitem__(self, name: str) -> SqlAggregate | SqlRows:
        return _read(name.removeprefix(_PREFIX))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.removeprefix(_PREFIX) in NAMES

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


#: The library, by name.
LIBRARY: Mapping[str, SqlAggregate | SqlRows] = _Library()


@cache
def _read(name: str) -> SqlAggregate | SqlRows:
    if name not in NAMES:
        raise KeyError(name)
    return modules_of(_text(name))[name]


def _text(name: str) -> str:
    return (_FOLDER / f"{name}.sql").read_text(encoding="utf-8")


def _known(name: str) -> str:
    if name in NAMES:
        return name
    close = nearest(name, NAMES)
    raise _NoSuchAggregate(
        f"the library has no aggregate {name!r}", given=name, allowed=", ".join(NAMES), instead=close or ""
    )


def aggregate(name: str) -> SqlAggregate | SqlRows:
    """An aggregate of the library; for unknown names an error that is also an `AttributeError`."""
    return _read(_known(name))


class _NoSuchAggregate(ModuleError, AttributeError):
    """An attribute that is no aggregate of the library."""
