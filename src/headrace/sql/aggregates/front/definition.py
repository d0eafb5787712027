"""The definition of a checked aggregate: tables with types, and statements over bound expressions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from headrace.expr import Expr
from headrace.expr.nodes import Bound
from headrace.schema import Field, Schema, Type

__all__ = [
    "EVENTS",
    "INWINDOW",
    "MOST_ROWS",
    "AggregateDefinition",
    "BodyInsert",
    "BodyStatement",
    "BodyUpdate",
    "ColumnOrigin",
    "Delete",
    "Oldest",
    "Scalar",
    "Selected",
    "StateTable",
    "TableScan",
]  # fmt: skip

EVENTS = ("initialize", "iterate", "terminate", "expire")
#: The default limit of rows of a table: state that only grows is a mistake.
MOST_ROWS = 1_000_000
#: The table of a window aggregate that the system keeps.
INWINDOW = "inwindow"


@dataclass(frozen=True, eq=False)
class StateTable:
    """A table of an aggregate: `key` has the positions of its key columns."""

    name: str
    schema: Schema
    key: tuple[int, ...] = ()
    rows: tuple[tuple[Bound, ...], ...] = ()
    #: The rows of a stored table, which is only read.
    stored: tuple[tuple[Any, ...], ...] | None = None
    #: The most rows it may have.
    limit: int = MOST_ROWS

    @property
    def kept_by_system(self) -> bool:
        return self.name.lower() == INWINDOW


@dataclass(frozen=True, eq=False)
class TableScan:
    """A place in a body that scans the rows of a table."""

    table: StateTable
    number: int


@dataclass(frozen=True)
class ColumnOrigin:
    """The origin of a column of a bound expression: the rows of a source, else the tuple that arrived."""

    index: int
    source: TableScan | None = None


@dataclass(frozen=True, eq=False)
class Selected:
    """A SELECT; without a source it has one row."""

    entries: tuple[Bound, ...]
    source: TableScan | None = None
    where: Bound | None = None
    order: tuple[tuple[Bound, bool], ...] = ()
    limit: int | None = None
    #: Whether it aggregates all rows to one.
    aggregated: bool = False
    #: More sources; their rows form a cross product.
    joined: tuple[TableScan, ...] = ()
    #: The grouping expressions.
    groups: tuple[Bound, ...] = ()
    having: Bound | None = None
    distinct: bool = False

    @property
    def sources(self) -> tuple[TableScan, ...]:
        """All, from the outermost."""
        return () if self.source is None else (self.source, *self.joined)

    @property
    def simple(self) -> bool:
        """Whether its rows are rows of one table at most."""
        return not (self.aggregated or self.joined or self.groups or self.distinct)


@dataclass(frozen=True, eq=False, repr=False)
class Scalar(Expr):
    """A SELECT as a value."""

    select: Selected

    def bind(self, schema: Schema) -> Bound:  # noqa: ARG002 - it has its type already
        return Bound(self, self.select.entries[0].type)

    def __str__(self) -> str:
        return "(SELECT …)"


@dataclass(frozen=True, eq=False, repr=False)
class Oldest(Expr):
    """A column of the tuple that leaves the window."""

    index: int
    kind: Type

    def bind(self, schema: Schema) -> Bound:  # noqa: ARG002 - it has its type already
        return Bound(self, self.kind)

    def __str__(self) -> str:
        return "oldest()"


@dataclass(frozen=True, eq=False)
class BodyStatement:
    """A statement of a body: its place, and the tables it reads."""

    line: int
    reads: frozenset[StateTable]


@dataclass(frozen=True, eq=False)
class BodyInsert(BodyStatement):
    """Rows for a table, or for RETURN if there is none."""

    table: StateTable | None
    rows: tuple[tuple[Bound, ...], ...] = ()
    select: Selected | None = None


@dataclass(frozen=True, eq=False)
class BodyUpdate(BodyStatement):
    """New values for columns; None for those that stay."""

    source: TableScan
    values: tuple[Bound | None, ...]
    where: Bound | None = None


@dataclass(frozen=True, eq=False)
class Delete(BodyStatement):
    """Rows that go."""

    source: TableScan
    where: Bound | None = None


@dataclass(frozen=True, eq=False)
class AggregateDefinition:
    """An aggregate: its parameters, its result, its tables and its statements for each event."""

    name: str
    parameters: tuple[Field, ...]
    #: The columns of its rows; of a value, one.
    returns: tuple[Field, ...]
    #: Whether it returns a value, not rows.
    value: bool
    tables: tuple[StateTable, ...]
    stages: Mapping[str, tuple[BodyStatement, ...]]
    #: The origins of the columns of bound expressions.
    places: Mapping[str, ColumnOrigin]
    #: The aggregates it calls.
    calls: tuple[Any, ...] = ()
    algebraic: bool = False
    window: bool = False
    #: Whether a window version reads inwindow as a table; otherwise it needs only the tuple that leaves.
    keeps_window: bool = False

    @property
    def blocking(self) -> bool:
        """Whether it answers only after the last tuple (rule 7.2)."""
        return bool(self.stages.get("terminate"))

    @property
    def inwindow(self) -> StateTable | None:
        """The table that the system keeps, if it is declared."""
        return next((table for table in self.tables if table.kept_by_system), None)

    def form(self, table: StateTable) -> Literal["stored", "row", "keyed", "rows"]:
        """How a table is stored: shared by all groups, as exactly one row, by its key, or as a list."""
        if table.stored is not None:
            return "stored"
        if not table.kept_by_system and self._one_row(table):
            return "row"
        return "keyed" if table.key else "rows"

    def _one_row(self, table: StateTable) -> bool:
        every = [statement for event in EVENTS for statement in self.stages.get(event, ())]
        inserts = [one for one in every if isinstance(one, BodyInsert) and one.table is table]
        if any(isinstance(one, Delete) and one.source.table is table for one in every):
            return False
        if table.rows:
            return len(table.rows) == 1 and not inserts
        first = next((one for one in self.stages.get("initialize", ()) if _touches(one, table)), None)
        if len(inserts) != 1 or inserts[0] is not first or table in first.reads:
            return False
        return len(inserts[0].rows) == 1


def _touches(statement: BodyStatement, table: StateTable) -> bool:
    return table in statement.reads or (isinstance(statement, BodyInsert) and statement.table is table)
