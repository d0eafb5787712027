"""What a text of the dialect says, as a tree: the statements of rule 8.5, queries, windows and expressions.

Nothing here knows what exists: names are names, calls are calls. The parser makes these trees, the printer turns them
into text again, the binder gives them a meaning. Every part remembers where in the text it stands (`at`, two offsets),
which does not count when trees are compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

__all__ = [
    "NOWHERE", "Application", "Arrival", "Ask", "Between", "Binary", "Bracket", "Call", "Case", "Cast", "Column",
    "CountWindow", "CreateSchema", "CreateStream", "CreateTable", "DateTime", "DeltaWindow", "Describe", "Drop",
    "Duration", "EdgeLifetime", "Entry", "Explain", "Expression", "FixedWindow", "FromItem", "GridWindow", "In",
    "Insert", "IntervalLifetime", "Into", "IsNull", "Join", "LandmarkWindow", "Lifespan", "Like", "Limit", "Measure",
    "Merge", "Module", "Name", "Named", "Number", "OrderKey", "Over", "Part", "PhysicalLifetime", "PointLifetime",
    "Policy", "Progress", "Query", "Script", "Select", "SessionWindow", "Set", "Show", "SizeWindow", "SnapshotWindow",
    "SourceClause", "Span", "Split", "SplitBranch", "Star", "Statement", "Subquery", "Text", "Tuples", "TypedColumn",
    "Unary", "Union", "Value", "Verify", "Window", "WindowPolicies",
]  # fmt: skip


Span = tuple[int, int]
NOWHERE: Span = (0, 0)


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a text."""

    at: Span = field(default=NOWHERE, compare=False, repr=False)

    def parts(self) -> list[Part]:
        """The parts it is made of, in the order of their fields."""
        return [part for f in fields(self) for part in _parts(getattr(self, f.name))]


def _parts(value: Any) -> list[Part]:
    if isinstance(value, Part):
        return [value]
    return [part for item in value for part in _parts(item)] if isinstance(value, tuple) else []


# --- names and literals ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Name(Part):
    """An identifier as it was written, without its quotes."""

    text: str
    quoted: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Expression(Part):
    """Anything that has a value."""


@dataclass(frozen=True)
class Number(Expression):
    """A number: int, or float where there is a point or an exponent."""

    value: int | float


@dataclass(frozen=True)
class Text(Expression):
    """A text in single quotes."""

    value: str


@dataclass(frozen=True)
class Value(Expression):
    """TRUE, FALSE or NULL."""

    value: bool | None


@dataclass(frozen=True)
class DateTime(Expression):
    """`DATETIME '2024-05-01 12:00:00'`."""

    text: str


@dataclass(frozen=True)
class Duration(Expression):
    """`10 s`, `1 h 30 min`: amounts and units as they were written; `FOREVER` and `UNBOUNDED` have no parts."""

    amounts: tuple[tuple[int | float, str], ...]


@dataclass(frozen=True)
class Column(Expression):
    """`price`, `s.price`; inside a DELTA window also `first.price` and `this.price`."""

    name: Name
    stream: Name | None = None


@dataclass(frozen=True)
class Star(Expression):
    """`*`, `s.*`; as the argument of `count(*)` too."""

    stream: Name | None = None


# --- expressions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unary(Expression):
    """`-x`, `+x`, `NOT x`, `~x`; the operator in upper case."""

    operator: str
    value: Expression


@dataclass(frozen=True)
class Binary(Expression):
    """`a + b`: the operators `+ - * / % || = <> < <= > >= AND OR & | ^ << >>`."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Between(Expression):
    """`x [NOT] BETWEEN a AND b`."""

    value: Expression
    low: Expression
    high: Expression
    negated: bool = False


@dataclass(frozen=True)
class In(Expression):
    """`x [NOT] IN (a, b, …)`."""

    value: Expression
    options: tuple[Expression, ...]
    negated: bool = False


@dataclass(frozen=True)
class IsNull(Expression):
    """`x IS [NOT] NULL`."""

    value: Expression
    negated: bool = False


@dataclass(frozen=True)
class Like(Expression):
    """`x [NOT] LIKE 'a%'`, `x [NOT] REGEXP '^a'` (also written RLIKE)."""

    value: Expression
    pattern: Expression
    operator: Literal["LIKE", "REGEXP"] = "LIKE"
    negated: bool = False


@dataclass(frozen=True)
class Case(Expression):
    """`CASE [subject] WHEN … THEN … [ELSE …] END`."""

    branches: tuple[tuple[Expression, Expression], ...]
    default: Expression | None = None
    subject: Expression | None = None


@dataclass(frozen=True)
class Cast(Expression):
    """`CAST(x AS TYPE)`, also written `TRY_CAST`: what cannot be cast is NULL."""

    value: Expression
    type: Name


@dataclass(frozen=True)
class Named(Part):
    """A parameter given by name: `alpha => 0.2`."""

    name: Name
    value: Expression


@dataclass(frozen=True)
class Over(Part):
    """`OVER (PARTITION BY k ROWS n PRECEDING …)`: what each tuple's result is made from (rule 7.5).

    `frame` is `rows` with a Number, `range` with a Duration or a Number, or `unbounded`. `slide` is a Number or a
    Duration.
    """

    partition: tuple[Expression, ...] = ()
    frame: Literal["rows", "range", "unbounded"] = "unbounded"
    size: Expression | None = None
    slide: Expression | None = None
    active: bool = False


@dataclass(frozen=True)
class Call(Expression):
    """A function, an aggregate or a module by its name (which may have dots), with DISTINCT and OVER where given."""

    name: tuple[Name, ...]
    arguments: tuple[Expression, ...] = ()
    named: tuple[Named, ...] = ()
    distinct: bool = False
    over: Over | None = None


# --- windows: what stands in [ ] behind a stream ---------------------------------------------------------------------


@dataclass(frozen=True)
class Tuples(Part):
    """`100`: a number of tuples."""

    count: int


@dataclass(frozen=True)
class Arrival(Part):
    """`1 min`: a time on the clock of arrival."""

    duration: Duration


@dataclass(frozen=True)
class Application(Part):
    """`60 ON ts`, `60 s ON ts`: application time; a Number is in the column's own unit (rule 8.2)."""

    amount: Number | Duration
    column: Column


