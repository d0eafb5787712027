"""Sources as SQL: from stored rows to the history that the query's operators see (rules 1.2 and 3).

A stored row has its file and its position there (`__file`, `__row`): the order in which a live query reads it, with one
file per batch. So even lateness is a function of stored rows: a row is late if its sync time is before the CTI of the
rows before it. Running maxima compute that, first over files and then within each, so that no engine needs all rows in
one place. Partitions of an adapter's source take the place of files; each has promises of its own only.
"""

# ruff: noqa: S608 - SQL is what is made here, and every name in it is the plan's own, quoted

from __future__ import annotations

from typing import Any, Literal, get_args

from headrace.errors import BadRow, LateEvent, Undecided
from headrace.events import FARTHEST
from headrace.expr.nodes import Column, col
from headrace.history.dialect import Dialect
from headrace.history.script import HistoryRelation, PolicyCheck
from headrace.io.origins import AdapterRead, Events, SparkRead
from headrace.plan.nodes import Source
from headrace.plan.policies import Advance, Arrival, Changed, Edge, Heartbeat, Interval, Physical, Point
from headrace.schema import ARRIVAL, Field, Schema, Type
from headrace.time import CHRONON, INFINITY

__all__ = ["FILE", "LATE", "ROW", "Late", "SourceQuery"]

FILE, ROW = "__file", "__row"
_KEPT = "__fine AND (__cti IS NULL OR __sync >= __cti)"
#: The policies for rows that a live query would find late.
Late = Literal["decide", "include"]
LATE: tuple[str, ...] = get_args(Late)


