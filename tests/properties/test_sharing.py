"""The law of sharing: whatever joins and leaves a run, after whatever rows, a query gives the answer it gives alone."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fixtures.sharing_server import sharing_server
from tests.strategies.plans import aggregates, meets, sources, spans

from headrace.events import cti_row
from headrace.testing.same import assert_same_history
from headrace.testing.strategies import SCHEMA, batch_sizes, physical_streams, tables
from headrace.time import INFINITY

EXAMPLES = max(3, settings().max_examples // 12)
NAMES = ("a", "b", "c")
DONE = ["look", "look", "look", "again", "catch up", *(f"{do} {name}" for do in ("start", "stop") for name in NAMES)]
ACTIONS = st.lists(st.sampled_from(DONE), max_size=4)


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_queries_that_join_and_leave(data: st.DataObject):
    events = data.draw(physical_streams(max_events=14, min_events=3))
    below = sources(events, (len(events),))
    common = data.draw(aggregates(below))
    others = st.one_of(aggregates(below), spans(below), meets(common, below), aggregates(common))
    plans = {"a": common, "b": data.draw(spans(common)), "c": data.draw(others)}
    rows = tables(events, SCHEMA)
    pieces, start = [], 0
    for size in data.draw(batch_sizes(len(events))):
        pieces.append(rows.slice(start, size))
        start += size
    with sharing_server(plans) as live:
        live.queries["a"].start()
        for piece in pieces:
            live.append(piece)
            for action in data.draw(ACTIONS):
                live.step(action)
        live.append(cti_row(INFINITY, SCHEMA))
        for query in live.queries.values():
            query.start()
        live.catch_up()
        live.runs.look()
        live.catch_up()
        for name, plan in plans.items():
            assert live.queries[name].error is None
            assert_same_history(live.answer(name), plan.cht())
