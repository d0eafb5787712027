"""Syntax to text: `to_sql` writes any part of a text in one canonical way.

Reading it again gives the same tree. Names are quoted, and expressions put in parentheses, only where they would be
read as something else otherwise. Statements and queries go over several lines, one clause on each.
"""

from __future__ import annotations

from headrace.sql import syntax as s
from headrace.sql.printer import aggregates as _aggregates  # noqa: F401 - which writes its own parts
from headrace.sql.printer import server as _server  # noqa: F401 - as well
from headrace.sql.printer.expressions import (
    LINE_BREAK,
    clause,
    clauses,
    enclosed,
    indented,
    lines,
    listed,
    quoted,
    text,
    window_text,
    words,
    writes,
    written_name,
    written_type,
)
from headrace.sql.printer.patterns import named_queries
from headrace.sql.printer.tables import if_not_exists, new_name, table_columns

__all__ = ["to_sql"]

# Words that are names in most places, but keywords in the listed ones.
_AS_SHAPE = frozenset({"BAD", "EXTENDS", "LATE", "LIFETIME", "SOURCE", "WITH"})
_AS_TARGET = frozenset({"CONSOLE"})
_AS_DERIVED = frozenset({"MERGE", "WITH"})
_AS_ASKED = frozenset({"WITH"})
_AS_EXPLAINED = frozenset({"ANALYZE", "LIVELINESS", "WITH"})


def to_sql(part: s.Part) -> str:
    """The text of a part, without a semicolon after a single statement.

    >>> to_sql(s.Binary("*", s.Number(2), s.Binary("+", s.Column(s.Name("a")), s.Number(1))))
    '2 * (a + 1)'
    """
    return text(part).replace(LINE_BREAK, "\n")


# ---- windows


@writes(s.Tuples)
def _(part: s.Tuples) -> str:
    return str(part.count)


@writes(s.Arrival)
def _(part: s.Arrival) -> str:
    return text(part.duration)


@writes(s.Application)
def _(part: s.Application) -> str:
    return f"{text(part.amount)} ON {text(part.column)}"


@writes(s.WindowPolicies)
def _(part: s.WindowPolicies) -> str:
    clip = f"CLIP {part.clip.upper()}" if part.clip else ""
    return words(clip, f"TIMESTAMP {part.timestamp.upper()}" if part.timestamp else "")


def _window(part: s.Window, *own: str) -> str:
    partition, where = clauses("PARTITIONED BY", part.partition), clause("WHERE", part.where)
    return f"[{words(*own, clause('ON', part.on), partition, where, text(part.policies))}]"


def _starting(starting: s.Expression | str | None) -> str:
    return "STARTING FIRST" if isinstance(starting, str) else clause("STARTING AT", starting)


@writes(s.SizeWindow)
def _(part: s.SizeWindow) -> str:
    return _window(part, "SIZE", text(part.size), clause("EVERY", part.every), _starting(part.starting))


@writes(s.GridWindow)
def _(part: s.GridWindow) -> str:
    kind = "TUMBLING" if part.every is None else "HOPPING"
    zone = "" if part.zone is None else f"ZONE {text(s.Text(part.zone))}"
    return _window(part, kind, text(part.size), clause("EVERY", part.every), zone, _starting(part.starting))


@writes(s.SnapshotWindow)
def _(part: s.SnapshotWindow) -> str:
    return _window(part, "SNAPSHOT")


@writes(s.CountWindow)
def _(part: s.CountWindow) -> str:
    return _window(part, f"COUNT BY {part.edge.upper()} {part.count}")


@writes(s.SessionWindow)
def _(part: s.SessionWindow) -> str:
    return _window(part, "SESSION", text(part.gap), clause("LONGEST", part.longest))


@writes(s.DeltaWindow)
def _(part: s.DeltaWindow) -> str:
    return _window(part, "DELTA", text(part.delta), "THRESHOLD", text(part.threshold))


@writes(s.LandmarkWindow)
def _(part: s.LandmarkWindow) -> str:
    return _window(part, "LANDMARK", text(part.start), "EVERY", text(part.every))


@writes(s.FixedWindow)
def _(part: s.FixedWindow) -> str:
    return _window(part, "FIXED", text(part.start), "TO", text(part.end))