class SourceQuery:
    """The queries of one source over its stored rows, the relation `rows`."""

    def __init__(self, source: Source, rows: str, dialect: Dialect, late: Late) -> None:
        self.source, self.rows, self.dialect, self.late = source, rows, dialect, late
        self.physical = isinstance(source.lifetime, Physical)
        self.in_log_order = isinstance(source.lifetime, Changed) and source.lifetime.in_log_order
        policy = source.policy
        self.decides = late == "decide" and not self._promises_nothing()
        by_chance = isinstance(policy, Heartbeat) or (isinstance(policy, Advance) and policy.max_skew is not None)
        by_chance = by_chance or isinstance(source.origin, SparkRead)  # whose rows come in no order that is kept
        by_chance = by_chance or policy.idle is not None
        if self.decides and by_chance:
            raise Undecided(
                "which rows were late is not stored: it depended on a clock, on batches, or on an order that is lost",
                given=f"{source.origin}, progress {policy}",
                allowed="files and events in memory, with progress explicit, ordered, or advance without max_skew",
                instead="history(late='include'), which takes every row as if it had come in time",
            )

    def _promises_nothing(self) -> bool:
        """Whether no row can be late: CTIs must be in the data, and only physical events contain them."""
        return not self.physical and not isinstance(self.source.policy, (Advance, Heartbeat))

    # --- rows to events ---------------------------------------------------------------------------------------------

    def _events(self) -> str:
        """Every row with its lifetime, and whether it is valid."""
        if self.physical:
            event = "kind IN ('insert', 'retract')"
            sound = (
                f"(kind = 'cti' AND le IS NOT NULL) OR ({event} AND abs(le) < {FARTHEST} AND re > le "
                f"AND (re = {INFINITY} OR re < {FARTHEST}) AND (kind = 'insert' OR (re_new >= le "
                f"AND (re_new = {INFINITY} OR re_new < {FARTHEST}))))"
            )
            sync = f"CASE kind WHEN 'insert' THEN le WHEN 'retract' THEN least(re, re_new) ELSE {INFINITY} END"
            # abs of the smallest number overflows; no event may have that time.
            return (
                f"SELECT *, coalesce({sound}, FALSE) AS __fine, {sync} AS __sync "
                f"FROM (SELECT * FROM {self.rows} WHERE le IS NULL OR le > -{INFINITY}) known"
            )
        le, re = self._lifetime()
        sound = f"le > -{FARTHEST} AND le < {FARTHEST} AND re > le AND (re = {INFINITY} OR re < {FARTHEST})"
        known, kept = self._change()
        return (
            f"SELECT *, coalesce({sound}{' AND __known' if known else ''}, FALSE) AS __fine, le AS __sync "
            f"FROM (SELECT {self._payload()}{FILE}, {ROW}, {le} AS le, {re} AS re{known} FROM {self.rows}{kept}) timed"
        )

    def _change(self) -> tuple[str, str]:
        """For changes of a table: a column that says whether a row is one, and a filter without pre-images."""
        lifetime = self.source.lifetime
        if not isinstance(lifetime, Changed):
            return "", ""
        known = [self._sql(lifetime.knows)] if lifetime.knows is not None else []
        known += [f"{self._sql(col(name))} IS NOT NULL" for name in lifetime.key]
        skips = "" if lifetime.skips is None else f" WHERE NOT coalesce({self._sql(lifetime.skips)}, FALSE)"
        return f", {' AND '.join(known)} AS __known", skips

    def _payload(self) -> str:
        return "".join(f"{self.dialect.quote(name)}, " for name in self.columns.values())

    @property
    def columns(self) -> dict[str, str]:
        """The payload's columns, and their names in SQL."""
        return HistoryRelation(self.rows, self.source.schema).columns

    def _lifetime(self) -> tuple[str, str]:
        lifetime = self.source.lifetime
        if isinstance(lifetime, Interval):
            end = self._ticks(lifetime.end)
            if lifetime.null_is_endless(self.source.columns):
                absent = " OR ".join(f"{self._sql(col(name))} IS NULL" for name in sorted(lifetime.end.columns()))
                end = f"CASE WHEN {absent or 'FALSE'} THEN {INFINITY} ELSE {end} END"
            return self._ticks(lifetime.start), end
        assert isinstance(lifetime, (Point, Edge))
        at = self._ticks(lifetime.at)
        return at, f"CASE WHEN {at} < {INFINITY} THEN {at} + {CHRONON} END"

    def _ticks(self, expr: Any) -> str:
        return f"CAST({self._sql(expr, ticks=True)} AS BIGINT)"

    def _sql(self, expr: Any, *, ticks: bool = False) -> str:
        """An expression over the columns of the source; a time in ticks."""
        names = {name: name for name in self.source.columns.names} | self.columns
        renamed = expr.transform(lambda e: Column(names[e.column]) if isinstance(e, Column) else e)
        bound = renamed.bind(Schema(tuple(Field(names[field.name], field.type) for field in self.source.columns)))
        tree = self.dialect.printer.tree(bound)
        if ticks and bound.type is Type.DATETIME:
            tree = self.dialect.printer.to_ticks(tree)
        return str(tree.sql(dialect=self.dialect.name))

    # --- lateness ---------------------------------------------------------------------------------------------------

    def _promise(self) -> str:
        """What a row contributes to the CTI of later rows: its promise, or the promise that follows from its time."""
        policy = self.source.policy
        promised = "WHEN __fine AND kind = 'cti' THEN le" if self.physical else ""
        if not isinstance(policy, Advance):
            return f"CASE {promised} END"
        behind = f"le - {policy.delay}"
        if policy.every > 1:
            behind = f"({self.dialect.floor(behind, policy.every)}) * {policy.every}"
        return f"CASE {promised} WHEN __fine THEN {behind} END"

    def _judged(self) -> str:
        """Common table expressions; the last is `judged`: every event and the CTI before it, null if none."""
        events = f"events AS (\n  {self._events()}\n)"
        if not self.decides:
            return f"{events}, judged AS (SELECT *, CAST(NULL AS BIGINT) AS __cti FROM events)"
        moves = f"{events}, moves AS (\n  SELECT *, {self._promise()} AS __move FROM events\n)"
        before = f"""max(__move) OVER (
    PARTITION BY {FILE} ORDER BY {ROW} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"""
        if isinstance(self.source.origin, AdapterRead):
            return f"{moves}, judged AS (\n  SELECT *, {before} AS __cti FROM moves\n)"
        return f"""{moves}, files AS (
  SELECT {FILE} AS __of, max(__move) AS __highest FROM moves GROUP BY {FILE}
), earlier AS (
  SELECT __of, max(__highest) OVER (ORDER BY __of ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS __before
  FROM files
), judged AS (
  SELECT m.*, greatest(e.__before, {before}) AS __cti
  FROM moves m JOIN earlier e ON m.{FILE} = e.__of
)"""

    # --- the history ------------------------------------------------------------------------------------------------

    @property
    def _columns(self) -> str:
        return "".join(f", {self.dialect.quote(name)}" for name in self.columns.values())

    def query(self, admit: str = "") -> str:
        """The history of the source: `le`, `re` and the payload.

        Of physical events it is their sum (rule 2.1). Where retractions may name events that do not exist, `admit` is
        the function that processes the events of a payload one by one.
        """
        if self.physical:
            return self._admitted(admit) if admit else f"WITH {self._changes()}, {self._summed('changes')}"
        le, kept = "le", _KEPT
        if isinstance(self.source.lifetime, Arrival):
            return self._arriving()
        if self.in_log_order:
            return self._logged()
        if self.decides and self.source.policy.late == "adjust":
            le, kept = "greatest(le, __cti)", "__fine AND (__cti IS NULL OR re > __cti)"
        return f"WITH {self._judged()}\nSELECT {le} AS le, re{self._columns}\nFROM judged WHERE {kept}"

    def _arriving(self) -> str:
        """Points at distinct arrival times: each at its own time, or one tick after the previous one."""
        columns = [(self.dialect.quote(new), "__at" if old == ARRIVAL else "") for old, new in self.columns.items()]
        payload = "".join(f", {value} AS {name}" if value else f", {name}" for name, value in columns)
        return f"""WITH events AS (
  {self._events()}
), numbered AS (
  SELECT *, row_number() OVER (ORDER BY {FILE}, {ROW}) AS __number FROM events WHERE __fine
), apart AS (
  SELECT *, __number + max(le - __number) OVER (ORDER BY __number ROWS UNBOUNDED PRECEDING) AS __at FROM numbered
)
SELECT __at AS le, __at + {CHRONON} AS re{payload}
FROM apart"""

    def _logged(self) -> str:
        """Changes at their arrival, but not before the change above them, and after those of earlier files."""
        columns = [(self.dialect.quote(new), "__at" if old == ARRIVAL else "") for old, new in self.columns.items()]
        payload = "".join(f", {value} AS {name}" if value else f", {name}" for name, value in columns)
        return f"""WITH events AS (
  {self._events()}
), files AS (
  SELECT __of, __last, row_number() OVER (ORDER BY __of) AS __number
  FROM (SELECT {FILE} AS __of, max(le) AS __last FROM events WHERE __fine GROUP BY {FILE}) ends
), earlier AS (
  SELECT __of, __number + max(__last - __number) OVER (
    ORDER BY __number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS __first FROM files
), logged AS (
  SELECT v.*, greatest(e.__first, max(le) OVER (PARTITION BY {FILE} ORDER BY {ROW} ROWS UNBOUNDED PRECEDING)) AS __at
  FROM events v JOIN earlier e ON v.{FILE} = e.__of WHERE __fine
)
SELECT __at AS le, __at + {CHRONON} AS re{payload}
FROM logged"""

    def _changes(self) -> str:
        """Common table expressions up to `changes`: what the admitted physical events add and remove."""
        explode, series = self.dialect.explode, self.dialect.series
        return f"""{self._judged()}, arrived AS (
  {self._arrived()}
), parts AS (
  -- A retraction takes one lifetime away, and unless it deletes adds another.
  SELECT *, {explode}({series}(0, CASE WHEN re_new > le THEN 1 ELSE 0 END)) AS __part FROM arrived
), changes AS (
  SELECT *, CASE __part WHEN 0 THEN re ELSE re_new END AS __end,
    CASE WHEN re_new IS NULL OR __part = 1 THEN 1 ELSE -1 END AS __weight FROM parts
)"""

    def _summed(self, changes: str) -> str:
        """The events that changes add up to, from a common table expression on."""
        explode, series = self.dialect.explode, self.dialect.series
        return f"""counted AS (
  SELECT le, __end{self._columns}, sum(__weight) AS __times FROM {changes}
  GROUP BY le, __end{self._columns} HAVING sum(__weight) > 0
), repeated AS (
  SELECT *, {explode}({series}(1, CAST(__times AS BIGINT))) AS __time FROM counted
)
SELECT le, __end AS re{self._columns} FROM repeated"""

    def _running(self) -> str:
        """Common table expressions up to `sums`: the count of each lifetime after each batch."""
        return f"""{self._changes()}, sums AS (
  SELECT *, sum(__weight) OVER (PARTITION BY le, __end{self._columns} ORDER BY {FILE}) AS __so_far FROM changes
)"""

    def _admitted(self, admit: str) -> str:
        """Sums where they are never negative; the events themselves elsewhere."""
        payload = self._columns.removeprefix(", ")
        event = self.dialect.struct({"batch": FILE, "row": ROW, "le": "le", "re": "re", "re_new": "re_new"})
        return f"""WITH {self._running()}, known AS (
  SELECT *, min(__so_far) OVER (PARTITION BY {payload}) AS __least FROM sums
), sound AS (
  SELECT * FROM known WHERE __least >= 0
), gathered AS (
  SELECT {payload}, {self.dialect.gather}({event}) AS __events FROM known WHERE __least < 0 AND __part = 0
  GROUP BY {payload}
), admitted AS (
  SELECT {payload}, {admit}(__events) AS __lives FROM gathered
), lives AS (
  SELECT {payload}, {self.dialect.explode}(__lives) AS __life FROM admitted
), {self._summed("sound")}
UNION ALL
SELECT __life.le AS le, __life.re AS re, {payload} FROM lives"""

    def _arrived(self) -> str:
        """The admitted physical events, adjusted by their policy; only retractions have a new end."""
        le, re_new, kept = "le", "re_new", _KEPT
        if self.decides and self.source.policy.late == "adjust":
            late, moved = "__sync < __cti", "greatest(re_new, __cti)"
            le = f"CASE WHEN kind = 'insert' AND {late} THEN __cti ELSE le END"
            re_new = f"CASE WHEN {late} THEN {moved} ELSE re_new END"
            alive = f"CASE kind WHEN 'insert' THEN re > __cti ELSE re >= __cti AND {moved} <> re END"
            kept = f"__fine AND (__cti IS NULL OR __sync >= __cti OR ({alive}))"
        end = f"CASE kind WHEN 'retract' THEN {re_new} END"
        return f"""SELECT {FILE}, {ROW}, {le} AS le, re, {end} AS re_new{self._columns}
  FROM judged WHERE kind <> 'cti' AND {kept}"""

    def high(self) -> str:
        """A query for the highest time the source has reached."""
        if self.in_log_order:
            return f"SELECT max(le) AS high FROM ({self._logged()}) logged"
        counts = f"__fine AND le < {INFINITY}"
        return f"WITH events AS (\n  {self._events()}\n)\nSELECT max(le) AS high FROM events WHERE {counts}"

    # --- what must not be in the rows -------------------------------------------------------------------------------

    def checks(self) -> list[PolicyCheck]:
        """The checks for rows that a policy of the source makes an error."""
        origin, late = self.source.origin, self.source.policy.late
        found = []
        # Physical events in memory were checked when the stream was created; rows with another lifetime were not.
        checked = isinstance(origin, Events) and self.physical
        if self.source.bad_rows == "raise" and not checked:
            bad = f"WITH events AS (\n  {self._events()}\n)\nSELECT * FROM events WHERE NOT __fine"
            found.append(PolicyCheck(bad, lambda row: BadRow(f"{origin}: a row that is no event", given=_plain(row))))
        breaks = f"WITH {self._judged()}\nSELECT * FROM judged WHERE __fine AND __sync < __cti"
        if self.decides and late == "raise" and not (isinstance(self.source.lifetime, Arrival) or self.in_log_order):
            found.append(
                PolicyCheck(breaks, lambda row: LateEvent(f"{origin}: an event breaks a promise", given=_plain(row)))
            )
        if self.physical:
            orphans = f"WITH {self._running()}\nSELECT le, __end AS re{self._columns} FROM sums WHERE __so_far < 0"
            found.append(PolicyCheck(orphans, None))
        return found


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("__")}
