"""Windows of tuples as SQL (rules 8.2 and 8.3): numbered rows, triggers as data, and the rows between.

`placed` has the tuples of a group with their positions in its order. Then there is a row for each window; the time or
position of its trigger identifies it (`__wid`), because several may have the same bounds.
"""

# ruff: noqa: S608 - SQL is what is made here, and every name in it is the plan's own, quoted

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.expr import Expr, col, evaluate
from headrace.history.script import HistoryFunction
from headrace.history.translation import Translation
from headrace.plan.nodes import PerWindow
from headrace.plan.ordered import (
    FIRST,
    By,
    Delta,
    Fixed,
    Frame,
    Landmark,
    Ordered,
    Slides,
    Time,
    Tuples,
    order_columns,
)
from headrace.schema import Schema, Type

__all__ = ["content", "placed", "yielding"]


def content(t: Translation, node: PerWindow, keys: Sequence[str], high: str) -> str:
    """Common table expressions over `keyed`, the last of which is `content`."""
    return _Content(t, node, keys, high).text()


def placed(t: Translation, node: PerWindow, keys: Sequence[str]) -> str:
    """The tuples of `keyed` with their places in their group."""
    return _Content(t, node, keys, "")._placed()  # noqa: SLF001 - its own


def yielding(t: Translation, node: PerWindow, keys: Sequence[str]) -> str:
    """The tuples of `placed` that have results under the slide of a frame."""
    assert isinstance(node.window, Frame)
    return _Content(t, node, keys, "")._yielding(node.window)  # noqa: SLF001 - its own


