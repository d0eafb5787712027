"""Aggregates that come along, written in the dialect itself: each is a file here that says what it does, and how.

They are modules, as if their text had been given to `hr.sql_aggregate`; in SQL they have their names without being
made, unless somebody makes another of the same name.

>>> import headrace as hr
>>> from headrace import stdlib
>>> prices = hr.events([{"kind": "insert", "le": t, "re": t + 1, "price": p} for t, p in [(1, 4.0), (2, 8.0)]],
...                    "price DOUBLE")
>>> prices.over().aggregate(mean=stdlib.ewma.of("price", 0.25)).cht()["mean"].to_pylist()
[4.0, 5.0]
>>> hr.sql("SELECT ewma(price, 0.25) AS mean FROM prices", prices=prices).cht()["mean"].to_pylist()
[4.0, 5.0]
>>> stdlib.about("ewma").splitlines()[0]
'An average that forgets: each tuple counts with its weight, all before it with the rest.'
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files

from headrace.errors import ModuleError, nearest
from headrace.sql.aggregates import SqlAggregate, SqlRows, modules_of

__all__ = ["LIBRARY", "about"]

_FOLDER = files(__name__)
_NAMES = sorted(one.name.removesuffix(".sql") for one in _FOLDER.iterdir() if one.name.endswith(".sql"))
#: In SQL they may also be called by this name in front.
_PREFIX = "stdlib."


def about(name: str) -> str:
    """What an aggregate of the library does, takes and remembers."""
    comment = _text(_known(name)).partition("CREATE ")[0]
    return "\n".join(line.removeprefix("--").removeprefix(" ") for line in comment.splitlines())


class _Library(Mapping[str, SqlAggregate | SqlRows]):
    """The aggregates by name, each read when it is asked for."""

    def __getitem__(self, name: str) -> SqlAggregate | SqlRows:
        return _made(name.removeprefix(_PREFIX))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.removeprefix(_PREFIX) in _NAMES

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)


#: All aggregates that come along, by name.
LIBRARY: Mapping[str, SqlAggregate | SqlRows] = _Library()


@cache
def _made(name: str) -> SqlAggregate | SqlRows:
    if name not in _NAMES:
        raise KeyError(name)
    return modules_of(_text(name))[name]


def _text(name: str) -> str:
    return (_FOLDER / f"{name}.sql").read_text(encoding="utf-8")


def _known(name: str) -> str:
    if name in _NAMES:
        return name
    close = nearest(name, _NAMES)
    raise _NoSuchAggregate(
        f"the library has no aggregate {name!r}", given=name, allowed=", ".join(_NAMES), instead=close or ""
    )


class _NoSuchAggregate(ModuleError, AttributeError):
    """An aggregate that the library does not have, asked for as an attribute."""


def __getattr__(name: str) -> SqlAggregate | SqlRows:
    if name.startswith("__"):
        raise AttributeError(name)
    return _made(_known(name))


def __dir__() -> list[str]:
    return [*__all__, *_NAMES]
