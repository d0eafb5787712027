"""A retraction of an event that is not there is diverted; it never counts an event away that was never counted in."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.errors import EventError

pytestmark = pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")  # rows are lost here on purpose

LATE_AND_CORRECTED = """
    kind    | le | re  | re_new | s | x
    cti     | 5  |     |        |   |
    insert  | 1  | 100 |        | A | 1
    insert  | 6  | 50  |        | A | 2
    retract | 1  | 100 | 40     | A | 1
    retract | 1  | 40  | 30     | A | 1
    retract | 6  | 50  | 20     | A | 2
    retract | 7  | 50  | 20     | A | 2
"""
SPLITS = [None, 1, 2, 3]


def _run(late: str, batch_rows: int | None) -> hr.Run:
    stream = hr.events(LATE_AND_CORRECTED, progress=hr.explicit(late=late), bad_rows="divert")
    counted = stream.group_by("s").window(hr.tumbling(10)).aggregate(n=hr.count())
    return hr.run({"raw": stream, "counted": counted}, batch_rows=batch_rows, buckets=2)


@pytest.mark.parametrize("batch_rows", SPLITS)
@pytest.mark.parametrize("late", ["divert", "drop"])
def test_corrections_of_a_late_event_that_was_refused_are_refused_too(late: str, batch_rows: int | None):
    run = _run(late, batch_rows)
    assert run.cht("raw").to_pylist() == [{"le": 6, "re": 20, "s": "A", "x": 2}]
    assert [(row["le"], row["n"]) for row in run.cht("counted").to_pylist()] == [(0, 1), (10, 1)]


@pytest.mark.parametrize("batch_rows", SPLITS)
def test_corrections_of_an_adjusted_event_find_it(batch_rows: int | None):
    run = _run("adjust", batch_rows)
    assert [(row["le"], row["re"], row["x"]) for row in run.cht("raw").to_pylist()] == [(5, 30, 1), (6, 20, 2)]


@pytest.mark.parametrize("batch_rows", SPLITS)
@pytest.mark.parametrize("late", ["divert", "drop", "adjust"])
def test_every_row_is_counted_once(late: str, batch_rows: int | None):
    run = _run(late, batch_rows)
    (counts,) = run.counts.values()
    assert counts["rows"] == counts["accepted"] + counts["diverted"] + counts["dropped"] == 7
    assert run.diverted().num_rows == counts["diverted"]


def test_a_chain_of_retractions_in_one_batch_is_followed():
    table = hr.events("""
        kind    | le | re | re_new | x
        insert  | 1  | ∞  |        | 1
        retract | 1  | ∞  | 10     | 1
        retract | 1  | 10 | 5      | 1
        retract | 2  | 9  | 5      | 1
    """, bad_rows="divert").cht()  # fmt: skip
    assert table.to_pylist() == [{"le": 1, "re": 5, "x": 1}]


def test_by_default_it_is_an_error_that_shows_the_row():
    with pytest.raises(EventError, match="not there") as caught:
        hr.events("kind | le | re | re_new | s \n retract | 1 | 4 | 2 | A").cht()
    assert '"re_new": 2' in str(caught.value)


def test_what_is_remembered_is_bounded_by_the_cti():
    rows = [
        row for t in range(100) for row in ({"kind": "insert", "le": t, "re": t + 5, "x": t}, {"kind": "cti", "le": t})
    ]
    run = hr.events(rows).run(batch_rows=2, finish=False)
    states = [part["operators"] for batch in run.statistics for part in batch]
    assert max(operator["rows"] for state in states for operator in state.values()) <= 7


def test_a_retraction_of_an_unknown_event_is_shown_with_its_dates():
    unknown = hr.events("kind | le | re | re_new | k \n retract | 2024-01-01 | 2024-01-05 | 2024-01-03 | a")
    with pytest.raises(EventError, match="not there") as raised:
        unknown.run()
    assert '"le": "2024-01-01T00:00:00", "re": "2024-01-05T00:00:00"' in str(raised.value.given)
