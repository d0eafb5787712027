"""Patterns whose transitions are a stream, by example: the paper's AB*A step by step, transitions that come and go,
what is carried along, what is remembered, and what is refused (rule 9.4).
"""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace import col, count
from headrace.errors import HeadraceError, PlanError
from headrace.host.local.run import Runner, batches_of
from headrace.optimizer import optimize
from headrace.plan.nodes import Output, Recurse, walk
from headrace.stages.cut import cut
from headrace.testing.verify.differential import differential_reference

AB = hr.pattern(define={"A": col("s") == "A", "B": col("s") == "B"})
# Figure 4: from the start by A, any number of Bs, and by A to the final state.
MOVES = """
    kind    | le | re | re_new | source | variable | target | final
    insert  | 0  | ∞  |        | start  | A        | P      | false
    insert  | 0  | ∞  |        | P      | B        | P      | false
    insert  | 0  | ∞  |        | P      | A        | F      | true
"""
NO_B_FROM_3 = "    retract | 0  | ∞  | 3      | P      | B        | P      | false\n"
NO_B_AT_ALL = "    retract | 0  | ∞  | 0      | P      | B        | P      | false\n"


def letters(text: str, batches: list[int] | None = None) -> hr.Stream:
    rows = [{"le": i + 1, "re": i + 2, "s": s, "n": i + 1} for i, s in enumerate(text)]
    return hr.events(rows, "s STRING, n LONG", batches=batches or [1] * len(rows))


def steps(query: hr.Stream) -> list[list[str]]:
    """What every batch gives: a word, where it ends, and the state it has come to; `-` if it is taken back."""
    differential_reference(query.node)
    assert hr.history_diff(query.cht(), query.history("duckdb").cht()) == ""
    found = []
    for changes, _ in query.run().results["out"].batches:
        rows = changes.to_table().to_pylist()
        lines = [(r["__le"], f"{'-' * (r['__weight'] < 0)}{r['word']}@{r['__le']} {r['state']}") for r in rows]
        found.append([line for _, line in sorted(lines)])
    return found


def partial(stream: hr.Stream, moves: hr.Stream, pattern: Any = AB) -> hr.Stream:
    return stream.match(pattern.partial(), transitions=moves, word=hr.concat("s", ""), state=hr.state())


# --- the paper --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", [AB, AB.within(10)])
def test_figure_4_symbol_by_symbol(pattern: Any):
    query = partial(letters("ABBA", [0, 1, 1, 1, 1]), hr.events(MOVES, batches=[3, 0, 0, 0, 0]), pattern)
    assert steps(query) == [[], ["A@1 P"], ["AB@2 P"], ["ABB@3 P"], ["A@4 P", "ABBA@4 F"], []]


def test_transitions_may_come_after_the_symbols():
    query = partial(letters("ABBA", [4, 0, 0, 0]), hr.events(MOVES, batches=[0, 1, 1, 1]))
    assert steps(query) == [[], ["A@1 P", "A@4 P"], ["AB@2 P", "ABB@3 P"], ["ABBA@4 F"], []]


@pytest.mark.slow
@pytest.mark.parametrize("pattern", [AB, AB.within(10)])
def test_a_transition_that_ends_changes_the_matches_from_then_on(pattern: Any):
    moves = hr.events(MOVES + NO_B_FROM_3, batches=[3, 0, 0, 1])
    query = partial(letters("ABBABA", [2, 1, 3, 0]), moves, pattern)
    assert steps(query) == [
        ["A@1 P", "AB@2 P"],
        ["ABB@3 P"],
        ["A@4 P", "ABBA@4 F", "AB@5 P", "A@6 P", "ABA@6 F"],
        ["-ABB@3 P", "-ABBA@4 F", "-AB@5 P", "-ABA@6 F"],
        [],
    ]


def test_a_transition_that_is_retracted_retracts_its_matches():
    query = partial(letters("ABBA", [4, 0]), hr.events(MOVES + NO_B_AT_ALL, batches=[3, 1]))
    assert steps(query)[1] == ["-AB@2 P", "-ABB@3 P", "-ABBA@4 F"]


def test_a_run_goes_on_by_transitions_that_came_after_it_began():
    """Before 3 two As make a match, from 3 on an A and a B do; what has begun by the old ones goes on by the new."""
    moves = hr.events("""
        kind   | le | re | source | variable | target | final
        insert | 0  | ∞  | start  | A        | P      | false
        insert | 0  | 3  | P      | A        | two    | true
        insert | 3  | ∞  | P      | B        | mixed  | true
    """)
    found = letters("AABAB").match(AB.all_matches(), transitions=moves, at=col("n"), since=hr.first("n"), by=hr.state())
    rows = sorted((r["since"], r["at"], r["by"]) for r in found.cht().to_pylist())
    assert rows == [(1, 2, "two"), (2, 3, "mixed"), (4, 5, "mixed")]


