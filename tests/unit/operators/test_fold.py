"""Folds: the kernel, its twin and batch SQL say the same, whatever the batches, buckets and corrections."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.ordered import long_streams

import headrace as hr
from headrace import col
from headrace.api.stream import Stream
from headrace.plan.nodes import Fold
from headrace.plan.ordered import Frame, Time, Tuples
from headrace.testing.same import assert_same_history
from headrace.testing.verify.differential import differential_reference


class Total(hr.IncrementalAggregate):
    """A sum that goes up and down with its window."""

    input = "value LONG"
    output = "LONG"

    def initial(self) -> int:
        return 0

    def add(self, state: int, items: list[int | None]) -> int:
        return state + sum((item or 0) % 97 for item in items)

    def remove(self, state: int, items: list[int | None]) -> int:
        return state - sum((item or 0) % 97 for item in items)

    def compute(self, state: int) -> int:
        return state


class Pairs(hr.Operator):
    """As many rows as the window has tuples, but for windows of three."""

    input = "value LONG"
    output = "place LONG, value LONG"

    def compute(self, items: list[int | None]) -> list[tuple[int, int | None]]:
        return [] if len(items) == 3 else list(enumerate(items))


COUNTED = """
CREATE WINDOW AGGREGATE counted(next LONG): LONG {
    TABLE state(n LONG, left LONG);
    TABLE inwindow(wnext LONG);
    INITIALIZE: { INSERT INTO state VALUES (1, 0); INSERT INTO RETURN SELECT n FROM state; }
    ITERATE: { UPDATE state SET n = n + 1; INSERT INTO RETURN SELECT 10 * n + left FROM state WHERE n <> 2; }
    EXPIRE: {
        UPDATE state SET n = n - 1, left = left + coalesce(oldest(), 7) % 97;
        INSERT INTO RETURN SELECT -n FROM state;
    }
}
"""
GREATEST = """
CREATE WINDOW AGGREGATE greatest_so_far(next LONG): LONG {
    TABLE inwindow(wnext LONG);
    INITIALIZE: { INSERT INTO RETURN VALUES (next); }
    ITERATE: { DELETE FROM inwindow WHERE wnext < next; INSERT INTO RETURN SELECT max(wnext) FROM inwindow; }
    EXPIRE: { INSERT INTO RETURN SELECT max(wnext) FROM inwindow; }
}
"""
GIVEN = """
CREATE AGGREGATE given(next LONG): (place LONG, value LONG) {
    TABLE seen(n LONG);
    INITIALIZE: { INSERT INTO seen VALUES (1); }
    ITERATE: { UPDATE seen SET n = n + 1; INSERT INTO RETURN SELECT n, next FROM seen WHERE n % 3 <> 0; }
    TERMINATE: { INSERT INTO RETURN SELECT 0, n FROM seen; }
}
"""
MODULES = {
    "total": Total(),
    "pairs": Pairs(),
    "counted": hr.sql_aggregate(COUNTED),
    "greatest": hr.sql_aggregate(GREATEST),
    "given": hr.sql_aggregate(GIVEN),
}


def folded(stream: Stream, module: Any, frame: Frame, keys: list[str], *, active: bool = False) -> Stream:
    grouped = stream.group_by(*keys)
    mapping = ((module.fields.names[0], col("i")),)
    names = ("answer",) if module.kind == "aggregate" else module.gives.names
    return Stream(Fold(grouped.stream.node, grouped.keys, frame, module, mapping, names, active=active))


def same_history(stream: Stream) -> None:
    assert_same_history(stream.cht(), stream.history(engine="duckdb").cht())


FRAMES = st.one_of(
    st.builds(lambda n: Frame(n, None), st.integers(0, 4)),
    st.builds(lambda d: Frame(None, d), st.integers(0, 8)),
    st.just(Frame(None, None)),
    st.builds(lambda n, s: Frame(n, None, Tuples(s)), st.integers(0, 4), st.integers(1, 4)),
    st.builds(lambda d, s: Frame(None, d, Time(s)), st.integers(0, 8), st.integers(1, 6)),
    st.builds(lambda s: Frame(None, None, s), st.sampled_from([Tuples(3), Time(4)])),
)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
@settings(max_examples=max(5, settings().max_examples * 2 // 5))
@given(long_streams(), FRAMES, st.sampled_from([[], ["k"]]), st.integers(1, 3))
def test_folds_are_those_of_their_twin(name: str, stream: Stream, frame: Frame, keys: list[str], buckets: int) -> None:
    differential_reference(folded(stream, MODULES[name], frame, keys).node, buckets=buckets)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
@settings(max_examples=max(5, settings().max_examples * 2 // 5))
@given(long_streams(), st.integers(0, 8), st.sampled_from([[], ["k"]]), st.integers(1, 3))
def test_what_leaves_actively_is_that_of_its_twin(
    name: str, stream: Stream, length: int, keys: list[str], buckets: int
) -> None:
    node = folded(stream, MODULES[name], Frame(None, length), keys, active=True).node
    differential_reference(node, buckets=buckets)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
@settings(max_examples=max(5, settings().max_examples // 5))
@given(long_streams(max_events=10), FRAMES, st.booleans())
def test_folds_are_those_of_batch_sql(name: str, stream: Stream, frame: Frame, active: bool) -> None:
    active = active and frame.range is not None and frame.slide is None
    same_history(folded(stream, MODULES[name], frame, ["k"], active=active))
