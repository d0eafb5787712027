"""Statements (rule 8.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.sql.syntax.expressions import Duration, Expression, Name, Named, Number
from headrace.sql.syntax.parts import Part
from headrace.sql.syntax.queries import Entry, Into, Query

__all__ = [
    "Ask", "ChangesLifetime", "CreateSchema", "CreateStream", "CreateTable", "CreateView", "Describe", "Drop",
    "EdgeLifetime", "Explain", "Insert", "IntervalLifetime", "Merge", "PhysicalLifetime", "PointLifetime", "Policy",
    "Progress", "Script", "Set", "Shedding", "Show", "ShowCreate", "SourceClause", "Split", "SplitBranch",
    "Statement", "TypedColumn", "Verify",
]  # fmt: skip


@dataclass(frozen=True)
class Statement(Part):
    """What stands between two semicolons."""


@dataclass(frozen=True)
class TypedColumn(Part):
    """`price DOUBLE`."""

    name: Name
    type: Name


@dataclass(frozen=True)
class CreateSchema(Statement):
    """`CREATE SCHEMA s (…) | other [EXTENDS parent]`."""

    name: Name
    columns: tuple[TypedColumn, ...] = ()
    like: Name | None = None
    extends: Name | None = None
    if_not_exists: bool = False


@dataclass(frozen=True)
class SourceClause(Part):
    """`SOURCE FILE ('ticks.csv', ',', header => TRUE)`: a kind in upper case and its arguments.

    A kind is one of the dialect's, or the name of an installed adapter.
    """

    kind: Name
    arguments: tuple[Expression, ...] = ()
    named: tuple[Named, ...] = ()


@dataclass(frozen=True)
class PointLifetime(Part):
    """`ORDER BY ts`: each row is an instant. `ORDER BY current_time`: of its arrival (`value` is that column)."""

    value: Expression


@dataclass(frozen=True)
class IntervalLifetime(Part):
    """`LIFETIME FROM a TO b`."""

    start: Expression
    end: Expression


@dataclass(frozen=True)
class EdgeLifetime(Part):
    """`LIFETIME EDGE AT ts [KEY a, b] [CLOSED WHEN p]`."""

    value: Expression
    key: tuple[Name, ...] = ()
    closes: Expression | None = None


@dataclass(frozen=True)
class ChangesLifetime(Part):
    """`LIFETIME CHANGES [AT ts] [KEY a, b] [OPERATION op] [ENCODING 'debezium'] [DELETED WHEN p]`."""

    time: Expression | None = None
    key: tuple[Name, ...] = ()
    operation: Name | None = None
    encoding: str | None = None
    deletes: Expression | None = None


@dataclass(frozen=True)
class PhysicalLifetime(Part):
    """`LIFETIME PHYSICAL`: the rows are physical events."""


@dataclass(frozen=True)
class Progress(Part):
    """`WITH PROGRESS ADVANCE 10 s [EVERY d] [SKEW d] [IDLE d] [PER column] | ORDERED [IDLE d] | EXPLICIT [IDLE d]
    | HEARTBEAT d [DELAY d]`.
    """

    kind: Literal["advance", "ordered", "explicit", "heartbeat"]
    amount: Duration | Number | None = None
    every: Duration | Number | None = None
    skew: Duration | Number | None = None
    delay: Duration | Number | None = None
    idle: Duration | None = None
    per: Name | None = None


@dataclass(frozen=True)
class Shedding(Part):
    """`WITH SHEDDING RANDOM ABOVE n ROWS`, or `BY column` instead of `RANDOM`."""

    above: int
    by: Name | None = None


@dataclass(frozen=True)
class Policy(Part):
    """`LATE RAISE|DROP|ADJUST|DIVERT`, `BAD ROWS RAISE|DIVERT`, in lower case; `LATE INTO stream` is a name."""

    late: str | Name | None = None
    bad_rows: str | None = None
    shedding: Shedding | None = None


@dataclass(frozen=True)
class CreateStream(Statement):
    """`CREATE STREAM name [schema] [ORDER BY | LIFETIME] [SOURCE | AS] [WITH PROGRESS …] [LATE …] [BAD ROWS …]
    [WITH SHEDDING …] [WITH (ISOLATED)]`.

    `derived` is a stream's name, a query, a MERGE, or the diverted rows of a stream.
    """

    name: Name
    columns: tuple[TypedColumn, ...] = ()
    like: Name | None = None
    lifetime: PointLifetime | IntervalLifetime | EdgeLifetime | ChangesLifetime | PhysicalLifetime | None = None
    source: SourceClause | None = None
    derived: Name | Query | Merge | DivertedFrom | None = None
    progress: Progress | None = None
    policy: Policy = Policy()
    isolated: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateTable(Statement):
    """`CREATE TABLE name (…)`: rows that statements change; `… SOURCE …`: stored rows, read when a query starts;
    `… AS query`: its rows now, or its history so far.

    `key` is a PRIMARY KEY behind the columns.
    """

    name: Name
    columns: tuple[TypedColumn, ...] = ()
    source: SourceClause | None = None
    query: Query | None = None
    key: tuple[Name, ...] = ()
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateView(Statement):
    """`CREATE [OR REPLACE] VIEW name AS query`: a name for a query; `CREATE MATERIALIZED VIEW …`: its answer, kept up
    to date.
    """

    name: Name
    query: Query
    replace: bool = False
    materialized: bool = False
    isolated: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class Insert(Statement):
    """`INSERT INTO stream | FILE ('out') | CONSOLE [AS] stream | query`."""

    target: Name | Into
    source: Name | Query


@dataclass(frozen=True)
class Merge(Statement):
    """`MERGE a, b, c [INTO d | FILE ('out')]`: streams of equal schemas as one."""

    streams: tuple[Name, ...]
    into: Name | Into | None = None


@dataclass(frozen=True)
class DivertedFrom(Part):
    """`DIVERTED FROM s`: the rows of a stream's sources that were late or malformed."""

    stream: Name


