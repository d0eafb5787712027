"""The local host equals the slow twins, batch by batch, for any plan, stream, split, bucket count and set of rules."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.plans import aggregates, plans, sources, spans

from headrace.api.stream import Stream
from headrace.optimizer import RULES, SHARED_RULES, Rule
from headrace.optimizer.combine_before_shuffle import combine_before_shuffle
from headrace.optimizer.final_by_answer import final_by_answer
from headrace.testing.strategies import batch_sizes, buckets, physical_streams
from headrace.testing.verify.differential import differential_reference

rule_sets = st.sampled_from([RULES, SHARED_RULES, (combine_before_shuffle, final_by_answer)])


@given(data=st.data())
def test_differential_aggregate(data: st.DataObject):
    events = data.draw(physical_streams(max_events=14))
    stream = data.draw(aggregates(sources(events, data.draw(batch_sizes(len(events))))))
    differential_reference(stream.node, buckets=data.draw(buckets()))


@settings(max_examples=max(5, settings().max_examples // 2))
@given(data=st.data())
def test_differential_span(data: st.DataObject):
    events = data.draw(physical_streams())
    stream = data.draw(spans(sources(events, data.draw(batch_sizes(len(events))))))
    stream = stream.final() if data.draw(st.booleans()) else stream
    differential_reference(stream.node, buckets=data.draw(buckets()))


@given(plans(), buckets(), rule_sets)
def test_differential_plan(stream: Stream, n: int, rules: tuple[Rule, ...]):
    differential_reference(stream.node, buckets=n, rules=rules)
