"""SQL for sources, for operators on single events, and for operators that combine the events of one stream."""

# ruff: noqa: S608 - SQL is what is made here, and every name in it is the plan's own, quoted

from __future__ import annotations

from headrace.errors import HistoryError
from headrace.expr import col
from headrace.history.admitted import admit_function
from headrace.history.inputs import SourceQuery
from headrace.history.script import HistoryRelation, HistoryStatement
from headrace.history.stored import at_rest
from headrace.history.translation import Translation
from headrace.io.tables import TableFiles, TableRows
from headrace.plan.nodes import (
    CapDuration,
    Coalesce,
    EdgeLifetimes,
    Explode,
    Extend,
    Node,
    PointAtEnd,
    PointAtStart,
    Select,
    SetDuration,
    Shift,
    Source,
    TableJoin,
    Union,
    Where,
)
from headrace.schema import Field, Schema, Type
from headrace.time import CHRONON, INFINITY

__all__ = [
    "cap_duration", "coalesce", "edge", "explode", "extend", "point_at_end", "point_at_start", "same",
    "select", "set_duration",
    "shift", "source", "table_join", "union", "where",
]  # fmt: skip


def source(t: Translation, node: Source) -> None:
    """The history of a source, its highest time, and its checks."""
    rows = f"{t.prefix}s{len(t.script.sources)}"
    t.script.sources[rows] = at_rest(node)
    query = SourceQuery(node, rows, t.dialect, t.late)
    t.script.checks += [check for check in query.checks() if check.error is not None or not t.orphans]
    high = HistoryRelation(f"{rows}_high", Schema.of("high LONG"))
    t.script.statements.append(HistoryStatement(high, query.high(), f"how far {node.origin} has come"))
    t.highs[node.fingerprint] = f"(SELECT high FROM {high.name})"
    goes_through = query.physical and t.orphans
    t.give(node, query.query(t.function(lambda name: admit_function(name, node)) if goes_through else ""))


def same(t: Translation, node: Node) -> None:
    """An operator that does not change a complete history."""
    t.same(node)


# --- each event alone -----------------------------------------------------------------------------------------------


def where(t: Translation, node: Where) -> None:
    """Rows for which the predicate is true."""
    below = t.of(node)
    t.give(node, f"SELECT {t.all(below)} FROM {below.name} WHERE {t.over(node.predicate, below)}")


def select(t: Translation, node: Select) -> None:
    """Other payloads."""
    below = t.of(node)
    values = {name: t.over(expr, below) for name, expr in node.outputs}
    t.give(node, f"SELECT le, re, {t.named(values, node.schema)} FROM {below.name}")


def _lifetimes(t: Translation, node: Node, le: str, re: str, where: str = "") -> None:
    below = t.of(node)
    payload = "".join(f", {name}" for name in t.columns(below))
    moved = f"SELECT {le} AS le, {re} AS re{payload} FROM {below.name}" + (f" WHERE {where}" if where else "")
    t.give(node, f"SELECT * FROM ({moved}) moved WHERE le < re")


def shift(t: Translation, node: Shift) -> None:
    """Lifetimes moved."""
    _lifetimes(t, node, f"le + ({node.by})", t.dialect.moved("re", node.by))


def set_duration(t: Translation, node: SetDuration) -> None:
    """Lifetimes of one length."""
    _lifetimes(t, node, "le", f"le + {node.duration}" if node.duration < INFINITY else str(INFINITY))


def extend(t: Translation, node: Extend) -> None:
    """Ends moved."""
    _lifetimes(t, node, "le", t.dialect.moved("re", node.by) if node.by < INFINITY else str(INFINITY))


def point_at_start(t: Translation, node: PointAtStart) -> None:
    """First instants."""
    _lifetimes(t, node, "le", f"le + {CHRONON}")


def point_at_end(t: Translation, node: PointAtEnd) -> None:
    """The instants of the ends."""
    _lifetimes(t, node, "re", t.dialect.moved("re", CHRONON), f"re < {INFINITY}")


def cap_duration(t: Translation, node: CapDuration) -> None:
    """Lifetimes capped to a duration."""
    _lifetimes(t, node, "le", f"least(re, le + {node.duration})" if node.duration < INFINITY else "re")