@dataclass(frozen=True)
class SplitBranch(Part):
    """`INSERT INTO a SELECT … [WHERE …]`."""

    target: Name
    entries: tuple[Entry, ...]
    where: Expression | None = None


@dataclass(frozen=True)
class Split(Statement):
    """`ON s INSERT INTO a SELECT … WHERE … INSERT INTO b …`: every branch that matches."""

    stream: Name
    branches: tuple[SplitBranch, ...]


@dataclass(frozen=True)
class Drop(Statement):
    """`DROP STREAM|SCHEMA|TABLE|AGGREGATE|VIEW|MATERIALIZED VIEW|QUERY [IF EXISTS] name [CASCADE]`; kind in lower case.

    `cascade`: what reads it is dropped, too.
    """

    kind: str
    name: Name
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True)
class Show(Statement):
    """`SHOW STREAMS|SOURCES|SINKS|SCHEMAS|TABLES|VIEWS|AGGREGATES|MODULES|FUNCTIONS|QUERIES|SETTINGS`, and
    `SHOW DIVERTED|STATE|LOG|BATCHES|RATES [FOR query] [LIMIT n]`; `what` is in lower case.
    """

    what: str
    name: Name | None = None
    #: The newest of the rows, at most so many.
    limit: int | None = None


@dataclass(frozen=True)
class ShowCreate(Statement):
    """`SHOW CREATE [VIEW] name`; the kind is in lower case."""

    name: Name
    kind: str | None = None


@dataclass(frozen=True)
class Describe(Statement):
    """`DESCRIBE name | query`."""

    target: Name | Query


@dataclass(frozen=True)
class Explain(Statement):
    """`EXPLAIN [ANALYZE] [LIVELINESS] query | stream`."""

    target: Name | Query
    liveliness: bool = False
    analyze: bool = False


@dataclass(frozen=True)
class Verify(Statement):
    """`VERIFY query | stream [SEEDS n] [OVER 'highly_out_of_order']`."""

    target: Name | Query
    seeds: int | None = None
    over: str | None = None


@dataclass(frozen=True)
class Set(Statement):
    """`SET host = spark`; the value is an expression, or a Column for a bare word."""

    name: Name
    value: Expression


@dataclass(frozen=True)
class Ask(Statement):
    """A query whose answers are an output of the script. `name` from `QUERY name [WITH (ISOLATED)] AS SELECT …`."""

    query: Query
    name: Name | None = None
    #: Whether it shares no work with other queries of a server.
    isolated: bool = False


@dataclass(frozen=True)
class Script(Part):
    """Statements, in order."""

    statements: tuple[Statement, ...]
