"""Two traced runs side by side: pairs of operators, the first batch that differs, and the answers."""

from __future__ import annotations

import json

import pytest

import headrace as hr
from headrace import col
from headrace.errors import PlanError

EVENTS = hr.events("le | re | k | x\n1 | 2 | a | 1\n2 | 3 | b | 2\n3 | 4 | a | 3\n15 | 16 | a | 4")


def counted(least: int) -> hr.Stream:
    """How many events of a key have at least this value."""
    return EVENTS.where(col("x") >= least).group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count())


def test_two_versions_of_a_query():
    found = counted(1).trace(batch_rows=1).compare(counted(3).trace(batch_rows=1))
    pairs = [(pair.left and pair.left.number, pair.right and pair.right.number, pair.batch) for pair in found.pairs]
    assert pairs[:4] == [(1, 1, None), (2, 2, None), (3, 3, 0), (4, 4, 3)]
    assert found.operators["text_right"].to_pylist()[2] == "Where x >= 3"
    rows = found.answers.sort_by([("side", "ascending"), ("le", "ascending"), ("k", "ascending")]).to_pylist()
    assert [(row["side"], row["le"], row["k"], row["n"]) for row in rows] == [
        ("both", 10, "a", 1), ("left", 0, "a", 2), ("left", 0, "b", 1), ("right", 0, "a", 1),
    ]  # fmt: skip


def test_the_changes_that_differ():
    found = counted(1).trace(batch_rows=1).compare(counted(3).trace(batch_rows=1))
    first = found.differences(operator=3).to_pylist()
    assert [(row["side"], row["weight"], row["x"]) for row in first] == [("left", 1, 1)]
    assert found.differences(operator=3, batch=3).num_rows == 0
    assert {row["side"] for row in found.differences().to_pylist()} == {"left", "right"}


def test_runs_that_are_the_same():
    found = counted(1).trace().compare(counted(1).trace())
    assert found.operators["batch"].null_count == len(found.pairs)
    assert set(found.answers["side"].to_pylist()) == {"both"}
    assert found.differences().num_rows == 0
    assert "0 only left, 0 only right, 3 in both" in repr(found)


def test_operators_of_one_run_and_other_columns():
    found = EVENTS.select("k", "x").trace().compare(EVENTS.select("k", x=col("x") * 2.0).where(col("k") == "a").trace())
    assert [pair.text for pair in found.pairs if pair.left is None] == ["#3 Select k, x = x * 2.0: only right"]
    assert found.answers.column_names == ["side", "weight", "le", "re", "k", "x"]
    assert "Where k = 'a': differs from batch 0 on; columns differ: x LONG left, DOUBLE right" in repr(found)
    with pytest.raises(PlanError, match="only the left run"):
        EVENTS.where(col("x") > 0).coalesce().trace().compare(EVENTS.trace()).differences(operator=3)


def test_columns_of_other_types_are_compared_by_value():
    windows = EVENTS.window(hr.tumbling(100))
    found = windows.aggregate(t=hr.sum("x")).trace().compare(windows.aggregate(t=hr.avg("x")).trace())
    assert [(row["side"], row["t"]) for row in found.answers.to_pylist()] == [("left", 10.0), ("right", 2.5)]
    assert "differs from batch 1 on; columns differ: t LONG left, DOUBLE right" in repr(found)


@pytest.mark.parametrize(
    ("left", "right", "sides"),
    [
        (col("x"), col("x") * 1.0, {"both"}),
        (col("x"), col("x").cast("DECIMAL(20,2)"), {"both"}),
        (col("x").cast("DECIMAL(20,2)"), col("x").cast("DECIMAL(38,10)"), {"both"}),
        (col("x").cast("DECIMAL(38,30)"), col("x"), {"both"}),
        (col("x") + 9_007_199_254_740_991, (col("x") + 9_007_199_254_740_991) * 1.0, {"both", "left", "right"}),
        (col("x"), col("k"), {"left", "right"}),
    ],
)
def test_values_of_two_types(left: hr.Expr, right: hr.Expr, sides: set[str]):
    found = EVENTS.select(v=left).trace().compare(EVENTS.select(v=right).trace())
    assert set(found.answers["side"].to_pylist()) == sides
    assert "columns differ: v " in repr(found)


def test_columns_of_one_run_are_named():
    found = EVENTS.select("k", a=col("x")).trace().compare(EVENTS.select("k", b=col("x")).trace())
    assert found.operators["columns"].to_pylist()[2] == "only left a; only right b"
    assert "the same in the columns of both; columns differ: only left a; only right b" in repr(found)
    assert "4 in both (columns differ: only left a; only right b)" in repr(found)


def test_without_a_common_column_all_rows_differ():
    found = EVENTS.select(a=col("x")).trace().compare(EVENTS.select(b=col("x")).trace())
    rows = [(row["side"], row["a"], row["b"]) for row in found.answers.to_pylist()]
    assert rows == [("left", n, None) for n in (1, 2, 3, 4)] + [("right", None, n) for n in (1, 2, 3, 4)]
    assert found.differences().num_rows == 8
    assert "differs from batch 0 on; columns differ: only left a; only right b" in repr(found)


def test_copies_count():
    twice = EVENTS.union(EVENTS).trace().compare(EVENTS.trace())
    assert set(zip(twice.answers["side"].to_pylist(), twice.answers["weight"].to_pylist(), strict=True)) == {
        ("left", 1),
        ("both", 1),
    }


def test_the_comparison_as_plain_values():
    found = json.loads(json.dumps(counted(1).trace().compare(counted(3).trace()).as_dict()))
    assert found["operators"][0]["left"] == 1
    assert found["answers"][0] == {"side": "left", "weight": 1, "le": 0, "re": 10, "k": "a", "n": 2}


@hr.udf
def unlucky(v: int) -> int:
    if v == 2:
        raise ValueError("2 is bad")
    return v


def test_a_run_that_failed_is_compared_as_far_as_it_ran():
    rows = hr.events("le | re | v\n1 | 9 | 1\n2 | 9 | 3\n3 | 9 | 2\n4 | 9 | 5")
    with rows.select(u=unlucky("v")).debug(batch_rows=1) as session:
        session.change_input(1, remove="v = 2")
        session.change_input(1, replace=("v = 3", {"v": 4}))
        assert session.run().finished
        assert "failed in batch 2" in repr(session.original)
        found = session.original.compare(session.trace)
        assert found.answers.select(["side", "u"]).to_pylist() == [
            {"side": "left", "u": 3},
            {"side": "right", "u": 4},
            {"side": "both", "u": 1},
        ]
        lines = repr(found).splitlines()[1:]
        assert lines[0].startswith("  left failed in batch 2: ")
        assert "2 is bad" in lines[0]
        assert lines[1] == "  compared: batches 0 to 1"
        assert found.as_dict()["failures"] == [lines[0].strip()]
        assert "right failed in batch 2" in repr(session.trace.compare(session.original))


def test_a_run_that_failed_at_once():
    rows = hr.events("le | re | v\n1 | 9 | 2\n2 | 9 | 1")
    with rows.select(u=unlucky("v")).debug(batch_rows=1) as session:
        session.change_input(1, remove="v = 2")
        session.run()
        found = session.original.compare(session.trace)
        assert found.answers.num_rows == 0
        assert "no batch is compared: a run failed in the first one" in repr(found)
        assert found.differences().num_rows == 0
