"""SLIDE under OVER: examples 14 and 15 of ESL, tumbles, panes, and what is refused (rule 7.5)."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import CheckpointError, SqlError
from headrace.history.duckdb import DuckDBHistory
from headrace.modules import Module
from headrace.operators.ordered import tumbling
from headrace.operators.registry import kernel_of
from headrace.plan.nodes import Fold, Over, walk
from headrace.sql.aggregates.adapters.steps import _Stepwise
from headrace.sql.aggregates.native.fold import NativeFolding
from headrace.testing.verify.differential import differential_reference

SUM = """
CREATE AGGREGATE mysum(next LONG): LONG ALGEBRAIC {
    TABLE state(total LONG);
    INITIALIZE: { INSERT INTO state VALUES (next); }
    ITERATE: { UPDATE state SET total = total + next; }
    TERMINATE: { INSERT INTO RETURN SELECT total FROM state; }
};
"""
#: The same without the word.
PLAIN = SUM.replace(" ALGEBRAIC", "").replace("mysum", "plain")
#: With a version that takes tuples out.
WINDOW = """
CREATE WINDOW AGGREGATE mysum(next LONG): LONG ALGEBRAIC {
    TABLE inwindow(next LONG);
    TABLE state(total LONG);
    INITIALIZE: { INSERT INTO state VALUES (next); INSERT INTO RETURN VALUES (next); }
    ITERATE: { UPDATE state SET total = total + next; INSERT INTO RETURN SELECT total FROM state; }
    EXPIRE: { UPDATE state SET total = total - oldest().next; }
};
"""


def bids(count: int = 130) -> hr.Stream:
    """Bids for two items; some are taken back, some are there twice."""
    draw = random.Random(1)
    rows: list[dict[str, Any]] = []
    for t in range(count):
        event = {
            "kind": "insert",
            "le": t // 2,
            "re": t // 2 + 3,
            "re_new": None,
            "item": draw.choice("AB"),
            "price": t % 9,
        }
        rows += [event] * draw.choice([1, 1, 1, 2])
        if draw.random() < 0.1:
            rows.append(event | {"kind": "retract", "re_new": event["le"]})
        if t % 20 == 19:
            rows.append({"kind": "cti", "le": t // 2 - 3, "re": None, "re_new": None, "item": None, "price": None})
    sizes = [25] * (len(rows) // 25) + ([len(rows) % 25] if len(rows) % 25 else [])
    return hr.events(rows, "item STRING, price LONG", batches=sizes)


def same(one: hr.Stream, other: hr.Stream) -> None:
    assert one.cht().num_rows > 3
    assert hr.same_history(one.cht(buckets=2), other.cht())


EXAMPLE_14 = "SELECT item, {f}(price) OVER (PARTITION BY item ROWS 49 PRECEDING SLIDE 10) AS s FROM bids"
EXAMPLE_15 = """
SELECT item, {f}(s) OVER (PARTITION BY item ROWS 4 PRECEDING) AS s
FROM (SELECT item, {f}(price) OVER (PARTITION BY item ROWS 9 PRECEDING SLIDE 10) AS s FROM bids)
"""


@pytest.mark.slow
@pytest.mark.parametrize("create", [SUM, SUM + WINDOW])
def test_examples_14_and_15(create: str):
    stream = bids().select("item", "price")
    made = hr.sql(create + EXAMPLE_14.format(f="mysum"), bids=stream)
    same(made, hr.sql(EXAMPLE_14.format(f="sum"), bids=stream))
    same(made, hr.sql(PLAIN + EXAMPLE_14.format(f="plain"), bids=stream))
    differential_reference(made.node)
    text = made.explain()
    assert "windows made of panes (box 4)" in text
    if create == SUM:
        assert "over 9 rows preceding, slide 10 tuples" in text
        assert "panes, a tumble for each (box 4), by a state of each slot" in text
        assert "over 4 rows preceding" in text
    else:  # one operator does both
        assert "native code; windows made of panes (box 4), each of 10 tuples, EXPIRE for each" in text
        assert "state: the results of 5 panes" in text


def test_the_rewriting_can_be_written_by_hand():
    rows = [
        {"kind": "insert", "le": t, "re": t + 1, "re_new": None, "item": "AB"[t % 2], "price": t} for t in range(200)
    ]
    stream = hr.events(rows, "item STRING, price LONG")
    same(
        hr.sql(SUM + EXAMPLE_14.format(f="mysum"), bids=stream), hr.sql(SUM + EXAMPLE_15.format(f="mysum"), bids=stream)
    )


def test_a_mean_is_made_of_parts():
    query = """SELECT item, CAST(mysum(price) OVER (PARTITION BY item ROWS 11 PRECEDING SLIDE 4) AS DOUBLE)
        / mysum(1) OVER (PARTITION BY item ROWS 11 PRECEDING SLIDE 4) AS mean FROM bids"""
    stream = bids(60)
    made = hr.sql(SUM + query, bids=stream)
    built_in = "SELECT item, avg(price) OVER (PARTITION BY item ROWS 11 PRECEDING SLIDE 4) AS mean FROM bids"
    same(made, hr.sql(built_in, bids=stream))
    assert "windows made of panes (box 4)" in made.explain()


#: A mean in its parts: a tuple is the parts of itself.
PARTS = """
CREATE AGGREGATE parts(total LONG, n LONG): (total LONG, n LONG) ALGEBRAIC {
    TABLE state(total LONG, n LONG);
    INITIALIZE: { INSERT INTO state VALUES (parts.total, parts.n); }
    ITERATE: { UPDATE state SET total = state.total + parts.total, n = state.n + parts.n; }
    TERMINATE: { INSERT INTO RETURN SELECT total, n FROM state; }
};
"""


@pytest.mark.slow
@pytest.mark.parametrize("frame", ["ROWS 11 PRECEDING SLIDE 4", "ROWS 5 PRECEDING SLIDE 4", "ROWS 2 PRECEDING SLIDE 5"])
def test_parts_may_be_columns_of_one_aggregate(frame: str):
    stream = bids(70)
    inner = f"SELECT item, parts(price, 1) OVER (PARTITION BY item {frame}) FROM bids"
    made = hr.sql(f"{PARTS}SELECT item, CAST(total AS DOUBLE) / n AS mean FROM ({inner})", bids=stream)
    differential_reference(made.node, buckets=2)
    same(made, hr.sql(f"SELECT item, avg(price) OVER (PARTITION BY item {frame}) AS mean FROM bids", bids=stream))
    assert hr.same_history(made.cht(), DuckDBHistory().cht(made.node))
    assert "by a state of each slot" in made.explain()
    assert ("windows made of panes (box 4)" in made.explain()) == (frame != "ROWS 2 PRECEDING SLIDE 5")


FRAMES = [
    "ROWS 9 PRECEDING SLIDE 28", "ROWS 4 PRECEDING SLIDE 5", "ROWS 5 PRECEDING SLIDE 4", "ROWS 3 PRECEDING SLIDE 3",
    "RANGE 7 PRECEDING SLIDE 3", "RANGE 3 PRECEDING SLIDE 9", "UNBOUNDED PRECEDING SLIDE 4", "SLIDE 6 ms",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("create", [SUM, SUM + WINDOW, WINDOW])
def test_aggregates_of_every_kind_agree(create: str, frame: str):
    stream = bids(70)
    query = f"SELECT item, {{f}}(price) OVER (PARTITION BY item {frame}) AS s FROM bids"
    made = hr.sql(create + query.format(f="mysum"), bids=stream)
    assert hr.same_history(made.cht(), hr.sql(query.format(f="sum"), bids=stream).cht())
    differential_reference(made.node, buckets=2)
    assert hr.same_history(made.cht(), DuckDBHistory().cht(made.node))


def test_tumbles_run_the_base_version_slot_by_slot():
    stream = bids()
    text = hr.sql(SUM + EXAMPLE_14.format(f="mysum").replace("49", "9").replace("SLIDE 10", "SLIDE 28"), bids=stream)
    assert "tumbles (box 3), by a state of each slot" in text.explain()


@pytest.mark.slow
def test_a_window_of_40_000_keeps_five_values():
    rows: list[dict[str, Any]] = []
    step, count = 5_000, 90_000
    for begin in range(0, count, step):
        rows += [
            {"kind": "insert", "le": t, "re": t + 1, "re_new": None, "price": t % 7} for t in range(begin, begin + step)
        ]
        rows.append({"kind": "cti", "le": begin + step, "re": None, "re_new": None, "price": None})
    stream = hr.events(rows, "price LONG", batches=[step + 1] * (count // step))
    run = hr.sql(SUM + "SELECT mysum(price) OVER (ROWS 39999 PRECEDING SLIDE 10000) AS s FROM bids", bids=stream).run(
        buckets=1, finish=False
    )
    kept = [
        sum(
            op["rows"]
            for part in batch
            for op in part["operators"].values()
            if op["operator"].startswith(("Over", "Fold"))
        )
        for batch in run.statistics
    ]
    assert max(kept) <= 12, kept
    found = [(row["le"], row["s"]) for row in run.cht().to_pylist()]
    assert found == [(t, sum(v % 7 for v in range(max(0, t - 39_999), t + 1))) for t in range(9_999, count, 10_000)]


def test_frames_beside_a_slide_see_all_tuples():
    rows = [{"kind": "insert", "le": t, "re": t + 1, "re_new": None, "v": t} for t in range(1, 13)]
    query = "SELECT sum(v) OVER (ROWS 3 PRECEDING SLIDE 4) AS a, count(*) OVER (UNBOUNDED PRECEDING) AS n FROM s"
    found = hr.sql(query, s=hr.events(rows, "v LONG")).cht().to_pylist()
    assert [(row["a"], row["n"]) for row in found] == [(10, 4), (26, 8), (42, 12)]


REFUSED = {
    "counts tuples": "SELECT sum(price) OVER (ROWS 9 PRECEDING SLIDE 1 s) FROM bids",
    "positive": "SELECT sum(price) OVER (RANGE 9 PRECEDING SLIDE 0) FROM bids",
    "at least one tuple": "SELECT sum(price) OVER (ROWS 9 PRECEDING SLIDE 0) FROM bids",
    "skips tuples": "SELECT sum(price) OVER (ROWS 9 PRECEDING SLIDE 2), "
    "sum(price) OVER (ROWS 8 PRECEDING SLIDE 3) FROM bids",
    "gives what it takes": SUM.replace("LONG ALGEBRAIC", "DOUBLE ALGEBRAIC") + "SELECT * FROM bids",
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_makes_no_sense_is_refused(reason: str):
    with pytest.raises(SqlError, match=reason):
        hr.sql(REFUSED[reason], bids=bids(10))


# ---- tumbles as native code

TUMBLED = """
CREATE AGGREGATE counts(next LONG): LONG {
    TABLE t(x LONG, n LONG, KEY (x)) LIMIT 5;
    TABLE last_one(x LONG) AS VALUES (-1);
    INITIALIZE: ITERATE: {
        INSERT INTO t SELECT next, coalesce(max(n), 0) + 1 FROM t WHERE x = next;
        UPDATE last_one SET x = next;
        INSERT INTO RETURN SELECT x FROM last_one WHERE x = 4;
    }
    TERMINATE: { INSERT INTO RETURN SELECT count(*) * 100 + max(n) FROM t HAVING max(n) > 1; }
};
CREATE AGGREGATE pairs(next LONG): (x LONG, n LONG) {
    TABLE t(x LONG, n LONG, KEY (x));
    INITIALIZE: ITERATE: { INSERT INTO t SELECT next, coalesce(max(n), 0) + 1 FROM t WHERE x = next; }
    TERMINATE: { INSERT INTO RETURN SELECT x, n FROM t WHERE n > 1; }
};
"""


@pytest.mark.parametrize(
    "asked",
    [
        "mysum(price) {over} AS s",
        "counts(price) {over} AS s",
        "counts(price) {over} + mysum(price) {over} AS s, plain(price + 1) {over} AS p",
        "pairs(price) {over}",
    ],
)
@pytest.mark.parametrize("frame", ["ROWS 3 PRECEDING SLIDE 4", "ROWS 6 PRECEDING SLIDE 11"])
@pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")
@pytest.mark.slow
def test_tumbles_are_native_and_give_what_python_gives(asked: str, frame: str, monkeypatch: pytest.MonkeyPatch) -> None:
    over = asked.format(over=f"OVER (PARTITION BY item {frame})")
    text = f"SET on_error = 'skip'; {SUM}{PLAIN}{TUMBLED} SELECT item, price, {over} FROM bids"
    made = hr.sql(text, bids=bids())
    node = next(node for node in walk(made.node) if isinstance(node, (Over, Fold)))
    assert isinstance(kernel_of(node).folding, (NativeFolding, tumbling.NativeValues))
    sides = [side for node in walk(made.node) if isinstance(node, (Over, Fold)) and (side := node.side())]
    native = [made.cht(), *(hr.Stream(side).cht() for side in sides)]
    assert native[0].num_rows > 3
    monkeypatch.setattr(Module, "by_slots", lambda *_: None)
    monkeypatch.setattr(_Stepwise, "by_slots", lambda *_: None)
    assert not isinstance(kernel_of(node).folding, (NativeFolding, tumbling.NativeValues))
    in_python = [made.cht(), *(hr.Stream(side).cht() for side in sides)]
    for one, other in zip(native, in_python, strict=True):
        assert not hr.history_diff(one, other)


def test_a_checkpoint_of_panes_in_two_operators_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Panes and windows of a native aggregate with EXPIRE ran in two operators once; others still do, and continue."""
    (tmp_path / "in").mkdir()

    def run(batch: int, aggregate: str) -> list[int]:
        rows = "".join(f"{10 * batch + i},{10 * batch + i}\n" for i in range(7))
        (tmp_path / "in" / f"{batch}.csv").write_text("t,v\n" + rows)
        read = hr.read_csv(str(tmp_path / "in"), "t LONG, v LONG", lifetime=hr.point("t"), progress=hr.advance(2))
        query = hr.sql(f"{aggregate} SELECT mysum(v) OVER (ROWS 7 PRECEDING SLIDE 2) AS s FROM b", b=read)
        answers = hr.memory()
        started = query.start(answers, host="local", checkpoint=str(tmp_path / f"state{len(aggregate)}"))
        started.process_all_available()
        started.stop()
        return [row["s"] for row in answers.cht().to_pylist()]

    with monkeypatch.context() as earlier:
        earlier.setattr(Over, "pane_code", None)
        for aggregate in (SUM, SUM + WINDOW):
            assert run(1, aggregate) == [21, 46, 75]
    assert run(2, SUM)[-4:] == [111, 133, 155, 177]
    with pytest.raises(CheckpointError, match="the checkpoint belongs to another query"):
        run(2, SUM + WINDOW)