Measure = Tuples | Arrival | Application


@dataclass(frozen=True)
class WindowPolicies(Part):
    """`CLIP LEFT|RIGHT|FULL|NONE`, `TIMESTAMP ALIGN|UNCHANGED|CLIP|TIME_BOUND`; in lower case, None if not said."""

    clip: str | None = None
    timestamp: str | None = None


@dataclass(frozen=True, kw_only=True)
class Bracket(Part):
    """One pair of brackets behind a stream."""


@dataclass(frozen=True, kw_only=True)
class Window(Bracket):
    """A window; any may be partitioned, filtered and have policies."""

    partition: tuple[Column, ...] = ()
    where: Expression | None = None
    policies: WindowPolicies = WindowPolicies()


@dataclass(frozen=True)
class SizeWindow(Window):
    """`[SIZE x EVERY y STARTING AT t | STARTING FIRST]`; `starting` is an expression, or "first"."""

    size: Measure
    every: Measure | None = None
    starting: Expression | Literal["first"] | None = None


@dataclass(frozen=True)
class GridWindow(Window):
    """`[TUMBLING 5 s]`, `[HOPPING 60 s EVERY 10 s]`, both with `STARTING AT t`."""

    size: Duration
    every: Duration | None = None
    starting: Expression | None = None


@dataclass(frozen=True)
class SnapshotWindow(Window):
    """`[SNAPSHOT]`."""


@dataclass(frozen=True)
class CountWindow(Window):
    """`[COUNT BY START 3]`, `[COUNT BY END 3]`."""

    edge: Literal["start", "end"]
    count: int


@dataclass(frozen=True)
class SessionWindow(Window):
    """`[SESSION 30 s]`."""

    gap: Duration


@dataclass(frozen=True)
class DeltaWindow(Window):
    """`[DELTA abs(this.price - first.price) THRESHOLD 10]`."""

    delta: Expression
    threshold: Expression


@dataclass(frozen=True)
class LandmarkWindow(Window):
    """`[LANDMARK t EVERY y]`: from t until now, every so often."""

    start: Expression
    every: Measure


@dataclass(frozen=True)
class FixedWindow(Window):
    """`[FIXED t1 TO t2]`: one window."""

    start: Expression
    end: Expression


@dataclass(frozen=True)
class Lifespan(Bracket):
    """What changes lifetimes: `[RANGE 10 s]` (how long a tuple lasts), `[RANGE UNBOUNDED]`, `[NOW]`, `[SHIFT d]`,
    `[EXTEND d]`, `[CAP d]`, `[POINT AT START]`, `[POINT AT END]`, `[COALESCE]`.
    """

    kind: Literal["range", "now", "shift", "extend", "cap", "point_at_start", "point_at_end", "coalesce"]
    duration: Duration | Unary | None = None


@dataclass(frozen=True)
class Module(Bracket):
    """`[APPLY finance.spikes(price, threshold => 3)]`: an operator of a module, over the window before it."""

    call: Call


# --- queries ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry(Part):
    """An entry of a SELECT list: an expression and its name."""

    value: Expression
    alias: Name | None = None


@dataclass(frozen=True)
class Subquery(Part):
    """`(SELECT …)` in FROM."""

    query: Query


@dataclass(frozen=True)
class FromItem(Part):
    """A stream or a sub-select, its brackets in order, its alias."""

    stream: Name | Subquery
    brackets: tuple[Bracket, ...] = ()
    alias: Name | None = None


@dataclass(frozen=True)
class Join(Part):
    """`JOIN`: kind `inner`, `cross`, `left`, `anti` or `clip`, with ON, USING, or neither (cross)."""

    kind: Literal["inner", "cross", "left", "anti", "clip"]
    right: FromItem
    on: Expression | None = None
    using: tuple[Name, ...] = ()