@pytest.mark.parametrize("pattern", [AB, AB.within(3)])
def test_a_transition_counts_when_it_is_taken_not_before_and_not_afterwards(pattern: Any):
    moves = hr.events("""
        kind   | le | re | source | variable | target | final
        insert | 0  | 2  | start  | A        | P      | false
        insert | 2  | 4  | P      | B        | P      | false
        insert | 4  | 5  | P      | A        | F      | true
        insert | 2  | 9  | start  | A        | late   | true
        insert | 5  | 9  | F      | A        | again  | true
    """)
    assert steps(partial(letters("ABBA", [4]), moves, pattern))[0] == [
        "A@1 P", "AB@2 P", "ABB@3 P", "A@4 late", "ABBA@4 F",
    ]  # fmt: skip


@pytest.mark.slow
def test_within_counts_the_last_instant_in():
    found = [partial(letters("ABBA", [4]), hr.events(MOVES), AB.within(span)) for span in (2, 3)]
    assert ["ABBA@4 F" in steps(query)[0] for query in found] == [False, True]


def test_late_and_retracted_symbols_correct_matches():
    stream = hr.events("""
        kind    | le | re | re_new | s
        insert  | 1  | 2  |        | A
        insert  | 3  | 4  |        | A
        insert  | 2  | 3  |        | B
        insert  | 4  | 5  |        | B
        retract | 3  | 4  | 3      | A
    """, batches=[2, 1, 1, 1])  # fmt: skip
    query = partial(stream, hr.events(MOVES, batches=[3, 0, 0, 0]))
    assert steps(query)[:4] == [
        ["A@1 P", "A@3 P", "AA@3 F"],
        ["AB@2 P", "-AA@3 F", "ABA@3 F"],
        ["AB@4 P"],
        ["-A@3 P", "-ABA@3 F", "-AB@4 P", "ABB@4 P"],
    ]


# --- the two forms ----------------------------------------------------------------------------------------------------


def both(stream: Any, pattern: Any, **measures: Any) -> list[dict[str, Any]]:
    """What a pattern matches, natively and by its transitions."""
    native = stream.match(pattern, **measures).cht()
    looped = stream.match(pattern, transitions=hr.events(pattern.transitions()), **measures)
    assert hr.history_diff(looped.cht(), native) == ""
    assert hr.history_diff(looped.cht(buckets=2), native) == ""
    found: list[dict[str, Any]] = native.to_pylist()
    return found


@pytest.mark.slow
def test_the_w_query_with_a_register_and_without():
    m, up = col("m"), col("up")
    rows = [{"le": i + 1, "re": i + 2, "up": c == "U"} for i, c in enumerate("UDDUDUUDUDDUUUUDUDUDDDUUDDUUUDUDDUU")]
    stream = hr.events(rows, "up BOOLEAN", batches=[20, len(rows) - 20])
    plain = hr.pattern("U D+ U+ D+ U+", define={"U": up, "D": ~up}, where=count("D") == count("U") - 1, within=30)
    defined = {"S": up, "D": ~up, "U": up, "E": ~up & (m > 0), "V": up}
    by_register = hr.pattern("S D+ U+ E+ V+", define=defined).register("m", 0, D=m + 1, E=m + 1, U=m - 1, V=m - 1)
    some = both(stream, plain.all_matches(), n=count(), since=hr.first("le"))
    again = both(stream, by_register.where(m == 0).within(30).all_matches(), n=count(), since=hr.first("le"))
    assert len(some) >= len(again) > 2


def test_all_that_measures_and_conditions_carry_along():
    big = 2**62
    rows = [
        ("a", 1, big, 0.5), ("a", 2, big, None), ("a", 2, -big, 2.0), (None, 3, 5, 1.0), ("a", 3, None, 0.25),
        (None, 3, 7, 4.0), ("a", 5, -big, 3.0), (None, 6, -big, -1.0), ("a", 7, -big, 8.0),
    ]  # fmt: skip
    table = [{"le": le, "re": le + 1, "k": k, "i": i, "x": x} for k, le, i, x in rows]
    stream = hr.events(table, "k STRING, i LONG, x DOUBLE").group_by("k")
    pattern = hr.pattern("A B* C", define={"B": hr.max("i") >= col("i"), "C": hr.prev("x") < 5.0}).all_matches()
    found = both(
        stream, pattern, n=count("B"), known=count("i"), total=hr.sum("i"), mean=hr.avg("i"), top=hr.max("x"),
        low=hr.min("B.x"), first=hr.first("B.i"), last=col("A.x"), second=hr.offset(hr.first("i"), 1),
        before=hr.offset(hr.last("le"), 1), here=col("x") - hr.prev("x"), ahead=hr.next("le"), by=hr.classifier(),
        whole=hr.final(count()),
    )  # fmt: skip
    assert {row["total"] for row in found} >= {2 * big - big, None}
    assert {row["k"] for row in found} == {"a", None}


