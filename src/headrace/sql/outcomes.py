"""The outcomes of statements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.api.stream import Stream
from headrace.host.result import Result
from headrace.sql import syntax as s
from headrace.sql.peek import Order, current

__all__ = ["Answers", "Delivery", "Done", "Outcome", "ShownTable", "Verified", "Words"]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a statement."""

    statement: s.Statement


@dataclass(frozen=True)
class Done(Outcome):
    """A statement that created, dropped or set something."""

    message: str


@dataclass(frozen=True)
class Answers(Outcome):
    """A query, with the stream of its answers."""

    name: str
    stream: Stream
    #: Whether it is a relation of tables: its answer is the rows that hold now.
    relation: bool = False
    #: For a relation with ORDER BY: the stream with the columns to sort by, and these.
    peek: Stream | None = None
    order: Order = ()

    @property
    def shown(self) -> Stream:
        """The stream to run for a view of its answers."""
        return self.stream if self.peek is None else self.peek

    def rows(self, result: Result) -> pa.Table:
        """The rows of its answers that hold now, in its order."""
        return current(result, self.order)


@dataclass(frozen=True)
class Delivery(Outcome):
    """A stream and its sink."""

    name: str
    stream: Stream
    sink: Any


@dataclass(frozen=True)
class ShownTable(Outcome):
    """A table to show."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Words(Outcome):
    """A text to show."""

    text: str


@dataclass(frozen=True)
class Verified(Outcome):
    """A verified query, with the report."""

    report: Any
