"""Standard frames and window functions over streams of instants, against slow computations over the whole history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import SqlError
from headrace.testing.verify.differential import differential_reference

Tuple = tuple[int, str, int | None]

EVENTS = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from("ab"), st.none() | st.integers(0, 3), st.booleans()),
    max_size=12,
    unique_by=lambda row: row[:3],  # of equal rows, any may be the one that is taken back
)


def stream_of(rows: list[tuple[int, str, int | None, bool]]) -> tuple[hr.Stream, list[Tuple]]:
    """Instants in an order of arrival of their own, some of them taken back; and those that are left."""
    lines = ["kind | le | re | re_new | k | x"]
    kept: list[Tuple] = []
    for le, k, x, gone in rows:
        value = "" if x is None else x
        lines.append(f"insert | {le} | {le + 1} | | {k} | {value}")
        if gone:
            lines.append(f"retract | {le} | {le + 1} | {le} | {k} | {value}")
        else:
            kept.append((le, k, x))
    if any(row[3] for row in rows):  # events that may be taken back have no arrival: columns decide
        kept.sort(key=lambda row: (row[1], row[2] is not None, row[2] or 0))
    return hr.events("\n".join(lines), "k STRING, x LONG").point_at_start(), kept


def in_order(group: list[Tuple]) -> list[Tuple]:
    """By time; rows at the same time keep their order."""
    return sorted(group, key=lambda row: row[0])


def total(rows: list[Tuple]) -> int | None:
    values = [x for _, _, x in rows if x is not None]
    return sum(values) if values else None


#: The text of a call, and its value for the i-th row of a group in its order.
CALLS: dict[str, tuple[str, Callable[[list[Tuple], int], Any]]] = {
    "rows": (
        "sum(x) OVER (PARTITION BY k ORDER BY le ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
        lambda g, i: total(g[max(0, i - 2) : i + 1]),
    ),
    "range": (
        "count(*) OVER (PARTITION BY k ORDER BY le RANGE BETWEEN 2 us PRECEDING AND CURRENT ROW)",
        lambda g, i: sum(g[i][0] - 2 <= row[0] <= g[i][0] for row in g),
    ),
    "so far": ("sum(x) OVER (PARTITION BY k ORDER BY le)", lambda g, i: total([r for r in g if r[0] <= g[i][0]])),
    "peers": (
        "max(x) OVER (PARTITION BY k ORDER BY le RANGE CURRENT ROW)",
        lambda g, i: max((x for le, _, x in g if le == g[i][0] and x is not None), default=None),
    ),
    "rows behind": (
        "sum(x) OVER (PARTITION BY k ORDER BY le ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING)",
        lambda g, i: total(g[max(0, i - 1) : i + 3]),
    ),
    "all before and rows behind": (
        "count(x) OVER (PARTITION BY k ORDER BY le ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING)",
        lambda g, i: sum(row[2] is not None for row in g[: i + 2]),
    ),
    "last_value of rows behind": (
        "last_value(x) OVER (PARTITION BY k ORDER BY le ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING)",
        lambda g, i: g[min(i + 1, len(g) - 1)][2],
    ),
    "time behind": (
        "sum(x) OVER (PARTITION BY k ORDER BY le RANGE BETWEEN 1 us PRECEDING AND 2 us FOLLOWING)",
        lambda g, i: total([row for row in g if g[i][0] - 1 <= row[0] <= g[i][0] + 2]),
    ),
    "all before and time behind": (
        "max(x) OVER (PARTITION BY k ORDER BY le RANGE BETWEEN UNBOUNDED PRECEDING AND 2 us FOLLOWING)",
        lambda g, i: max((x for le, _, x in g if le <= g[i][0] + 2 and x is not None), default=None),
    ),
    "row_number": ("row_number() OVER (PARTITION BY k ORDER BY le)", lambda _, i: i + 1),
    "rank": ("rank() OVER (PARTITION BY k ORDER BY le)", lambda g, i: 1 + sum(row[0] < g[i][0] for row in g)),
    "dense_rank": (
        "dense_rank() OVER (PARTITION BY k ORDER BY le)",
        lambda g, i: len({row[0] for row in g if row[0] <= g[i][0]}),
    ),
    "first_value": (
        "first_value(x) OVER (PARTITION BY k ORDER BY le ROWS 1 PRECEDING)",
        lambda g, i: g[max(0, i - 1)][2],
    ),
    "last_value": (
        "last_value(x) OVER (PARTITION BY k ORDER BY le)",
        lambda g, i: [row for row in g if row[0] == g[i][0]][-1][2],
    ),
    "nth_value": (
        "nth_value(x, 2) OVER (PARTITION BY k ORDER BY le ROWS UNBOUNDED PRECEDING)",
        lambda g, i: g[1][2] if i > 0 else None,
    ),
    "lag": ("lag(x, 2, -1) OVER (PARTITION BY k ORDER BY le)", lambda g, i: g[i - 2][2] if i > 1 else -1),
    "lead": ("lead(x) OVER (PARTITION BY k ORDER BY le)", lambda g, i: g[i + 1][2] if i + 1 < len(g) else None),
}


def expected(kept: list[Tuple], value: Callable[[list[Tuple], int], Any]) -> list[Tuple]:
    groups = [in_order([row for row in kept if row[1] == k]) for k in "ab"]
    return [(*group[i], value(group, i)) for group in groups for i in range(len(group))]


def sortable(rows: list[Any]) -> list[Any]:
    return sorted([tuple((one is not None, one if one is not None else 0) for one in row) for row in rows])


@pytest.mark.parametrize("name", CALLS)
@given(rows=EVENTS, data=st.data())
@settings(suppress_health_check=list(HealthCheck))
def test_oracle_over_random_rows(name: str, rows: list[tuple[int, str, int | None, bool]], data: st.DataObject):
    text, value = CALLS[name]
    stream, kept = stream_of(data.draw(st.permutations(rows)))
    query = hr.sql(f"SELECT k, x, {text} AS v FROM s", s=stream)
    found = [(row["le"], row["k"], row["x"], row["v"]) for row in query.cht().to_pylist()]
    assert sortable(found) == sortable(expected(kept, value))


@pytest.mark.parametrize("name", CALLS)
def test_history_agrees(name: str):
    rows = [(1, "a", 1, False), (3, "a", None, False), (4, "a", 9, False), (4, "a", 8, False), (2, "b", 3, True)]
    query = hr.sql(f"SELECT k, x, {CALLS[name][0]} AS v FROM s", s=stream_of([*rows, (4, "b", 3, False)])[0])
    assert hr.same_history(query.cht(), query.history(engine="duckdb").cht())
    differential_reference(query.node)


def test_all_in_one_list():
    calls = ", ".join(f"{text} AS c{number}" for number, (text, _) in enumerate(CALLS.values()))
    stream, kept = stream_of([(1, "a", 1, False), (3, "a", None, False), (3, "a", 2, False), (2, "b", 3, False)])
    found = hr.sql(f"SELECT k, x, {calls} FROM s", s=stream).cht().to_pylist()
    for number, (_, value) in enumerate(CALLS.values()):
        shown = [(row["le"], row["k"], row["x"], row[f"c{number}"]) for row in found]
        assert sortable(shown) == sortable(expected(kept, value))


def test_peers_in_python():
    stream, _ = stream_of([(1, "a", 1, False), (1, "a", 2, False), (2, "a", 4, False)])
    python = stream.group_by("k").over(peers=True).aggregate(v=hr.sum("x"))
    sql = hr.sql("SELECT k, x, sum(x) OVER (PARTITION BY k ORDER BY le) AS v FROM s", s=stream)
    assert python.cht().equals(sql.cht())
    assert [row["v"] for row in python.cht().to_pylist()] == [3, 3, 7]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("sum(x) OVER (ORDER BY x)", "in the order of the stream's own time"),
        ("sum(x) OVER (ORDER BY le DESC)", "in the order of the stream's own time"),
        ("sum(x) OVER (ORDER BY le ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)", "has no last row"),
        ("sum(x) OVER (ORDER BY le RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)", "has no last row"),
        ("sum(x) OVER (ORDER BY le ROWS BETWEEN CURRENT ROW AND 21 FOLLOWING)", "at most 20 FOLLOWING"),
        ("sum(x) OVER (ORDER BY le ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING)", "has the current row"),
        ("sum(x) OVER (ORDER BY le ROWS BETWEEN 3 PRECEDING AND 2 PRECEDING)", "ends with the current row"),
        ("nth_value(x, 2) OVER (ORDER BY le ROWS 3 PRECEDING)", "nth_value counts from the first row"),
        ("rank(x) OVER (ORDER BY le)", "rank has no arguments"),
        ("lag(x, x) OVER (ORDER BY le)", "lag takes a value"),
        ("sum(lag(x) OVER (ORDER BY le)) OVER (ORDER BY le)", "lag and lead stand outside"),
    ],
)
def test_refused(call: str, says: str):
    with pytest.raises(SqlError, match=says):
        hr.sql(f"SELECT {call} FROM s", s=stream_of([(1, "a", 5, False)])[0])