@dataclass(frozen=True)
class OrderKey(Part):
    """An entry of ORDER BY."""

    value: Expression
    descending: bool = False


@dataclass(frozen=True)
class Limit(Part):
    """`ORDER BY … LIMIT k [BY key, …]`: the k that come first, of each window and key."""

    count: int
    by: tuple[Expression, ...] = ()


@dataclass(frozen=True)
class Select(Part):
    """A SELECT without what may stand behind a whole query."""

    entries: tuple[Entry, ...]
    source: FromItem
    joins: tuple[Join, ...] = ()
    where: Expression | None = None
    group: tuple[Entry, ...] = ()
    having: Expression | None = None
    order: tuple[OrderKey, ...] = ()
    limit: Limit | None = None
    distinct: bool = False


@dataclass(frozen=True)
class Union(Part):
    """`a UNION [ALL] b`, from left to right."""

    left: Select | Union
    right: Select
    all: bool = False


@dataclass(frozen=True)
class Query(Part):
    """A query: SELECTs, and how they answer. `tick_by` is the column that tells batches apart."""

    body: Select | Union
    into: Name | None = None
    emit: Literal["speculative", "final"] | None = None
    tick: Literal["tuple", "time", "batch"] | None = None
    tick_by: Column | None = None


# --- statements ------------------------------------------------------------------------------------------------------


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


@dataclass(frozen=True)
class SourceClause(Part):
    """`SOURCE FILE ('ticks.csv', ',', header => TRUE)`: a kind in upper case and its arguments."""

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
class PhysicalLifetime(Part):
    """`LIFETIME PHYSICAL`: the rows are physical events."""


@dataclass(frozen=True)
class Progress(Part):
    """`WITH PROGRESS ADVANCE 10 s [EVERY d] [SKEW d] | ORDERED | EXPLICIT | HEARTBEAT d [DELAY d]`."""

    kind: Literal["advance", "ordered", "explicit", "heartbeat"]
    amount: Duration | Number | None = None
    every: Duration | Number | None = None
    skew: Duration | Number | None = None
    delay: Duration | Number | None = None


@dataclass(frozen=True)
class Policy(Part):
    """`LATE RAISE|DROP|ADJUST|DIVERT`, `BAD ROWS RAISE|DIVERT`, in lower case."""

    late: str | None = None
    bad_rows: str | None = None


@dataclass(frozen=True)
class CreateStream(Statement):
    """`CREATE STREAM name [schema] [ORDER BY | LIFETIME] [SOURCE | AS] [WITH PROGRESS …] [LATE …] [BAD ROWS …]`.

    `derived` is a stream's name, a query, or a MERGE.
    """

    name: Name
    columns: tuple[TypedColumn, ...] = ()
    like: Name | None = None
    lifetime: PointLifetime | IntervalLifetime | EdgeLifetime | PhysicalLifetime | None = None
    source: SourceClause | None = None
    derived: Name | Query | Merge | None = None
    progress: Progress | None = None
    policy: Policy = Policy()


@dataclass(frozen=True)
class CreateTable(Statement):
    """`CREATE TABLE name [(…)] SOURCE …`: stored rows, read when a query starts."""

    name: Name
    columns: tuple[TypedColumn, ...] = ()
    source: SourceClause | None = None


@dataclass(frozen=True)
class Into(Part):
    """Where rows leave: `FILE ('out')`, `CONSOLE`, with arguments as a source has."""

    kind: Name
    arguments: tuple[Expression, ...] = ()
    named: tuple[Named, ...] = ()


@dataclass(frozen=True)
class Insert(Statement):
    """`INSERT INTO stream | FILE ('out') | CONSOLE [AS] stream | query`."""

    target: Name | Into
    source: Name | Query


@dataclass(frozen=True)
class Merge(Statement):
    """`MERGE a, b, c [INTO d]`: streams of equal schemas as one."""

    streams: tuple[Name, ...]
    into: Name | None = None


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
    """`DROP STREAM|SCHEMA|TABLE name`; kind in lower case."""

    kind: Literal["stream", "schema", "table"]
    name: Name


@dataclass(frozen=True)
class Show(Statement):
    """`SHOW STREAMS|SCHEMAS|TABLES|MODULES|FUNCTIONS|QUERIES|SETTINGS`; what, in lower case."""

    what: str


@dataclass(frozen=True)
class Describe(Statement):
    """`DESCRIBE name`."""

    name: Name


@dataclass(frozen=True)
class Explain(Statement):
    """`EXPLAIN [LIVELINESS] query | stream`."""

    target: Name | Query
    liveliness: bool = False


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
    """A query by itself: its answers are what the script gives. `name` from `QUERY name AS SELECT …`."""

    query: Query
    name: Name | None = None


@dataclass(frozen=True)
class Script(Part):
    """Statements, one after the other."""

    statements: tuple[Statement, ...]
