"""Patterns whose transitions are a stream, at random: the same matches as the native operator, as the twins and as
history; and where transitions come and go, those that a search through all ways finds (rules 1.5 and 9.4).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.ordered import long_streams
from tests.strategies.patterns import measures, patterns

import headrace as hr
from headrace import col, count
from headrace.patterns import Pattern
from headrace.testing.batches import check_same_batches
from headrace.testing.strategies import batch_sizes
from headrace.testing.verify.checks import live, restarted
from headrace.testing.verify.differential import differential_reference

SOME = settings(max_examples=max(5, settings().max_examples // 3))
FEW = settings(max_examples=max(5, settings().max_examples // 10))
BUCKETS = st.integers(1, 3)
KEYS = st.sampled_from([None, None, "computed", "k", "x"])
#: What runs do not carry along, and sums that are rounded at every step.
NOT_CARRIED = {"all", "mine", "subset", "t", "sum"}


def grouped(stream: hr.Stream, key: str | None) -> Any:
    if key == "computed":
        return stream.group_by(positive=col("i") > 0)
    return stream.group_by(key) if key else stream


@st.composite
def asked(draw: st.DrawFn, max_events: int = 12) -> tuple[Any, Pattern, dict[str, Any]]:
    """A stream in groups or not, a pattern of which every match counts, and measures."""
    pattern = draw(patterns())
    pattern = pattern.partial() if draw(st.booleans()) else pattern.all_matches()
    found = {f"m_{name}": expr for name, expr in draw(measures(pattern)).items() if name not in NOT_CARRIED}
    return grouped(draw(long_streams(max_events)), draw(KEYS)), pattern, found or {"n": count()}


def looped(over: Any, pattern: Pattern, named: dict[str, Any]) -> hr.Stream:
    found: hr.Stream = over.match(pattern, transitions=hr.events(pattern.transitions()), **named)
    return found


@pytest.mark.slow
@SOME
@given(asked(), BUCKETS)
def test_native_and_reentrant_patterns_match_the_same(query: Any, buckets: int):
    over, pattern, named = query
    native = over.match(pattern, **named).cht()
    assert hr.history_diff(looped(*query).cht(buckets=buckets), native) == ""


@pytest.mark.slow
@FEW
@given(asked(8), BUCKETS)
def test_differential_reentrant_patterns(query: Any, buckets: int):
    differential_reference(looped(*query).node, buckets=buckets)


@pytest.mark.slow
@FEW
@given(asked(8))
def test_oracle_history_says_the_same(query: Any):
    found = looped(*query)
    assert hr.history_diff(found.cht(), found.history("duckdb").cht()) == ""


@pytest.mark.slow
@FEW
@given(asked(8), BUCKETS)
def test_restarts_do_not_show(query: Any, buckets: int):
    node = looped(*query).node
    check_same_batches(restarted(node, buckets), live(node, buckets), "restarted after every batch")


# --- transitions that come and go -------------------------------------------------------------------------------------

STATES = st.sampled_from(["start", "p", "q"])
LETTERS = hr.pattern(define={"A": col("s") == "A", "B": col("s") == "B", "Any": hr.lit(True)})
Row = dict[str, Any]


@st.composite
def changing(draw: st.DrawFn, columns: dict[str, Any], schema: str, longest: int) -> tuple[hr.Stream, list[Row]]:
    """A physical stream whose events are cut short or deleted later, with promises; and what is left of it."""
    rows: list[Row] = []
    left: list[Row] = []
    for number in range(draw(st.integers(3, 9))):
        le = draw(st.integers(0, 9))
        one = {"le": le, "re": le + draw(st.integers(1, longest)), "n": number}
        one |= {name: draw(values) for name, values in columns.items()}
        rows.append({"kind": "insert", "re_new": None, **one})
        if draw(st.integers(0, 2)) == 0:
            end = draw(st.integers(le, one["re"] - 1))
            rows.append({"kind": "retract", "re_new": end, **one})
            one = {**one, "re": end}
        if one["re"] > one["le"]:
            left.append(one)
    rows = promised(rows, [draw(st.booleans()) for _ in rows])
    return hr.events(rows, f"n LONG, {schema}", batches=draw(batch_sizes(len(rows)))), left


def promised(rows: list[Row], where: list[bool]) -> list[Row]:
    """With CTIs before some rows, as late as what follows allows."""
    out: list[Row] = []
    for at, row in enumerate(rows):
        if where[at]:
            later = [r["le"] if r["re_new"] is None else min(r["re"], r["re_new"]) for r in rows[at:]]
            out.append({"kind": "cti", "le": min(later)})
        out.append(row)
    return [dict.fromkeys(rows[0]) | row for row in out]


def ways(events: list[Row], moves: list[Row], within: int | None) -> Counter[tuple[Any, ...]]:
    """Every way through the transitions, from the definition: by trial, one event after the other."""
    line = sorted(events, key=lambda row: (row["le"], row["n"]))
    found: Counter[tuple[Any, ...]] = Counter()

    def go(first: int, at: int, state: str, word: str) -> None:
        if at == len(line) or (within is not None and line[at]["le"] - line[first]["le"] > within):
            return
        now, letter = line[at]["le"], line[at]["s"]
        for move in moves:
            alive = move["le"] <= now < move["re"]
            if alive and move["source"] == state and move["variable"] in (letter, "Any"):
                found[now, word + letter, line[first]["le"], move["target"], move["final"]] += 1
                go(first, at + 1, move["target"], word + letter)

    for first in range(len(line)):
        go(first, first, "start", "")
    return found


@pytest.mark.slow
@SOME
@given(
    changing({"s": st.sampled_from("AB")}, "s STRING", 1),
    changing(
        {"source": STATES, "variable": st.sampled_from(["A", "B", "Any"]), "target": STATES, "final": st.booleans()},
        "source STRING, variable STRING, target STRING, final BOOLEAN",
        12,
    ),
    st.sampled_from([None, 0, 3]),
    BUCKETS,
)
def test_changing_transitions_give_what_trial_and_error_finds(
    letters: Any, moves: Any, within: int | None, buckets: int
):
    (stream, events), (transitions, table) = letters, moves
    pattern = LETTERS.partial() if within is None else LETTERS.partial().within(within)
    said = {"word": hr.concat("s", ""), "since": hr.first("le"), "at": hr.state()}
    found = stream.match(pattern, transitions=transitions, **said)
    given = Counter(tuple(row[n] for n in ("le", "word", "since", "at", "complete"))
                    for row in found.cht(buckets=buckets).to_pylist())  # fmt: skip
    assert given == ways(events, table, within)
