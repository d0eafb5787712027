"""What modules are given, and what they give back: items that can be kept and sent, outputs with and without times."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import Any

import pytest

import headrace as hr
from headrace.errors import ModuleFailed
from headrace.modules.items import event_type, items_of, row_type
from headrace.testing.verify.differential import differential_reference

STREAM = """
    kind    | le | re | re_new | k | x   | n
    insert  | 1  | 4  |        | a | 1.0 | 1
    insert  | 3  | 9  |        | b | 4.0 | 2
    insert  | 12 | 13 |        | a | 5.0 | 3
    retract | 3  | 9  | 3      | b | 4.0 | 2
    insert  | 4  | 6  |        | a | 2.0 | 4
"""


def rows(table: Any) -> list[tuple]:
    return [tuple(row.values()) for row in table.to_pylist()]


# --- items ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda item: pickle.loads(pickle.dumps(item))])  # noqa: S301
def test_items_are_values(copied: Any):
    event, row = event_type(["x", "n"])(1, 4, 2.5, 7), row_type(["x", "n"])(2.5, 7)
    assert (event.le, event.re, event.x, event.n) == (1, 4, 2.5, 7)
    for item in (event, row):
        again = copied(item)
        assert again == item
        assert type(again) is type(item)
        assert again.n == 7
        assert hash(again) == hash(item)
    assert repr(event) == "Event(le=1, re=4, x=2.5, n=7)"


@pytest.mark.slow
def test_items_load_in_another_process():
    items = items_of(["x", "n"], [(1, 4, 2.5, 7), (2, 5, None, 8)], timed=True)
    code = "import pickle, sys; print([(e.le, e.n, e.x) for e in pickle.load(sys.stdin.buffer)])"
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(items), capture_output=True, check=True)
    assert done.stdout.decode().strip() == "[(1, 7, 2.5), (2, 8, None)]"


def test_many_items_have_their_names_once():
    items = items_of(["a_rather_long_name", "n"], [(1.0, n) for n in range(100)], timed=False)
    assert pickle.dumps(items).count(b"a_rather_long_name") == 1


class Held(hr.IncrementalOperator):
    """Gives back the events it keeps."""

    input = "x DOUBLE, n LONG"
    output = "x DOUBLE, n LONG"
    time_sensitive = True

    def initial(self) -> list[Any]:
        return []

    def add(self, state: list[Any], events: list[Any]) -> list[Any]:
        return state + events

    def remove(self, state: list[Any], events: list[Any]) -> None:
        for event in events:
            state.remove(event)

    def compute(self, state: list[Any], window: Any) -> list[Any]:
        return [self.event(max(e.le, window.le), e.re, e.x, e.n) for e in sorted(state)]


class HeldRows(hr.IncrementalAggregate):
    """A text of the rows it keeps."""

    input = "x DOUBLE, n LONG"
    output = "STRING"

    def initial(self) -> set[Any]:
        return set()

    def add(self, state: set[Any], items: list[Any]) -> None:
        state.update(items)

    def remove(self, state: set[Any], items: list[Any]) -> None:
        state.difference_update(items)

    def merge(self, state: set[Any], other: set[Any]) -> set[Any]:
        return state | other

    def compute(self, state: set[Any]) -> str:
        return " ".join(f"{row.n}:{row.x}" for row in sorted(state))


@pytest.mark.parametrize("batches", [[5], [1] * 5])
def test_states_may_keep_the_items_they_are_given(batches: list[int]):
    stream = hr.events(STREAM, batches=batches).window(hr.tumbling(10))
    kept, held = stream.aggregate(t=HeldRows()), stream.operate(Held())
    assert rows(kept.cht()) == [(0, 10, "1:1.0 4:2.0"), (10, 20, "3:5.0")]
    assert rows(held.cht()) == [(1, 4, 1.0, 1), (4, 6, 2.0, 4), (12, 13, 5.0, 3)]
    for one in (kept, held):
        assert hr.same_history(one.cht(), one.history(engine="duckdb").cht())


@pytest.mark.parametrize("batches", [[5], [1] * 5])
def test_states_of_tuples_may_keep_the_items_they_are_given(batches: list[int]):
    inserts = hr.events(
        "le | x | n\n1 | 1.0 | 1\n3 | 4.0 | 2\n12 | 5.0 | 3\n13 | 2.0 | 4\n14 | 1.0 | 5", batches=batches
    )
    over = inserts.over(rows=1).aggregate(t=HeldRows())
    assert over.cht()["t"].to_pylist() == ["1:1.0", "1:1.0 2:4.0", "2:4.0 3:5.0", "4:2.0 3:5.0", "5:1.0 4:2.0"]


# --- outputs without times ------------------------------------------------------------------------------------------


class Plain(hr.Operator):
    """Time-sensitive: what it gives first has no times."""

    input = "x DOUBLE"
    output = "x DOUBLE, n LONG"
    time_sensitive = True

    def compute(self, events: list[Any], window: Any) -> Any:
        yield {"x": float(window.re - window.le), "n": len(events)}
        yield events[0].x, 0
        yield self.event(max(events[0].le, window.le), events[0].re, events[0].x, -1)


PLAIN = "le | re | x\n1 | 4 | 1.0\n12 | 15 | 5.0"


@pytest.mark.parametrize(
    ("timestamping", "own"),
    [("unchanged", [(1, 4), (12, 15)]), ("clip", [(1, 4), (12, 14)]), ("align", [(0, 7), (7, 14)])],
)
def test_plain_outputs_of_a_time_sensitive_operator_last_as_long_as_their_window(timestamping: Any, own: list[Any]):
    stream = hr.events(PLAIN).where(hr.col("x") > 0).window(hr.tumbling(7), timestamping=timestamping).operate(Plain())
    whole = sorted(rows(stream.cht()))
    expected = [(0, 7, 7.0, 1), (0, 7, 1.0, 0), (7, 14, 7.0, 1), (7, 14, 5.0, 0)]
    assert [row for row in whole if row[0] < 14 and row[3] >= 0] == sorted(expected)
    assert [row[:2] for row in whole if row[0] < 14 and row[3] < 0] == own
    assert hr.same_history(stream.cht(), stream.history(engine="duckdb").cht())
    differential_reference(stream.node)


def test_three_plain_columns_are_no_times():
    class Three(Plain):
        output = "a LONG, b LONG, c LONG"

        def compute(self, events: list[Any], window: Any) -> Any:  # noqa: ARG002
            return [(5, 6, len(events))]

    assert rows(hr.events(PLAIN).window(hr.tumbling(20)).operate(Three()).cht()) == [(0, 20, 5, 6, 2)]


def test_times_of_an_insensitive_operator_are_refused():
    class Blind(hr.Operator):
        input = "x DOUBLE"
        output = "a LONG, b LONG, c LONG"

        def compute(self, values: list[float]) -> Any:
            return [self.event(0, len(values), 1, 2, 3)]

    with pytest.raises(ModuleFailed, match="lifetimes are for time-sensitive modules"):
        hr.events(PLAIN).window(hr.tumbling(20)).operate(Blind()).run()


# --- members of windows that count ends -----------------------------------------------------------------------------


class Lifetimes(hr.Aggregate):
    """What it sees of its window and of its events."""

    input = "x DOUBLE"
    output = "STRING"
    time_sensitive = True

    def compute(self, events: list[Any], window: Any) -> str:
        return f"{window.le}-{window.re}: " + " ".join(f"{e.le}-{e.re}" for e in events)


@pytest.mark.parametrize(
    ("clipping", "seen"),
    [
        ("none", ["4-8: 1-4 3-7", "7-10: 3-7 5-9"]),
        ("right", ["4-8: 1-4 3-7", "7-10: 3-7 5-9"]),
        ("left", ["4-8: 4-5 4-7", "7-10: 7-8 7-9"]),
        ("full", ["4-8: 4-5 4-7", "7-10: 7-8 7-9"]),
    ],
)
def test_a_member_that_ends_where_its_window_begins_shows_as_an_instant(clipping: Any, seen: list[str]):
    stream = hr.events("le | re | x\n1 | 4 | 1.0\n3 | 7 | 2.0\n5 | 9 | 3.0")
    answers = stream.window(hr.count_by_end(2), clipping=clipping).aggregate(t=Lifetimes())
    assert answers.cht()["t"].to_pylist() == seen
    assert hr.same_history(answers.cht(), answers.history(engine="duckdb").cht())
    differential_reference(answers.node)
