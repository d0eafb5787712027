"""The latest batches of a running query."""

from __future__ import annotations

from pathlib import Path

import headrace as hr
from headrace import col
from headrace.host.driving.past import PHASES, Flows, PastBatch, PastBatches, new_rows


def batch(number: int, ended: float, rows: int = 1) -> PastBatch:
    flows = Flows({"source": rows, "window": 1}, {"q": (2, 1), "other": (5, 0)})
    phases = dict.fromkeys(PHASES, 0.5)
    return PastBatch(number, ended, phases, {"s": {"rows": rows}}, {"source": number}, flows, {"window": (number, 8)})


def test_batches_of_one_second_are_one():
    past = PastBatches()
    for number, ended in enumerate((10.1, 10.2, 10.9, 12.0)):
        past.add(batch(number, ended, rows=number))
    assert [one.number for one in past.batches] == [0, 1, 2, 3]
    first, last = past.seconds
    assert (first.batches, first.number, first.cti, first.seconds) == (3, 2, 2, 7.5)
    assert (first.rows, first.changes, first.removals) == ({"s": {"rows": 3}}, 21, 3)
    assert first.flows.rows == {"source": 3, "window": 3}
    assert first.state_size == (2, 8)
    assert last == past.batches[-1]


def test_the_oldest_are_forgotten():
    past, later = PastBatches(), PastBatches()
    for number in range(1_000):
        past.add(batch(number, number / 2))
    assert [one.number for one in past.batches] == list(range(400, 1_000))
    assert len(past.seconds) == 500
    later.add(batch(1_000, 600))
    past.extend(later)
    assert [past.batches[-1].number, len(past.batches), len(past.seconds)] == [1_000, 600, 501]


def test_the_part_of_one_query():
    own = batch(3, 10.0).own(["s"], ["window"], ["q"])
    assert (own.changes, own.removals, own.flows.rows, own.ctis) == (2, 1, {"window": 1}, {})
    assert batch(3, 10.0).own([], [], []).rows == {}


def test_new_rows_are_differences():
    before = {"a": {"rows": 5, "late": 1}, "b": {"rows": 2}}
    assert new_rows(before, {"a": {"rows": 7, "late": 1}, "b": {"rows": 2}, "c": {"rows": 1, "late": 0}}) == {
        "a": {"rows": 2}, "c": {"rows": 1}
    }  # fmt: skip


def test_rows_leave_operators(tmp_path: Path):
    """Of the intake, of stages, and of a sink whose rows tasks write."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("k,t,v\na,1,5\nb,2,0\na,3,7\nb,14,1\n")
    stream = hr.read_csv(
        str(tmp_path / "in"), schema="k STRING, t LONG, v LONG", lifetime=hr.point("t"), progress=hr.advance(delay=100)
    )
    counts = stream.where(col("v") > 0).group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count())
    query = counts.start(hr.files(str(tmp_path / "out")), host="local", checkpoint=str(tmp_path / "c"))
    query.process_all_available()
    query.stop()
    (found,) = [one for one in query.past.batches if one.fate("rows")]
    rows = {type(node).__name__: found.flows.rows.get(node.fingerprint) for node in query.line.nodes}
    assert found.rows == {next(iter(found.rows)): {"rows": 4, "accepted": 4}}
    assert found.flows.rows[query.line.outputs[0].fingerprint] == found.changes == 1, rows
    assert found.removals == 0
    assert found.state_size[0] > 0