@writes(s.Lifespan)
def _(part: s.Lifespan) -> str:
    kind, starting = part.kind.upper().replace("_", " "), clause("STARTING AT", part.starting)
    return f"[{words(kind, text(part.duration) if part.duration else '', starting)}]"


@writes(s.Module)
def _(part: s.Module) -> str:
    return f"[APPLY {text(part.call)}]"


# ---- queries


@writes(s.Entry)
def _(part: s.Entry) -> str:
    return words(text(part.value), clause("AS", part.alias))


@writes(s.GroupSet)
def _(part: s.GroupSet) -> str:
    return text(part.keys[0]) if len(part.keys) == 1 else f"({listed(part.keys)})"


@writes(s.GroupingSets)
def _(part: s.GroupingSets) -> str:
    return f"{part.kind} ({listed(part.sets)})"


@writes(s.Subquery)
def _(part: s.Subquery) -> str:
    return f"{'LATERAL ' if part.lateral else ''}(\n{indented(text(part.query))}\n)"


@writes(s.FromItem)
def _(part: s.FromItem) -> str:
    names = part.stream.columns if isinstance(part.stream, s.Unnest) else part.columns
    columns = f"({listed(names)})" if names else ""
    return words(text(part.stream), *map(text, part.brackets), clause("AS", part.alias), columns)


@writes(s.Unnest)
def _(part: s.Unnest) -> str:
    return words(f"UNNEST({text(part.value)})", "WITH ORDINALITY" if part.ordinality else "")


@writes(s.WindowFunction)
def _(part: s.WindowFunction) -> str:
    name = part.rows.stream
    keys = f"PARTITION BY ({listed(part.keys)})" if part.keys else ""
    rows = words("TABLE", text(name), keys) if isinstance(name, s.Name) else text(name)
    more = [text(one) for one in (*part.spans, part.offset) if one is not None]
    return f"{part.kind}({', '.join([rows, f'DESCRIPTOR({text(part.time)})', *more])})"


@writes(s.Join)
def _(part: s.Join) -> str:
    kind = "" if part.kind == "inner" else f"{part.kind.upper()} "
    using = f"USING ({listed(part.using)})" if part.using else ""
    natural = "NATURAL " if part.natural else ""
    return words(f"{natural}{kind}JOIN {text(part.right)}", clause("ON", part.on), using)


@writes(s.Limit)
def _(part: s.Limit) -> str:
    first = "" if part.count == s.ALL_ROWS else f"LIMIT {part.count}"
    return words(first, clauses("BY", part.by), f"OFFSET {part.offset}" if part.offset else "")


@writes(s.NamedWindow)
def _(part: s.NamedWindow) -> str:
    return f"{text(part.name)} AS ({window_text(part.over)})"


@writes(s.Select)
def _(part: s.Select) -> str:
    return lines(
        words("SELECT", "DISTINCT" if part.distinct else "", listed(part.entries)),
        clause("FROM", part.source) if part.source != s.NO_SOURCE else "",
        *map(text, part.joins),
        clause("WHERE", part.where),
        clauses("GROUP BY", part.group),
        clause("HAVING", part.having),
        clauses("WINDOW", part.windows),
        clause("QUALIFY", part.qualify),
        clauses("ORDER BY", part.order),
        text(part.limit) if part.limit else "",
    )


@writes(s.Values)
def _(part: s.Values) -> str:
    return f"VALUES {listed(part.rows)}"


def _operand(part: s.Body, *, around: s.SetOperation, right: bool) -> str:
    """An operand in parentheses where it would be read as something else."""
    tight = around.kind == "intersect"
    if isinstance(part, s.SetOperation):
        apart = right if (part.kind == "intersect") is tight else tight
    else:
        apart = isinstance(part, s.Select) and (bool(part.order) or part.limit is not None)
    return f"(\n{indented(text(part))}\n)" if apart else text(part)


@writes(s.SetOperation)
def _(part: s.SetOperation) -> str:
    left, right = _operand(part.left, around=part, right=False), _operand(part.right, around=part, right=True)
    return lines(left, words(part.kind.upper(), "ALL" if part.all else ""), right)


