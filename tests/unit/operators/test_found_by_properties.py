"""The smallest streams that once gave a wrong answer, each found by a property test or on the way to one."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace import col
from headrace.changes import Changes
from headrace.columnar import factorize, hash_rows
from headrace.errors import EventError
from headrace.io.origins import Events
from headrace.operators.aggregate.exact import CodedRows, float_sums, total_float
from headrace.operators.final import FinalKernel
from headrace.plan.nodes import Final, Source
from headrace.progress import Progress
from headrace.schema import Schema
from headrace.time import INFINITY

ROWS = Schema.of("t LONG, k STRING, v LONG")


def points(*rows: tuple) -> hr.Stream:
    table = pa.table([[row[i] for row in rows] for i in range(3)], schema=ROWS.arrow)
    return hr.Stream(Source(Events(table), ROWS, hr.point("t"), hr.advance(0)))


def test_nulls_in_a_column_of_several_chunks():
    table = pa.table({"k": pa.chunked_array([["a", None], [None, "b"]]), "n": pa.chunked_array([[1, 2], [2, None]])})
    codes, first = factorize(table)
    assert codes.tolist() == [0, 1, 1, 2]
    assert first.tolist() == [0, 1, 3]
    assert len(set(hash_rows(table).tolist())) == 3


def test_first_and_last_do_not_depend_on_ends_that_may_still_move():
    """The end that breaks the tie moves after the window has closed; nothing may change, in no order of arrival."""
    stream = hr.events("""
        kind    | le | re | re_new | v
        insert  | 1  | 20 |        | 1
        insert  | 1  | 30 |        | 2
        cti     | 15 |    |        |
        retract | 1  | 30 | 18     | 2
    """, batches=[3, 1])  # fmt: skip
    query = stream.window(hr.tumbling(10)).aggregate(first=hr.first("v"), last=hr.last("v"))
    at_once = hr.events("le | re | v \n 1 | 20 | 1 \n 1 | 18 | 2")
    same = at_once.window(hr.tumbling(10)).aggregate(first=hr.first("v"), last=hr.last("v"))
    assert not hr.history_diff(query.cht(), same.cht())


@pytest.mark.parametrize("batches", [[3], [1, 1, 1]])
def test_an_event_that_was_taken_back_does_not_stretch_one_that_never_ends(batches: list[int]):
    stream = hr.events("""
        kind    | le | re   | re_new | v
        insert  | 1  | ∞    |        | 1
        insert  | 2  | 1000 |        | 2
        retract | 2  | 1000 | 2      | 2
    """, batches=batches)  # fmt: skip
    history = stream.window(hr.tumbling(10)).aggregate(n=hr.count()).cht()
    assert history.to_pylist() == [{"le": 0, "re": 10, "n": 1}]


def test_final_forgets_what_cancels_and_does_not_wait_for_it():
    source = Source("s", Schema.of("v LONG"), hr.interval("v", "v"), hr.explicit())
    kernel = FinalKernel(Final(Final(source).with_inputs(source)))
    kernel.settled = False

    def step(le: int, re: int, weight: int, cti: int) -> int:
        one = [np.array([n]) for n in (le, re, weight)]
        _, progress = kernel.step([Changes(*one, pa.table({"v": [7]}))], [Progress(cti, cti)])
        return progress.cti

    assert step(1, INFINITY, 1, 2) == 1
    assert step(1, INFINITY, -1, 3) == 3
    assert kernel.traces["waiting"].rows == 0


def test_the_variance_of_large_whole_numbers_is_exact():
    stream = points((1, "a", 2**60 - 1), (2, "a", 2**60 - 1), (3, "b", 2**60 - 1), (4, "b", 2**60 + 1))
    history = stream.group_by("k").window(hr.tumbling(10)).aggregate(v=hr.var("v")).cht()
    assert history.column("v").to_pylist() == [0.0, 2.0]


def test_the_variance_of_floats_whose_squares_leave_the_range():
    table = pa.table({"t": [1, 2, 3, 4], "x": [1e200, 1e200, 1e-200, 3e-200]})
    schema = Schema.of(table.schema)
    stream = hr.Stream(Source(Events(table), schema, hr.point("t"), hr.advance(0)))
    history = stream.window(hr.tumbling(2, origin=1)).aggregate(s=hr.stddev("x"), v=hr.var("x")).cht()
    assert history.column("v").to_pylist() == [0.0, 0.0]  # the second underflows
    assert history.column("s").to_pylist() == [0.0, 0.0]


def test_sums_are_rounded_once_to_the_nearest():
    """The first part alone is a tie; what follows, however small, decides it."""
    values, times = np.array([3681501459497029.0, 2.8438029396359186e-261]), np.array([-3, 1])
    limbs = float_sums(values, CodedRows(np.array([0, 0]), times, 1))
    assert total_float(limbs, 1)[0] == -1.1044504378491086e16


def test_zeros_of_both_signs_cancel_in_a_bag():
    stream = hr.events([
        {"kind": "insert", "le": 1, "re": 5, "x": -0.0},
        {"kind": "insert", "le": 1, "re": 5, "x": 3.0},
        {"kind": "retract", "le": 1, "re": 5, "re_new": 1, "x": 0.0},
    ], "x DOUBLE")  # fmt: skip
    history = stream.window(hr.tumbling(10)).aggregate(low=hr.min("x")).cht()
    assert history.column("low").to_pylist() == [3.0]


def test_two_bags_of_a_stream_that_takes_nothing_back():
    stream = points((1, "b", 1), (2, "a", None), (3, "c", 3))
    history = stream.window(hr.tumbling(10)).aggregate(first=hr.first("k"), last=hr.last("v")).cht()
    assert history.to_pylist() == [{"le": 0, "re": 10, "first": "b", "last": 3}]


def test_inputs_of_a_union_may_need_different_columns():
    some, more = points((1, "a", 1), (2, "b", -1)), points((3, "a", 5))
    both = some.where(col("v") > 0).union(more)
    assert both.window(hr.tumbling(10)).aggregate(n=hr.count()).cht().column("n").to_pylist() == [2]
    grouped = both.group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count())
    run = hr.run({"grouped": grouped, "other": some.window(hr.tumbling(2)).aggregate(m=hr.max("v"))})
    assert run.cht("grouped").to_pylist() == [{"le": 0, "re": 10, "k": "a", "n": 2}]
    assert run.cht("other").column("m").to_pylist() == [1, -1]


def test_under_advance_a_cti_row_is_a_promise_too():
    rows = "kind | le | v \n insert | 5 | 1 \n cti | ∞ | \n insert | 6 | 2"
    stream = hr.events(rows, progress=hr.advance(3, late="drop"))
    with pytest.warns(hr.RowsNotUsed, match="1 late"):
        assert stream.cht().column("v").to_pylist() == [1]


def test_nothing_is_seen_of_not_a_number_in_extremes():
    table = pa.table({"t": [1, 2], "x": [math.nan, 1.0]})
    stream = hr.Stream(Source(Events(table), Schema.of(table.schema), hr.point("t"), hr.advance(0)))
    (row,) = stream.window(hr.tumbling(10)).aggregate(low=hr.min("x"), high=hr.max("x")).cht().to_pylist()
    assert row["low"] == 1.0
    assert math.isnan(row["high"])


def test_a_filter_in_the_reader_does_not_move_the_end_of_windows(tmp_path: Path):
    (tmp_path / "rows.csv").write_text(f"t,u,v\n1,{INFINITY},1\n50,51,-1\n")
    stream = hr.read_csv(str(tmp_path / "rows.csv"), "t LONG, u LONG, v LONG", lifetime=hr.interval("t", "u"))
    history = stream.where(col("v") > 0).window(hr.tumbling(10)).aggregate(n=hr.count()).cht()
    assert history.column("le").to_pylist() == [0, 10, 20, 30, 40]


def test_more_windows_than_can_be_counted_are_refused():
    rows = [{"le": 1, "re": 2**60 - 1, "v": n} for n in range(20)]
    with pytest.raises(EventError, match="windows"):
        hr.events(rows).window(hr.tumbling(1)).aggregate(n=hr.count(), v=hr.first("v")).cht()


def test_an_event_that_ends_late_is_counted_by_its_end():
    """It is not known while it has no end, and must not be taken for one that was forgotten."""

    class Spans(hr.Aggregate):
        """What it sees."""

        time_sensitive = True
        input = "x LONG"
        output = "STRING"

        def compute(self, events: list, _: object) -> str:
            return f"{[tuple(event) for event in events]}"

    stream = hr.events(
        """
        kind    | le | re | re_new | x
        insert  | 0  | ∞  |        | 7
        cti     | 1  |    |        |
        retract | 0  | ∞  | 5      | 7
        """,
        batches=[1, 1, 1],
    )
    counted = stream.window(hr.count_by_end(1), clipping="right").aggregate(t=Spans().of("x"))
    assert counted.cht().to_pylist() == [{"le": 5, "re": 6, "t": "[(0, 5, 7)]"}]
