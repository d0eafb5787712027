"""A kind of query: how many streams it reads, how it varies, and its text.

A kind is written once, as the text of a query through the public API; evaluating it builds the query. So the text
printed for a failure is the code that ran.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import headrace as hr
from headrace.api.stream import Stream
from headrace.testing.intents import samples

__all__ = ["PLAIN", "Kind", "Options", "written"]

Options = Mapping[str, str]
#: From the name of a value to its text.
Table = Mapping[str, str]


def _everything(_: Options) -> bool:
    return True


@dataclass(frozen=True)
class Kind:
    """A kind of query, its number of input streams, and how it may vary."""

    name: str
    arity: int
    dimensions: Mapping[str, tuple[str, ...]]
    #: The text of the query over streams of these names, as an expression.
    python: Callable[[tuple[str, ...], Options], str]
    #: Whether these options can be combined; also called with part of them, and then true if undecided.
    allowed: Callable[[Options], bool] = _everything
    #: The values that give few events, where others may give one for every pair.
    small: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def build(self, streams: tuple[Stream, ...], options: Options) -> Stream:
        """The query over these streams."""
        names = tuple(f"s{number}" for number in range(len(streams)))
        text = self.python(names, options)
        stream = eval(text, {**_NAMES, **dict(zip(names, streams, strict=True))})  # noqa: S307 - one of our own texts
        assert isinstance(stream, Stream)
        return stream


_NAMES: dict[str, Any] = {"hr": hr, **{name: getattr(samples, name) for name in samples.__all__}}


def written(name: str, arity: int, template: str, small: Mapping[str, tuple[str, ...]] = {}, **tables: Table) -> Kind:
    """A kind whose text is a template: `{a}` and `{b}` are its streams, `{dimension}` the text of a value."""

    def python(names: tuple[str, ...], options: Options) -> str:
        parts = {dimension: table[options[dimension]] for dimension, table in tables.items()}
        # A value may contain the names of the streams as well.
        return template.format(**parts, **_letters(names)).format(**_letters(names))

    return Kind(name, arity, {dimension: tuple(table) for dimension, table in tables.items()}, python, small=small)


def _letters(names: tuple[str, ...]) -> dict[str, str]:
    """The names of the first and the second stream, by their letters in templates."""
    return dict(zip("ab", names, strict=False))


#: Restores the columns that all streams have, in their order.
PLAIN = ".select('k', 'i', 'x')"