class _Content:
    def __init__(self, t: Translation, node: PerWindow, keys: Sequence[str], high: str) -> None:
        assert isinstance(node.window, Ordered)
        self.t, self.node, self.window = t, node, node.window
        self.keys, self.high, self.below = list(keys), high, t.of(node)

    def text(self) -> str:
        window = self.window
        if isinstance(window, Slides):
            parts = [*self._triggers(window, window.every), self._slid(window)]
        elif isinstance(window, Landmark):
            parts = [*self._triggers(window, window.every), self._within("e.__pos <= w.__hi", str(window.start))]
        elif isinstance(window, Fixed):
            bounds = f"{window.start} AS __wle, {window.end} AS __wre"
            parts = [f"content AS (SELECT *, 0 AS __wid, {bounds} FROM placed)"]
        elif isinstance(window, Delta):
            parts = self._runs(window)
        else:
            assert isinstance(window, Frame)
            parts = [self._framed(window)]
        return ", ".join([self._placed(), *parts])

    # --- names --------------------------------------------------------------------------------------------------------

    def _by(self, *more: str, of: str = "") -> str:
        return ", ".join([*(of + key for key in self.keys), *more])

    def _partition(self, *more: str) -> str:
        return f"PARTITION BY {self._by(*more)}" if self.keys or more else ""

    def _grouped(self, *more: str) -> str:
        """A GROUP BY that gives no group for no rows, with or without keys."""
        return f"GROUP BY {self._by(*more)}" if self.keys or more else "HAVING count(*) > 0"

    def _same(self, a: str = "e", b: str = "w") -> str:
        return "".join(f"{a}.{key} IS NOT DISTINCT FROM {b}.{key} AND " for key in self.keys)

    def _comma(self, of: str = "") -> str:
        return "".join(f"{of}{key}, " for key in self.keys)

    # --- tuples in their order ----------------------------------------------------------------------------------------

    def _placed(self) -> str:
        names = [self.t.quote(self.below.columns[name]) for name in order_columns(self.below.schema)]
        order = ", ".join(["le", *(f"{name} ASC NULLS FIRST" for name in names), "re"])
        rows = "keyed"
        if isinstance(self.window, (Fixed, Landmark)):
            until = f" AND le < {self.window.end}" if isinstance(self.window, Fixed) else ""
            rows = f"(SELECT * FROM keyed WHERE le >= {self.window.start}{until}) since"
        place = f"row_number() OVER ({self._partition()} ORDER BY {order}) AS __pos"
        if not (isinstance(self.window, Slides) and isinstance(self.window.size, By)):
            return f"placed AS (\n  SELECT *, {place} FROM {rows}\n)"
        over = f"({self._partition()} ORDER BY __pos ROWS UNBOUNDED PRECEDING)"
        return f"""places AS (
  SELECT *, {place}, {self._measured(self.window.size)} AS __value FROM {rows}
), placed AS (
  SELECT *, max(__value) OVER {over} AS __top FROM places
)"""

    def _measured(self, size: By) -> str:
        """A value as a number with exact distances, or a double; NULL for values in no window."""
        kind = self.below.schema[size.column].type
        value = self.t.over(col(size.column).cast(Type.LONG) if kind is Type.DATETIME else col(size.column), self.below)
        if kind.is_floating:
            return f"CASE WHEN NOT isnan({value}) THEN CAST({value} AS DOUBLE) END"
        return f"CAST({value} AS {self.t.dialect.wide})"

    # --- when windows are triggered -----------------------------------------------------------------------------------

    def _triggers(self, window: Slides | Landmark, every: Tuples | Time) -> list[str]:
        """The windows: `__wid`, the number of tuples up to the trigger (`__hi`), and the upper bound."""
        if isinstance(every, Time):
            return self._timed(window, every.ticks)
        by = ["le"]
        if isinstance(window, Slides) and window.tick == "batch" and window.batch is not None:
            by.append(self.t.quote(self.below.columns[window.batch]))
        plain = isinstance(window, Landmark) or window.tick == "tuple" or (window.tick == "batch" and len(by) == 1)
        reacts = f"SELECT {self._comma()}le AS __at, max(__pos) AS __hi FROM placed {self._grouped(*by)}"
        if plain:
            reacts = f"SELECT {self._comma()}le AS __at, __pos AS __hi FROM placed"
        before = f"coalesce(lag(__hi) OVER ({self._partition()} ORDER BY __hi), 0)"
        floor = self.t.dialect.floor
        return [
            f"""reacting AS (
  {reacts}
), triggers AS (
  SELECT {self._comma()}__hi AS __wid, __hi, __at + 1 AS __wre
  FROM (SELECT *, {before} AS __before FROM reacting) ticks
  WHERE {floor("__hi", every.count)} > {floor("__before", every.count)}
)"""
        ]

    def _timed(self, window: Slides | Landmark, every: int) -> list[str]:
        origin = str(window.start) if isinstance(window, Landmark) else str(window.origin)
        if isinstance(window, Slides) and window.origin is None:
            origin = "__first"
        dialect = self.t.dialect
        after = f"{dialect.floor('__last - (' + origin + ')', every)} + 1"
        reached = dialect.floor(f"{self.high} - ({origin})", every)
        first = f"{dialect.floor('__first - (' + origin + ')', every)} + 1"
        return [
            f"""lasting AS (
  SELECT {self._comma()}min(le) AS __first, max(le) AS __last FROM placed {self._grouped()}
), numbered AS (
  SELECT {self._comma()}{origin} AS __origin, {first} AS __from, greatest({after}, {reached}) AS __to FROM lasting
), slides AS (
  SELECT {self._comma()}__origin, {dialect.explode}({dialect.series}(__from, __to)) AS __slide FROM numbered
), passed AS (
  SELECT {self._comma()}__origin + __slide * {every} AS __wre FROM slides
), triggers AS (
  SELECT {self._comma("w.")}w.__wre AS __wid, w.__wre, max(e.__pos) AS __hi
  FROM passed w JOIN placed e ON {self._same()}e.le < w.__wre
  GROUP BY {", ".join([*("w." + key for key in self.keys), "w.__wre"])}
)"""
        ]

    # --- what is in them ----------------------------------------------------------------------------------------------

    def _slid(self, window: Slides) -> str:
        name = "changed" if isinstance(window.every, Time) and window.tick != "tuple" else ""
        size = window.size
        if isinstance(size, Tuples):
            text = self._within(f"e.__pos <= w.__hi AND e.__pos > w.__hi - {size.count}", None, name)
        elif isinstance(size, Time):
            lower = f"w.__wre - {size.ticks}"
            text = self._within(f"e.__pos <= w.__hi AND e.le >= {lower}", lower, name)
        else:
            topped = f"""topped AS (
  SELECT w.*, e.__top FROM triggers w JOIN placed e ON {self._same()}e.__pos = w.__hi
), """
            near = f"e.__pos <= w.__hi AND (w.__top = e.__value OR w.__top - e.__value < {size.extent!r})"
            text = topped + self._within(near, None, name, "topped")
        return text if not name else f"{text}, {self._changed(window.every)}"

    def _within(self, condition: str, lower: str | None, name: str = "", windows: str = "triggers") -> str:
        bound = f"{lower} AS __wle" if lower is not None else "w.__wid AS __none"
        joined = f"""SELECT e.*, w.__wid, w.__wre, {bound}
  FROM placed e JOIN {windows} w ON {self._same()}{condition}"""
        if lower is None:
            earliest = f"min(le) OVER ({self._partition('__wid')}) AS __wle"
            joined = f"SELECT *, {earliest} FROM (\n  {joined}\n  ) members"
        return f"{'sized' if name else 'content'} AS (\n  {joined}\n)"

    def _changed(self, every: Tuples | Time) -> str:
        """The windows without those that have the same tuples as the slide before."""
        assert isinstance(every, Time)
        return f"""seen AS (
  SELECT {self._comma()}__wid, min(__pos) AS __a, max(__pos) AS __b, count(*) AS __n FROM sized
  GROUP BY {self._by("__wid")}
), same AS (
  SELECT {self._comma("w.")}w.__wid FROM seen w JOIN seen e
  ON {self._same()}e.__wid = w.__wid - {every.ticks} AND e.__a = w.__a AND e.__b = w.__b AND e.__n = w.__n
), content AS (
  SELECT w.* FROM sized w LEFT JOIN same e ON {self._same()}e.__wid = w.__wid WHERE e.__wid IS NULL
)"""

    def _framed(self, frame: Frame) -> str:
        """For each tuple, or the last of each slot, the tuples up to itself."""
        near, lower = "e.le <= w.__at" if frame.peers else "e.__pos <= w.__pos", None
        if frame.rows is not None:
            near += f" AND e.__pos >= w.__pos - {frame.rows}"
        if frame.range is not None:
            lower = f"w.__at - {frame.range}"
            near += f" AND e.le >= {lower}"
        tuples = (
            f"SELECT {self._comma()}__pos, __pos AS __wid, le AS __at, le + 1 AS __wre FROM {self._yielding(frame)}"
        )
        return f"tuples AS (\n  {tuples}\n), {self._within(near, lower, windows='tuples')}"

    def _yielding(self, frame: Frame) -> str:
        if frame.slide is None:
            return "placed"
        if isinstance(frame.slide, Tuples):
            return f"placed WHERE __pos % {frame.slide.count} = 0"
        slot = self.t.dialect.floor("le", frame.slide.ticks)
        following = f"lead({slot}) OVER ({self._partition()} ORDER BY __pos)"
        slots = f"SELECT *, {slot} AS __slot, {following} AS __next FROM placed"
        return f"({slots}) slots WHERE coalesce(__next > __slot, TRUE)"

    # --- runs ---------------------------------------------------------------------------------------------------------

    def _runs(self, window: Delta) -> list[str]:
        names = sorted({name.removeprefix(FIRST) for name in window.joins.columns()})
        schema = Schema(tuple(self.below.schema[name] for name in names))
        function = self.t.function(lambda name: run_function(name, window.joins, schema))
        fields = {"pos": "__pos"}
        fields |= {f"f{i}": self.t.over(col(name), self.below) for i, name in enumerate(names)}
        dialect = self.t.dialect
        ends = self._partition("__wid")
        return [
            f"""gathered AS (
  SELECT {self._comma()}{dialect.gather}({dialect.struct(fields)}) AS __tuples FROM placed {self._grouped()}
), divided AS (
  SELECT {self._comma()}{dialect.explode}({function}(__tuples)) AS __run FROM gathered
), runs AS (
  SELECT e.*, w.__run.run AS __wid FROM placed e JOIN divided w ON {self._same()}e.__pos = w.__run.pos
), content AS (
  SELECT *, min(le) OVER ({ends}) AS __wle, max(le) OVER ({ends}) + 1 AS __wre FROM runs
)"""
        ]