@writes(s.Query)
def _(part: s.Query) -> str:
    emit = f"EMIT {part.emit.upper()}" if part.emit else ""
    tick = f"TICK {part.tick.upper()}" if part.tick else ""
    behind = _into(part.into), emit, words(tick, clause("BY", part.tick_by))
    return lines(named_queries(part), text(part.body), *behind)


# ---- statements


@writes(s.Script)
def _(part: s.Script) -> str:
    return "\n\n".join(f"{text(statement)};" for statement in part.statements)


def _shape(part: s.CreateSchema | s.CreateStream) -> str:
    if part.like is not None:
        return written_name(part.like, _AS_SHAPE)
    return _columns(part.columns)


def _columns(columns: tuple[s.TypedColumn, ...]) -> str:
    return f"({listed(columns)})" if columns else ""


@writes(s.TypedColumn)
def _(part: s.TypedColumn) -> str:
    return f"{text(part.name)} {written_type(part.type)}"


@writes(s.CreateSchema)
def _(part: s.CreateSchema) -> str:
    return words(
        "CREATE SCHEMA", if_not_exists(part), new_name(part.name), _shape(part), clause("EXTENDS", part.extends)
    )


@writes(s.PointLifetime)
def _(part: s.PointLifetime) -> str:
    return f"ORDER BY {text(part.value)}"


@writes(s.IntervalLifetime)
def _(part: s.IntervalLifetime) -> str:
    return f"LIFETIME FROM {text(part.start)} TO {text(part.end)}"


@writes(s.EdgeLifetime)
def _(part: s.EdgeLifetime) -> str:
    return words(f"LIFETIME EDGE AT {text(part.value)}", clauses("KEY", part.key), clause("CLOSED WHEN", part.closes))


@writes(s.ChangesLifetime)
def _(part: s.ChangesLifetime) -> str:
    return words(
        "LIFETIME CHANGES",
        clause("AT", part.time),
        clauses("KEY", part.key),
        clause("OPERATION", part.operation),
        f"ENCODING {quoted(part.encoding)}" if part.encoding is not None else "",
        clause("DELETED WHEN", part.deletes),
    )


@writes(s.PhysicalLifetime)
def _(_: s.PhysicalLifetime) -> str:
    return "LIFETIME PHYSICAL"


@writes(s.Progress)
def _(part: s.Progress) -> str:
    amount = text(part.amount) if part.amount is not None else ""
    more = (
        clause("EVERY", part.every),
        clause("SKEW", part.skew),
        clause("DELAY", part.delay),
        clause("IDLE", part.idle),
        clause("PER", part.per),
    )
    return words("WITH PROGRESS", part.kind.upper(), amount, *more)


@writes(s.Policy)
def _(part: s.Policy) -> str:
    into = f"INTO {text(part.late)}" if isinstance(part.late, s.Name) else (part.late or "").upper()
    late = f"LATE {into}" if part.late else ""
    bad_rows = f"BAD ROWS {part.bad_rows.upper()}" if part.bad_rows else ""
    return words(late, bad_rows, text(part.shedding) if part.shedding is not None else "")


@writes(s.Shedding)
def _(part: s.Shedding) -> str:
    rule = "RANDOM" if part.by is None else f"BY {text(part.by)}"
    return f"WITH SHEDDING {rule} ABOVE {part.above} ROWS"


def _place(part: s.SourceClause | s.Into, *, bare: bool) -> str:
    named = [f"{text(each.name)} => {_argument(each.value)}" for each in part.named]
    arguments = ", ".join([*map(_argument, part.arguments), *named])
    kind = text(part.kind)
    return kind if bare and not arguments else f"{kind} ({arguments})"


def _argument(part: s.Expression) -> str:
    # Double quotes around an argument would make it a text.
    if isinstance(part, s.Column) and part.stream is None and text(part).startswith('"'):
        return enclosed(part.name.text, "`")
    return text(part)


@writes(s.SourceClause)
def _(part: s.SourceClause) -> str:
    return f"SOURCE {_place(part, bare=True)}"


@writes(s.Into)
def _(part: s.Into) -> str:
    return _place(part, bare=part.kind.text.upper() in _AS_TARGET)