def test_columns_may_have_any_name():
    names = ("at", "at_", "rank", "head", "more", "tie", "state", "t0", "s0", "by", "final")
    rows = [{"le": i, "re": i + 1, **dict.fromkeys(names, i)} for i in range(4)]
    stream = hr.events(rows, ", ".join(f"{name} LONG" for name in names))
    pattern = hr.pattern("A B", define={"A": col("rank") < col("tie") + 1, "B": col("at") > hr.prev("at")})
    found = both(stream.group_by(then=col("at") < 9), pattern.all_matches(), at=col("at"), state=hr.first("state"))
    assert [(row["at"], row["state"]) for row in found] == [(1, 0), (2, 1), (3, 2)]


def test_a_transition_that_is_there_twice_is_two_ways():
    moves = hr.events("""
        le | re | source | variable | target | final | why
        0  | ∞  | start  | A        | x      | true  | one
        0  | ∞  | start  | A        | x      | true  | two
        0  | ∞  | start  | no_such  | x      | true  | three
    """)
    assert letters("AB").match(AB.all_matches(), transitions=moves, n=count()).cht().num_rows == 2


def test_rows_of_transitions():
    rows = hr.pattern("A B | A C").transitions(since=3, until=9)
    assert [tuple(row.values()) for row in rows] == [
        (3, 9, "start", "A", "1:A", False),
        (3, 9, "1:A", "B", "2:B", True),
        (3, 9, "1:A", "C", "3:C", True),
    ]


# --- how it runs ------------------------------------------------------------------------------------------------------


def test_a_run_may_be_longer_than_other_loops_go_round():
    found = partial(letters("AB"), hr.events(MOVES)).node
    (loop,) = (node for node in walk(found) if isinstance(node, Recurse))
    assert loop.max_rounds is not None
    assert loop.max_rounds >= 10**9


def most_kept(query: hr.Stream) -> int:
    """The most rows that all operators remember after a batch."""
    line = cut(optimize([Output(query.node, "out")]))
    runner, rows = Runner(line, 1, None), []
    first = {source.fingerprint: list(batches_of(source)) for source in line.sources}
    for number in range(max(map(len, first.values()))):
        runner.round({name: blocks[number] for name, blocks in first.items() if number < len(blocks)})
        kernels = [kernel for stage in runner.stages for run in stage for kernel in run.kernels.values()]
        rows.append(sum(kernel.state()["rows"] for kernel in kernels))
    return max(rows)


def test_what_cannot_go_on_is_forgotten():
    def kept(times: int) -> int:
        rows: list[dict[str, Any]] = []
        for le, s in enumerate("ABBCABAC" * times):
            rows += [{"kind": "insert", "le": le, "re": le + 1, "s": s}, {"kind": "cti", "le": le + 1}]
        whole = [{"re": None, "re_new": None, "s": None} | row for row in rows]
        stream = hr.events(whole, "s STRING", batches=[16] * times)
        moves = hr.events(MOVES + "    cti | 9999 |||||| ", batches=[4, *[0] * (times - 1)])
        return most_kept(stream.match(AB.all_matches().within(5), transitions=moves, n=count()))

    assert 0 < kept(6) == kept(12) < 40


# --- what is refused --------------------------------------------------------------------------------------------------


def test_what_is_refused():
    stream, moves = letters("AB"), hr.events(MOVES)
    ab = hr.pattern("A B", define=dict(AB.conditions))
    every = ab.all_matches()
    cases: list[tuple[Any, str]] = [
        (lambda: stream.match(ab, transitions=moves, n=count()), "every match counts"),
        (lambda: stream.match(every, transitions=moves, rows="all", m=count()), "rows='all'"),
        (lambda: stream.match(every, transitions=stream, n=count()), "a column 'source' of type STRING"),
        (lambda: stream.match(every, transitions=moves.select("source", "variable", "target", final=1), n=count()),
         "'final' of type BOOLEAN"),
        (lambda: stream.match(every, transitions=every.transitions(), n=count()), "hr.events(pattern.transitions())"),
        (lambda: stream.match(every, transitions=moves, n=hr.collect("s")), "cannot carry collect along"),
        (lambda: stream.match(every, n=hr.state()), "only where its transitions are a stream"),
        (lambda: stream.match(every.where(hr.state() == "F"), transitions=moves, n=count()), "cannot ask for state"),
        (lambda: stream.match(hr.pattern().all_matches(), transitions=moves, n=count()), "at least one tuple"),
        (lambda: hr.pattern("A*").transitions(), "at least one tuple"),
        (lambda: stream.match(every, transitions=moves, n=col("nothing")), "nothing called 'nothing'"),
    ]  # fmt: skip
    for wrong, text in cases:
        with pytest.raises(HeadraceError) as told:
            wrong()
        assert isinstance(told.value, PlanError)
        assert text in str(told.value)
