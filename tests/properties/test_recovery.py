"""The recovery law, in process: stopped after any batch and continued from what was saved, a run gives the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.ordered import long_streams
from tests.strategies.paced import paced_streams
from tests.strategies.plans import plans

import headrace as hr
from headrace.api.inputs import events
from headrace.api.stream import Stream
from headrace.api.windows import session, tumbling
from headrace.expr import col
from headrace.host.local.run import Runner, batches_of
from headrace.modules import IncrementalOperator
from headrace.operators.per_window import choice
from headrace.optimizer import optimize
from headrace.plan.nodes import Output
from headrace.stages.cut import Line, cut
from headrace.stages.stage import segment_names
from headrace.testing.strategies import buckets


def restored(runner: Runner) -> Runner:
    """A fresh runner that knows nothing but what the old one wrote down."""
    saved = runner.save()
    for stage in saved.stages:
        for state, segments in stage:
            assert set(segment_names(state["operators"].values())) == set(segments)
    return Runner.restored(runner.line, runner.buckets, None, saved)


def run(line: Line, n: int, cuts: set[int]) -> list:
    runner = Runner(line, n, None)
    feeds = {source.fingerprint: list(batches_of(source)) for source in line.sources}
    for number in range(max(map(len, feeds.values()))):
        if number in cuts:
            runner = restored(runner)
        runner.round({f: blocks[number] for f, blocks in feeds.items() if number < len(blocks)})
    if -1 in cuts:
        runner = restored(runner)
    runner.end()
    return outputs(runner)


def outputs(runner: Runner) -> list:
    batches = runner.done.results["out"].batches
    return [(sorted(map(repr, changes.to_table().to_pylist())), progress) for changes, progress in batches]


@settings(max_examples=max(5, settings().max_examples // 3))
@given(plans(max_events=8), buckets(), st.data())
def test_a_restored_run_continues_as_if_nothing_had_happened(stream: Stream, n: int, data: st.DataObject):
    line = cut(optimize([Output(stream.node, "out")]))
    whole = run(line, n, set())
    for cut_at in range(-1, len(whole) - 1):
        assert run(line, n, {cut_at}) == whole
    assert run(line, n, data.draw(st.sets(st.integers(-1, len(whole) - 2)))) == whole


def outer(pair: tuple[Stream, ...]) -> dict[str, Stream]:
    left, right = pair
    return {
        "left_join": left.left_join(right, "k"),
        "anti_join": left.anti_join(right, "k", where=col("i") >= col("i_right")),
        "clip": left.clip(right, "k"),
    }


SESSIONS = st.builds(session, st.integers(1, 6))


def in_sessions(stream: Stream, window: Any, *, final: bool) -> Line:
    """Sums that add up, of sessions."""
    out = stream.group_by("k").window(window).aggregate(n=hr.count(), s=hr.sum("i"), a=hr.avg("x"))
    return cut(optimize([Output((out.final() if final else out).node, "out")]))


@settings(max_examples=max(5, settings().max_examples // 3))
@given(long_streams(max_events=14), SESSIONS, st.booleans(), buckets(), st.sets(st.integers(-1, 6)))
def test_restored_sessions_continue(stream: Stream, window: Any, final: bool, n: int, cuts: set[int]):
    line = in_sessions(stream, window, final=final)
    assert run(line, n, cuts) == run(line, n, set())


@settings(max_examples=max(5, settings().max_examples // 3))
@given(long_streams(max_events=14), SESSIONS, st.booleans(), buckets(), st.integers(0, 6))
def test_sessions_that_an_earlier_headrace_saved_continue(stream: Stream, window: Any, final: bool, n: int, at: int):
    """It kept their events, as the general kernel does."""
    line = in_sessions(stream, window, final=final)
    with pytest.MonkeyPatch.context() as earlier:
        earlier.setattr(choice, "keeps_sessions", lambda _: False)
        runner = Runner(line, n, None)
        feeds = {source.fingerprint: list(batches_of(source)) for source in line.sources}
        length = max(map(len, feeds.values()))
        for number in range(length):
            if number == at:
                earlier.undo()
                runner = restored(runner)
            runner.round({f: blocks[number] for f, blocks in feeds.items() if number < len(blocks)})
        runner.end()
    assert outputs(runner) == run(line, n, set())


@settings(max_examples=max(5, settings().max_examples // 2))
@given(paced_streams(), st.sampled_from(["left_join", "anti_join", "clip"]), buckets(), st.data())
def test_a_restored_join_still_knows_what_is_settled(pair: tuple[Stream, ...], name: str, n: int, data: st.DataObject):
    line = cut(optimize([Output(outer(pair)[name].node, "out")]))
    whole = run(line, n, set())
    assert run(line, n, set(range(-1, len(whole) - 1))) == whole
    assert run(line, n, data.draw(st.sets(st.integers(-1, len(whole) - 2)))) == whole


class Keeps(IncrementalOperator):
    """Its state is the events it has been given."""

    input = "x DOUBLE, n LONG"
    output = "x DOUBLE, n LONG"
    time_sensitive = True

    def initial(self) -> list[Any]:
        return []

    def add(self, state: list[Any], items: list[Any]) -> None:
        state.extend(items)

    def remove(self, state: list[Any], items: list[Any]) -> None:
        for item in items:
            state.remove(item)

    def compute(self, state: list[Any], window: Any) -> list[Any]:
        return [self.event(max(e.le, window.le), e.re, e.x, e.n) for e in sorted(state)]


def test_a_state_that_keeps_its_events_survives_a_restart():
    table = """
        kind    | le | re | re_new | x   | n
        insert  | 1  | 4  |        | 1.0 | 1
        insert  | 3  | 9  |        | 4.0 | 2
        insert  | 12 | 13 |        | 5.0 | 3
        retract | 3  | 9  | 7      | 4.0 | 2
        insert  | 4  | 6  |        | 2.0 | 4
    """
    stream = events(table, batches=[1] * 5).window(tumbling(10)).operate(Keeps())
    line = cut(optimize([Output(stream.node, "out")]))
    assert run(line, 1, set(range(-1, 5))) == run(line, 1, set())
