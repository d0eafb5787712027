"""The law of the engine (rule 1.5) and consistency (rule 3.5): what does not show in an answer, and what final is."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.plans import aggregates, plans, sources, spans

import headrace as hr
from headrace.changes import Changes
from headrace.events import history as history_of
from headrace.host.local.run import run_local
from headrace.operators.reference import bag, rows_of
from headrace.plan.nodes import Output
from headrace.testing import check_output
from headrace.testing.strategies import batch_sizes, buckets, physical_streams, shuffled

HALF = settings(max_examples=max(5, settings().max_examples // 2))


def history(stream: hr.Stream, n: int = 1):
    return bag(rows_of(run_local([Output(stream.node, "out")], buckets=n).results["out"].cht()))


@HALF
@given(st.data())
def test_arrival_order_batches_and_buckets_do_not_show(data: st.DataObject):
    events = data.draw(physical_streams())
    again = data.draw(shuffled(events))
    query = data.draw(st.sampled_from(QUERIES))
    left = query(sources(events, ()))
    right = query(sources(again, data.draw(batch_sizes(len(again)))))
    assert history(left) == history(right, data.draw(buckets()))


QUERIES = [
    lambda s: s.group_by("k").window(hr.hopping(7, every=3)).aggregate(i=hr.sum("i"), x=hr.avg("x"), l=hr.last("i")),
    lambda s: s.window(hr.tumbling(5)).aggregate(n=hr.count(), first=hr.first("x"), s=hr.stddev("x"), m=hr.max("k")),
    lambda s: s.extend(-2).union(s.shift(3)).where(hr.col("i") > 0),
    lambda s: s.group_by("k").window(hr.tumbling(2)).aggregate(n=hr.count())
               .window(hr.tumbling(6)).aggregate(m=hr.max("n")),
    lambda s: s.set_duration(4).final().group_by("k").window(hr.hopping(3, every=5)).aggregate(v=hr.var("i")),
]  # fmt: skip


@HALF
@given(plans(max_events=8), buckets())
def test_final_gives_the_same_history_and_takes_nothing_back(stream: hr.Stream, n: int):
    done = run_local([Output(stream.node, "early"), Output(stream.final().node, "final")], buckets=n)
    early, final = done.results["early"], done.results["final"]
    assert bag(rows_of(early.cht())) == bag(rows_of(final.cht()))
    check_output(final.events(), retractions=False)
    check_output(early.events())


@HALF
@given(plans(max_events=8), buckets())
def test_what_a_function_gets_adds_up_to_the_history(stream: hr.Stream, n: int):
    """Batch by batch: a row is deleted only if it is there, and the numbers of batches grow."""
    calls: list[tuple[int, pa.Table]] = []
    sink = hr.foreach_batch(lambda rows, batch: calls.append((batch, rows)))
    hr.run({"out": stream}, sinks={"out": sink}, buckets=n)
    numbers = [number for number, _ in calls]
    assert numbers == sorted(set(numbers))
    so_far = Changes.empty(stream.schema)
    for _, rows in calls:
        weight = np.where(np.asarray(rows["_change_type"]) == "insert", 1, -1)
        changes = Changes(rows["le"].to_numpy(), rows["re"].to_numpy(), weight, rows.select(list(stream.schema.names)))
        so_far = Changes.concat([so_far, changes])
        history_of(so_far)  # an error if a row is deleted that is not there
    assert bag(rows_of(history_of(so_far))) == history(stream)


@HALF
@given(st.data())
def test_several_outputs_share_one_run(data: st.DataObject):
    events = data.draw(physical_streams(max_events=8))
    source = sources(events, data.draw(batch_sizes(len(events))))
    streams = [data.draw(aggregates(source)), data.draw(spans(source)), source]
    n = data.draw(buckets())
    together = run_local([Output(s.node, str(i)) for i, s in enumerate(streams)], buckets=n)
    for i, stream in enumerate(streams):
        assert bag(rows_of(together.results[str(i)].cht())) == history(stream)


@HALF
@given(st.data())
def test_a_stream_united_with_itself_is_there_twice(data: st.DataObject):
    events = data.draw(physical_streams(max_events=8))
    stream = data.draw(spans(sources(events, data.draw(batch_sizes(len(events))))))
    once, twice = history(stream), history(stream.union(stream), data.draw(buckets()))
    assert twice == once + once


@HALF
@given(st.data())
def test_point_streams_have_points(data: st.DataObject):
    events = data.draw(physical_streams(max_events=8))
    stream = sources(events, data.draw(batch_sizes(len(events)))).point_at_start()
    done = run_local([Output(stream.node, "out")], buckets=data.draw(buckets()))
    check_output(done.results["out"].events(), "point")
