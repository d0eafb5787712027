"""Windows as SQL (rule 5): the windows of each group, and the events of each window.

Each kind of window is a query that gives, for every event and every window it belongs to, a row with the group's keys
(`__k0`, …), the window (`__wle`, `__wre`) and the event. A window without events has no rows.
"""

# ruff: noqa: S608 - SQL is what is made here, and every name in it is the plan's own, quoted

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headrace.history.grid import grid_sql
from headrace.history.script import HistoryFunction
from headrace.history.translation import Translation
from headrace.plan.nodes import PerWindow
from headrace.plan.windows import Count, Grid, Session, Snapshot
from headrace.time import INFINITY

__all__ = ["content"]


def content(t: Translation, node: PerWindow, keys: Sequence[str], high: str) -> str:
    """Common table expressions over `keyed` (the events and their keys) up to `content`.

    `high` is the highest time that the input has reached, as SQL (m of rule 5.3, when everything has come).
    """
    window = node.window
    if isinstance(window, Grid):
        return _grid(t, window, keys, high, begun=node.timestamping == "time_bound")
    if isinstance(window, Snapshot):
        return _snapshot(keys)
    if isinstance(window, Count):
        return _count(window, keys)
    assert isinstance(window, Session)
    return _session(window, keys) if window.longest is None else _cut_session(t, window, keys)


def _partition(keys: Sequence[str]) -> str:
    return f"PARTITION BY {', '.join(keys)}" if keys else ""


def _same_keys(keys: Sequence[str]) -> str:
    return "".join(f"e.{key} IS NOT DISTINCT FROM w.{key} AND " for key in keys)


def _grid(t: Translation, window: Grid, keys: Sequence[str], high: str, *, begun: bool) -> str:
    dialect, number = t.dialect, grid_sql(t, window)
    seen = f"__wle <= {high}" if begun else f"__wre <= {high}"
    reach = f"{high} + 1" if begun else high
    group = _partition(keys)
    finite = f"greatest(max(le + 1) OVER ({group}), max(CASE WHEN re < {INFINITY} THEN re END) OVER ({group}))"
    return f"""bounded AS (
  SELECT *, {finite} AS __finite
  FROM keyed
), numbered AS (
  -- An event that never ends belongs to windows up to the last finite end of its group, or as far as time was seen.
  SELECT *, {number.first("le")} AS __first, {number.last("__until")} AS __last
  FROM (SELECT *, least(re, greatest(__finite, {reach})) AS __until FROM bounded) untils
), spread AS (
  SELECT *, {dialect.explode}({dialect.series}(__first, __last)) AS __number FROM numbered WHERE __first <= __last
), content AS (
  SELECT * FROM (
    SELECT *, {number.start("__number")} AS __wle, {number.end("__number")} AS __wre FROM spread
  ) windows
  WHERE __wle < __finite OR {seen}
)"""


def _snapshot(keys: Sequence[str]) -> str:
    by = "".join(f"{key}, " for key in keys)
    return f"""ends AS (
  SELECT {by}le AS __at FROM keyed UNION SELECT {by}re AS __at FROM keyed
), windows AS (
  SELECT {by}__at AS __wle, lead(__at) OVER ({_partition(keys)} ORDER BY __at) AS __wre FROM ends
), content AS (
  SELECT e.*, w.__wle, w.__wre
  FROM keyed e JOIN windows w ON {_same_keys(keys)}e.le < w.__wre AND e.re > w.__wle
)"""


def _count(window: Count, keys: Sequence[str]) -> str:
    by = "".join(f"{key}, " for key in keys)
    end = "le" if window.by == "start" else "re"
    later = f"lead(__at, {window.n - 1})" if window.n > 1 else "max(__at)"
    over = f"{_partition(keys)} ORDER BY __at" + ("" if window.n > 1 else " ROWS BETWEEN CURRENT ROW AND CURRENT ROW")
    return f"""times AS (
  SELECT DISTINCT {by}{end} AS __at FROM keyed WHERE {end} < {INFINITY}
), windows AS (
  SELECT {by}__at AS __wle, {later} OVER ({over}) + 1 AS __wre FROM times
), content AS (
  SELECT e.*, w.__wle, w.__wre
  FROM keyed e JOIN windows w ON {_same_keys(keys)}e.{end} >= w.__wle AND e.{end} < w.__wre
)"""


def _session(window: Session, keys: Sequence[str]) -> str:
    runs = ", ".join([*keys, "__run"])
    apart = f"le - lag(le) OVER ({_partition(keys)} ORDER BY le)"
    return f"""starts AS (
  SELECT *, CASE WHEN {apart} < {window.gap} THEN 0 ELSE 1 END AS __new FROM keyed
), runs AS (
  SELECT *, sum(__new) OVER ({_partition(keys)} ORDER BY le RANGE UNBOUNDED PRECEDING) AS __run FROM starts
), content AS (
  SELECT *, min(le) OVER (PARTITION BY {runs}) AS __wle, max(le) OVER (PARTITION BY {runs}) + {window.gap} AS __wre
  FROM runs
)"""


def _cut_session(t: Translation, window: Session, keys: Sequence[str]) -> str:
    """Sessions of a greatest length: where one begins depends on all before it, so a function divides the starts."""
    by, dialect = "".join(f"{key}, " for key in keys), t.dialect
    function = t.function(lambda name: _sessions_function(name, window))
    grouped = f"GROUP BY {', '.join(keys)}" if keys else ""
    return f"""gathered AS (
  SELECT {by}{dialect.gather}(le) AS __starts FROM keyed {grouped}
), divided AS (
  SELECT {by}{dialect.explode}({function}(__starts)) AS __session FROM gathered
), content AS (
  SELECT e.*, w.__session.begins AS __wle, w.__session.ends AS __wre
  FROM keyed e JOIN divided w ON {_same_keys(keys)}e.le = w.__session.at
)"""


def _sessions_function(name: str, window: Session) -> HistoryFunction:
    """The session of each start of a group."""
    gives = pa.list_(pa.struct([("at", pa.int64()), ("begins", pa.int64()), ("ends", pa.int64())]))

    def call(lists: Any) -> pa.Array:
        return pa.array([_sessions(sorted(set(starts or ())), window) for starts in lists.to_pylist()], gives)

    return HistoryFunction(name, (pa.list_(pa.int64()),), gives, call)


def _sessions(starts: Sequence[int], window: Session) -> list[dict[str, int]]:
    assert window.longest is not None
    sessions: list[list[int]] = []
    for start in starts:
        if sessions and start - sessions[-1][-1] < window.gap and start - sessions[-1][0] < window.longest:
            sessions[-1].append(start)
        else:
            sessions.append([start])
    return [
        {"at": start, "begins": one[0], "ends": min(one[-1] + window.gap, one[0] + window.longest)}
        for one in sessions
        for start in one
    ]
