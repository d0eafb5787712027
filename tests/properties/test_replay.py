"""The law of traces of what ran: batches that are run again give what they published, from any of them on."""

from __future__ import annotations

import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.plans import plans

import headrace as hr
from headrace.api.stream import Stream
from headrace.changes import Changes
from headrace.testing.strategies import buckets


def rows(changes: Changes) -> list[str]:
    return sorted(map(repr, changes.consolidate().to_table().to_pylist()))


@settings(max_examples=max(5, settings().max_examples // 8))
@given(plans(max_events=8), buckets(), st.data())
def test_traced_batches_give_what_they_published(stream: Stream, n: int, data: st.DataObject):
    with tempfile.TemporaryDirectory() as folder:
        sink = hr.memory()
        query = stream.start(sink, host="local", checkpoint=folder, buckets=n, files_per_batch=1, record="1 h")
        try:
            query.finish()
        finally:
            query.stop()
        published = {number: rows(changes) for number, (changes, _) in zip(sink.numbers, sink.batches, strict=True)}
        first = data.draw(st.integers(0, max(published)))
        trace = hr.trace_checkpoint(folder, stream, batches=(first, max(published)))
        output = trace.record.output
        assert {number for number, _ in trace.record.numbered()} == set(range(first, max(published) + 1))
        for number, batch in trace.record.numbered():
            found = Changes.concat([Changes.empty(output.node.schema), *batch.changes.get(output.key, [])])
            assert rows(found) == published[number]