def _into(part: s.Name | s.Into | None) -> str:
    return clause("INTO", part) if not isinstance(part, s.Name) else f"INTO {written_name(part, _AS_TARGET)}"


def _derived(part: s.Name | s.Query | s.Merge | s.DivertedFrom | None) -> str:
    if isinstance(part, s.Name):
        return f"AS {written_name(part, _AS_DERIVED)}"
    return f"AS\n{text(part)}" if part is not None else ""


@writes(s.CreateStream)
def _(part: s.CreateStream) -> str:
    rest = (each for each in (part.lifetime, part.source, part.progress, part.policy) if each is not None)
    first = words("CREATE STREAM", if_not_exists(part), new_name(part.name), _shape(part))
    clauses = [indented(text(each)) for each in rest if text(each)]
    derived = _derived(part.derived)
    return lines(first, *clauses, derived) if clauses else words(first, derived)


@writes(s.CreateTable)
def _(part: s.CreateTable) -> str:
    first = words("CREATE TABLE", if_not_exists(part), new_name(part.name), table_columns(part))
    if part.query is not None:
        return lines(f"{first} AS", text(part.query))
    return lines(first, indented(text(part.source)) if part.source else "")


@writes(s.Insert)
def _(part: s.Insert) -> str:
    asked = _asked(part.source)
    # A parenthesis would begin arguments of the target, VALUES rows of a table.
    named = isinstance(part.source, s.Name) or asked.startswith(("\n(", "\nVALUES "))
    return f"INSERT {_into(part.target)}" + (" AS" if named else "") + asked


@writes(s.Merge)
def _(part: s.Merge) -> str:
    return words(f"MERGE {listed(part.streams)}", _into(part.into))


@writes(s.DivertedFrom)
def _(part: s.DivertedFrom) -> str:
    return f"DIVERTED FROM {text(part.stream)}"


@writes(s.SplitBranch)
def _(part: s.SplitBranch) -> str:
    return words(f"INSERT INTO {text(part.target)} SELECT {listed(part.entries)}", clause("WHERE", part.where))


@writes(s.Split)
def _(part: s.Split) -> str:
    return lines(f"ON {text(part.stream)}", *map(text, part.branches))


@writes(s.Drop)
def _(part: s.Drop) -> str:
    name, rest = new_name(part.name), "CASCADE" if part.cascade else ""
    return words("DROP", part.kind.upper(), "IF EXISTS" if part.if_exists else "", name, rest)


@writes(s.Show)
def _(part: s.Show) -> str:
    of = "" if part.name is None else f"FOR {text(part.name)}"
    return words("SHOW", part.what.upper(), of, "" if part.limit is None else f"LIMIT {part.limit}")


@writes(s.ShowCreate)
def _(part: s.ShowCreate) -> str:
    return words("SHOW CREATE", (part.kind or "").upper(), text(part.name))


@writes(s.Describe)
def _(part: s.Describe) -> str:
    return f"DESCRIBE{_asked(part.target)}"


def _asked(part: s.Name | s.Query, keywords: frozenset[str] = _AS_ASKED) -> str:
    return f" {written_name(part, keywords)}" if isinstance(part, s.Name) else f"\n{text(part)}"


@writes(s.Explain)
def _(part: s.Explain) -> str:
    more = words("ANALYZE" if part.analyze else "", "LIVELINESS" if part.liveliness else "")
    return f"{words('EXPLAIN', more)}{_asked(part.target, _AS_EXPLAINED)}"


@writes(s.Verify)
def _(part: s.Verify) -> str:
    seeds = f"SEEDS {part.seeds}" if part.seeds is not None else ""
    more = words(seeds, f"OVER {quoted(part.over)}" if part.over is not None else "")
    gap = " " if isinstance(part.target, s.Name) else "\n"
    return f"VERIFY{_asked(part.target)}" + (f"{gap}{more}" if more else "")


@writes(s.Set)
def _(part: s.Set) -> str:
    return f"SET {text(part.name)} = {text(part.value)}"


@writes(s.Ask)
def _(part: s.Ask) -> str:
    return text(part.query) if part.name is None else f"QUERY {text(part.name)} AS\n{text(part.query)}"