def run_function(name: str, joins: Expr, schema: Schema) -> HistoryFunction:
    """The runs of a group's tuples: a run extends from its first tuple as long as `joins` is true."""
    takes = pa.struct([("pos", pa.int64()), *((f"f{i}", field.type.arrow) for i, field in enumerate(schema))])
    gives = pa.list_(pa.struct([("pos", pa.int64()), ("run", pa.int64())]))

    def call(lists: Any) -> pa.Array:
        return pa.array([_divided(items, joins, schema) for items in lists.to_pylist()], gives)

    return HistoryFunction(name, (pa.list_(takes),), gives, call)


def _divided(items: list[dict[str, Any]], joins: Expr, schema: Schema) -> list[dict[str, int]]:
    tuples = sorted(items, key=lambda item: item["pos"])
    columns = {field.name: pa.array([t[f"f{i}"] for t in tuples], field.type.arrow) for i, field in enumerate(schema)}
    found, start, run = [], 0, 0
    while start < len(tuples):
        rest = {name: column.slice(start) for name, column in columns.items()}
        first = {FIRST + name: pa.repeat(column[0], len(tuples) - start) for name, column in rest.items()}
        near = evaluate(joins, pa.table(rest | first)).fill_null(False).to_numpy(zero_copy_only=False)
        near[0] = True  # a window's first tuple is in it, whatever its delta is
        length = int(np.argmin(near)) if not near.all() else len(near)
        found += [{"pos": t["pos"], "run": run} for t in tuples[start : start + length]]
        start, run = start + length, run + 1
    return found
