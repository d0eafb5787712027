"""Queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.sql.syntax.expressions import Column, Duration, Expression, Name, Named, NamedWindow, OrderKey
from headrace.sql.syntax.parts import Part
from headrace.sql.syntax.windows import Bracket

__all__ = [
    "ALL_ROWS", "NO_SOURCE",
    "Body", "Entry", "Exists", "FromItem", "GroupSet", "GroupingSets", "InQuery", "Into", "Join", "Limit",
    "NamedQuery", "Quantified", "Query", "ScalarQuery", "Select", "SetOperation", "Subquery",
    "Unnest", "Values", "ValuesRow", "WindowFunction",
]  # fmt: skip


@dataclass(frozen=True)
class Entry(Part):
    """An entry of a SELECT list: an expression and its name."""

    value: Expression
    alias: Name | None = None


@dataclass(frozen=True)
class Subquery(Part):
    """`[LATERAL] (SELECT …)` in FROM: LATERAL may use the columns of the items before it."""

    query: Query
    lateral: bool = False


@dataclass(frozen=True)
class Unnest(Part):
    """`UNNEST(list) [WITH ORDINALITY]` in FROM: the elements of a list of the row; `columns` are their names."""

    value: Expression
    ordinality: bool = False
    columns: tuple[Name, ...] = ()


@dataclass(frozen=True)
class WindowFunction(Part):
    """`TUMBLE(TABLE rows, DESCRIPTOR(ts), size)` in FROM; HOP and CUMULATE have the slide or step before the size,
    SESSION has a gap. `keys` are those of `TABLE rows PARTITION BY (k)`.
    """

    kind: Literal["TUMBLE", "HOP", "SESSION", "CUMULATE"]
    rows: FromItem
    time: Column
    spans: tuple[Duration, ...]
    offset: Expression | None = None
    keys: tuple[Column, ...] = ()


@dataclass(frozen=True)
class FromItem(Part):
    """A stream, a sub-select, the elements of a list or a window function, its brackets, its alias, other names for its
    columns.
    """

    stream: Name | Subquery | Unnest | WindowFunction
    brackets: tuple[Bracket, ...] = ()
    alias: Name | None = None
    columns: tuple[Name, ...] = ()


@dataclass(frozen=True)
class Join(Part):
    """`JOIN` of a kind, with ON, USING, NATURAL (USING all columns that both sides have), or none of them (cross)."""

    kind: Literal["inner", "cross", "left", "right", "full", "semi", "anti", "clip"]
    right: FromItem
    on: Expression | None = None
    using: tuple[Name, ...] = ()
    natural: bool = False


@dataclass(frozen=True)
class GroupSet(Part):
    """`(a, b)`, `a`, `()` among grouping sets: keys that stand together."""

    keys: tuple[Expression, ...]


@dataclass(frozen=True)
class GroupingSets(Expression):
    """`GROUPING SETS (…)`, `ROLLUP (…)`, `CUBE (…)`, in place of a key of GROUP BY: several groupings at once."""

    kind: Literal["GROUPING SETS", "ROLLUP", "CUBE"]
    sets: tuple[GroupSet | GroupingSets, ...]


#: More rows than there are.
ALL_ROWS = 2**62


@dataclass(frozen=True)
class Limit(Part):
    """`ORDER BY … LIMIT k [BY key, …] [OFFSET n]`: the first k of each window and key, behind the first n.

    `OFFSET n` alone has `ALL_ROWS`.
    """

    count: int
    by: tuple[Expression, ...] = ()
    offset: int = 0


@dataclass(frozen=True)
class Select(Part):
    """A SELECT without the clauses of a complete query. Without FROM its source is `NO_SOURCE`."""

    entries: tuple[Entry, ...]
    source: FromItem
    joins: tuple[Join, ...] = ()
    where: Expression | None = None
    group: tuple[Entry, ...] = ()
    having: Expression | None = None
    order: tuple[OrderKey, ...] = ()
    limit: Limit | None = None
    distinct: bool = False
    windows: tuple[NamedWindow, ...] = ()
    qualify: Expression | None = None


@dataclass(frozen=True)
class ValuesRow(Part):
    """`(a, b, …)` after VALUES."""

    values: tuple[Expression, ...]


@dataclass(frozen=True)
class Values(Part):
    """`VALUES (1, 'a'), (2, 'b')`: rows as a relation."""

    rows: tuple[ValuesRow, ...]


@dataclass(frozen=True)
class SetOperation(Part):
    """`a UNION [ALL] b`, `a EXCEPT [ALL] b`, `a INTERSECT [ALL] b`."""

    kind: Literal["union", "except", "intersect"]
    left: Body
    right: Body
    all: bool = False


#: What a query is made of.
Body = Select | Values | SetOperation


@dataclass(frozen=True)
class Into(Part):
    """A sink behind INTO: `FILE ('out')`, `CONSOLE`, an adapter's name, with arguments as a source has."""

    kind: Name
    arguments: tuple[Expression, ...] = ()
    named: tuple[Named, ...] = ()


@dataclass(frozen=True)
class Query(Part):
    """A query: SELECTs, and how they answer. `tick_by` is the column that identifies batches.

    `named` are the queries of WITH; if it is RECURSIVE, they may name themselves and each other.
    """

    body: Body
    into: Name | Into | None = None
    emit: Literal["speculative", "final"] | None = None
    tick: Literal["tuple", "time", "batch"] | None = None
    tick_by: Column | None = None
    named: tuple[NamedQuery, ...] = ()
    recursive: bool = False


@dataclass(frozen=True)
class NamedQuery(Part):
    """A query of WITH: `name [(column, …)] AS (query)`, and how it runs if it is a loop."""

    name: Name
    query: Query
    columns: tuple[Name, ...] = ()
    distinct: bool = False
    progress: Literal["hwm", "probing", "hybrid"] | None = None
    max_rounds: int | None = None


@dataclass(frozen=True)
class ScalarQuery(Expression):
    """`(SELECT …)` as a value."""

    query: Query


@dataclass(frozen=True)
class Exists(Expression):
    """`EXISTS (SELECT …)`."""

    query: Query


@dataclass(frozen=True)
class InQuery(Expression):
    """`x [NOT] IN (SELECT …)`."""

    value: Expression
    query: Query
    negated: bool = False


@dataclass(frozen=True)
class Quantified(Expression):
    """`x > ANY (SELECT …)`, `x > ALL (SELECT …)`: a comparison with some row, or with each."""

    operator: str
    value: Expression
    query: Query
    all: bool = False


#: The source of a SELECT without FROM: one row without columns.
NO_SOURCE = FromItem(Subquery(Query(Values((ValuesRow(()),)))))