def explode(t: Translation, node: Explode) -> None:
    """A row for each element of a list."""
    below = t.of(node)
    values = {name: t.quote(column) for name, column in below.columns.items()}
    schema = Schema((*below.schema, Field("__place", Type.LONG)))
    listed = col(node.column)
    values[node.element] = t.expr(listed.element_at(col("__place")), schema, {**below.columns, "__place": "__place"})
    if node.position is not None:
        values[node.position] = "CASE WHEN __size > 0 THEN CAST(__place AS BIGINT) END"
    size = f"coalesce({t.over(listed.cardinality(), below)}, 0)"
    last, some = ("greatest(__size, 1)", "") if node.outer else ("__size", " WHERE __size > 0")
    sized = f"SELECT {t.all(below)}, {size} AS __size FROM {below.name}"
    places = f"{t.dialect.explode}({t.dialect.series}(1, {last})) AS __place"
    numbered = f"SELECT *, {places} FROM ({sized}) sized{some}"
    t.give(node, f"SELECT le, re, {t.named(values, node.schema)} FROM ({numbered}) numbered")


def table_join(t: Translation, node: TableJoin) -> None:
    """Every row joined with the rows of a table that have equal keys."""
    table = node.table.read() if isinstance(node.table, TableFiles) else node.table
    assert isinstance(table, TableRows)
    stream_key, table_key = t.of(node), HistoryRelation("", node.columns)
    rows = t.table(table.table.rename_columns(list(table_key.columns.values())))
    keys = " AND ".join(f"l.{t.quote(stream_key.columns[a])} = r.{t.quote(table_key.columns[b])}" for a, b in node.on)
    values = {name: f"l.{t.quote(column)}" for name, column in stream_key.columns.items()}
    values |= {new: f"r.{t.quote(table_key.columns[name])}" for name, new in node.table_columns.items()}
    how = "LEFT JOIN" if node.how == "left" else "JOIN"
    payload = t.named(values, node.schema)
    t.give(node, f"SELECT l.le AS le, l.re AS re, {payload} FROM {stream_key.name} l {how} {rows} r ON {keys}")


def union(t: Translation, node: Union) -> None:
    """All rows."""
    parts = [t.relations[part.fingerprint] for part in node.parts]
    t.give(node, "\nUNION ALL\n".join(f"SELECT {t.all(part)} FROM {part.name}" for part in parts))


def coalesce(t: Translation, node: Coalesce) -> None:
    """Runs of rows with equal payload that meet or overlap.

    Equal rows become one first: two sorts of the same rows may order equal ones differently.
    """
    below = t.of(node)
    payload = ", ".join(t.columns(below))
    order = f"PARTITION BY {payload} ORDER BY le, re"
    begins = "CASE WHEN le <= __reached THEN 0 ELSE 1 END"
    t.give(
        node,
        f"""WITH once AS (
  SELECT DISTINCT le, re, {payload} FROM {below.name}
), reached AS (
  SELECT *, max(re) OVER ({order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS __reached FROM once
), runs AS (
  SELECT *, sum({begins}) OVER ({order} ROWS UNBOUNDED PRECEDING) AS __run FROM reached
)
SELECT min(le) AS le, max(re) AS re, {payload} FROM runs GROUP BY {payload}, __run""",
    )


def edge(t: Translation, node: EdgeLifetimes) -> None:
    """Samples, each up to the next of its key."""
    below = t.of(node)
    if node.latest:
        raise HistoryError("the latest value of each key is a view of a stream, not its history", given=node.describe())
    keys = [t.quote(below.columns[name]) for name in node.key]
    partition = f"PARTITION BY {', '.join(keys)} " if keys else ""
    payload = "".join(f", {name}" for name in t.columns(below))
    later = f"min(le) OVER ({partition}ORDER BY le RANGE BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)"
    kept = [f"NOT coalesce({t.over(node.closes, below)}, FALSE)"] if node.closes is not None else []
    rank = ""
    if node.order:  # of the samples of a key at one time, the last
        ranked = ", ".join(f"{t.quote(below.columns[name])} DESC NULLS LAST" for name in node.order)
        rank = f", rank() OVER (PARTITION BY {', '.join([*keys, 'le'])} ORDER BY {ranked}) AS __rank"
        kept.append("__rank = 1")
    where = f" WHERE {' AND '.join(kept)}" if kept else ""
    signal = f"SELECT le, coalesce({later}, {INFINITY}) AS re{payload}{rank} FROM {below.name}"
    shown = t.named({name: t.quote(below.columns[name]) for name in node.schema.names}, node.schema)
    t.give(node, f"SELECT le, re, {shown} FROM ({signal}) signal{where}")
