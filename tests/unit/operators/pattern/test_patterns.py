"""Patterns by example: the paper's automata, preference, policies, time, corrections, progress, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace import col, count
from headrace.errors import HeadraceError, PatternError, PlanError
from headrace.host.local.run import Runner, batches_of
from headrace.operators.pattern import tables
from headrace.operators.pattern.kernel import MatchKernel
from headrace.optimizer import optimize
from headrace.patterns.regex import parse
from headrace.plan.nodes import Output
from headrace.stages.cut import cut
from headrace.testing.batches import check_same_batches
from headrace.testing.verify.checks import live, restarted
from headrace.testing.verify.differential import differential_reference


def letters(text: str, *, times: list[int] | None = None, ctis: dict[int, int] | None = None) -> hr.Stream:
    """A point for each letter, one a batch, and CTIs behind some of them."""
    rows: list[dict[str, Any]] = []
    for i, letter in enumerate(text):
        le = times[i] if times else i + 1
        rows.append({"kind": "insert", "le": le, "re": le + 1, "re_new": None, "s": letter, "n": i + 1})
        if ctis and i + 1 in ctis:
            rows.append({"kind": "cti", "le": ctis[i + 1], "re": None, "re_new": None, "s": None, "n": None})
    return hr.events(rows, "s STRING, n LONG", batches=[1] * len(rows))


def shaped(text: str, **policy: Any) -> Any:
    """A pattern whose variables are letters."""
    return hr.pattern(text, define={name: col("s") == name for name in parse(text).variables()}, **policy)


def words(stream: hr.Stream, pattern: Any, **policy: Any) -> list[str]:
    """The letters of each match and when it is, by time, checked against the twin and history."""
    found = stream.match(pattern, word=hr.collect("s"), at=hr.collect("n"), **policy)
    differential_reference(found.node)
    assert hr.history_diff(found.cht(), found.history("duckdb").cht()) == ""
    rows = sorted(found.cht().to_pylist(), key=lambda row: (row["le"], row["at"]))
    return [f"{''.join(row['word'])}@{row['le']}" for row in rows]


# --- the paper --------------------------------------------------------------------------------------------------------


def test_partial_and_complete_patterns_of_figure_4():
    found = letters("ABBA").match(shaped("A B* A").partial(), word=hr.collect("s"))
    rows = sorted((row["le"], "".join(row["word"]), row["complete"]) for row in found.cht().to_pylist())
    assert rows == [(1, "A", False), (2, "AB", False), (3, "ABB", False), (4, "A", False), (4, "ABBA", True)]


def w_pattern() -> Any:
    """Down and up, twice, back to where it began: with the aggregates of variables."""
    back = count("D") == count("U") - 1
    return hr.pattern("U D+ U+ D+ U+", define={"U": col("up"), "D": ~col("up")}, where=back, within=30)


def w_register() -> Any:
    """The same with a register, as the paper has it: downs less ups."""
    m = col("m")
    made = hr.pattern().then("S", col("up")).then("D", ~col("up"), "+").then("U", col("up"), "+")
    made = made.then("E", ~col("up") & (m > 0), "+").then("V", col("up"), "+")
    return made.register("m", 0, D=m + 1, E=m + 1, U=m - 1, V=m - 1).where(m == 0).within(30)


@pytest.mark.parametrize("skip", ["past last row", "to next row"])
def test_the_w_query(skip: str):
    ticks = [c == "U" for c in "UDDUDUUDUDDUUUUDUDUDDDUUDDUUUDUDDUU"]
    stream = hr.events([{"le": i + 1, "re": i + 2, "up": up} for i, up in enumerate(ticks)], "up BOOLEAN")
    plain = stream.match(w_pattern().skip(skip), n=count(), first=hr.first("up"))
    assert plain.cht().num_rows > 2
    differential_reference(plain.node)
    again = stream.match(w_register().skip(skip), n=count(), first=hr.first("up"))
    differential_reference(again.node)
    for row in plain.cht().to_pylist():
        part = ticks[row["le"] - row["n"] : row["le"]]
        assert part[0]
        assert part.count(True) - 1 == part.count(False)


def test_of_the_w_query_the_register_says_that_it_can_never_come_back():
    assert w_register().variables == ("S", "D", "U", "E", "V")


# --- which match ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("A B+", ["ABB@3"]),
        ("A B+?", ["AB@2"]),
        ("A B*", ["ABB@3", "A@4"]),
        ("A B??", ["A@1", "A@4"]),
        ("A B{1}", ["AB@2"]),
        ("A (B | B B)", ["AB@2"]),
        ("A (B B | B)", ["ABB@3"]),
        ("A B* A", ["ABBA@4"]),
        ("(A | B)+", ["ABBA@4"]),
        ("PERMUTE(A, B B)", ["ABB@3"]),
        ("PERMUTE(A, B)", ["AB@2", "BA@4"]),
        ("B{2,3} A", ["BBA@4"]),
        ("B{2,}", ["BB@3"]),
    ],
)
def test_the_preferred_match(shape: str, expected: list[str]):
    assert words(letters("ABBA"), shaped(shape)) == expected


@pytest.mark.parametrize(
    ("skip", "expected"),
    [
        ("past last row", ["AAB@3", "AAB@6"]),
        ("to next row", ["AAB@3", "AB@3", "AAB@6", "AB@6"]),
        ("to first B", ["AAB@3", "AAB@6"]),
        ("to last A", ["AAB@3", "AB@3", "AAB@6", "AB@6"]),
        ("to A", ["AAB@3", "AB@3", "AAB@6", "AB@6"]),
        ("to first A", ["AAB@3", "AB@3", "AAB@6", "AB@6"]),
    ],
)
def test_where_the_search_goes_on(skip: str, expected: list[str]):
    found = words(letters("AABAAB"), shaped("A+ B", skip=skip))
    assert sorted(found) == sorted(expected)


def test_all_matches_are_all_ways_each_once():
    shape = shaped("A+ (B | B)+").all_matches()
    assert sorted(words(letters("AABB"), shape)) == ["AAB@3", "AABB@4", "AB@3", "ABB@4"]


def test_a_match_that_is_refused_as_a_whole_lets_others_be_tried():
    pattern = shaped("A B+", where=count("B") == 2)
    assert words(letters("ABBBB"), pattern) == ["ABB@3"]


# --- conditions -------------------------------------------------------------------------------------------------------


def test_conditions_look_at_other_tuples_of_the_run():
    stream = hr.events([{"le": i, "re": i + 1, "v": v} for i, v in enumerate([5, 3, 4, 2, 6, 7, 1])], "v LONG")
    fall = hr.pattern("A F+ R+", define={"F": col("v") < hr.first("A.v"), "R": col("v") > hr.max("F.v")})
    found = stream.match(fall, a=col("A.v"), f=hr.collect("F.v"), r=hr.collect("R.v"), last=col("v"))
    assert found.cht().to_pylist() == [
        {"le": 5, "re": 6, "a": 5, "f": [3, 4, 2], "r": [6, 7], "last": 7},
    ]
    differential_reference(found.node)


def test_prev_looks_back_over_what_the_cti_has_settled():
    stream = letters("ABCD", ctis={1: 2, 2: 3, 3: 4})
    found = stream.match(hr.pattern("X", define={"X": hr.prev("s", 2) == "A"}), p=hr.prev("s"), s=col("s"))
    assert found.cht().to_pylist() == [{"le": 3, "re": 4, "p": "B", "s": "C"}]
    differential_reference(found.node)


def test_next_looks_ahead_and_waits_for_what_it_looks_at():
    stream = letters("ABAC", ctis={1: 2, 2: 3, 3: 4, 4: 5})
    found = stream.match(hr.pattern("A", define={"A": (col("s") == "A") & (hr.next("s") == "C")}), c=hr.next("s"))
    assert found.cht().to_pylist() == [{"le": 3, "re": 4, "c": "C"}]
    assert [cti for _, cti in batches(found)[1:8:2]] == [1, 2, 3, 4]


def test_offsets_count_the_tuples_of_a_variable():
    rising = hr.pattern("A+", define={"A": hr.offset(hr.last("A.n"), 1).is_null() | (count("A") < 4)})
    found = letters("XYZW").match(
        rising,
        second=hr.offset(hr.first("A.s"), 1),
        last_but_one=hr.offset(hr.last("A.s"), 1),
        none=hr.offset(hr.last("s"), 9),
    )
    assert found.cht().to_pylist()[0] == {"le": 3, "re": 4, "second": "Y", "last_but_one": "Y", "none": None}
    differential_reference(found.node)


def test_within_counts_its_end_in():
    stream = letters("ABAB", times=[0, 10, 20, 31])
    assert words(stream, shaped("A B", within=10)) == ["AB@10"]


def test_all_rows_have_their_columns_and_what_is_measured_so_far():
    pattern = shaped("A B+")
    found = letters("ABB").match(pattern, rows="all", so_far=count(), is_=hr.classifier()).cht().to_pylist()
    assert [(row["le"], row["s"], row["so_far"], row["is_"]) for row in found] == [
        (1, "A", 1, "A"), (2, "B", 2, "B"), (3, "B", 3, "B"),
    ]  # fmt: skip


def test_all_rows_may_say_what_the_whole_match_comes_to():
    found = letters("ABB").match(shaped("A B+"), rows="all", last=hr.final("n"), of=hr.final(count()), b=count("B"))
    assert [(row["n"], row["last"], row["of"], row["b"]) for row in found.cht().to_pylist()] == [
        (1, 3, 3, 0), (2, 3, 3, 1), (3, 3, 3, 2),
    ]  # fmt: skip
    with pytest.raises(PlanError, match="evaluated before the match is complete"):
        letters("A").match(hr.pattern("A B", define={"B": hr.final("n") > 1}), c=count())


def test_conditions_may_look_at_times():
    stream = letters("ABAB", times=[0, 10, 20, 25])
    near = hr.pattern("A B", define={"A": col("s") == "A", "B": col("le") - col("A.le") <= 5})
    assert stream.match(near, start=hr.first("le"), end=col("le")).cht().to_pylist() == [
        {"le": 25, "re": 26, "start": 20, "end": 25}
    ]


def test_groups_are_searched_apart():
    rows = [{"le": i, "re": i + 1, "k": k, "v": i} for i, k in enumerate("abab")]
    stream = hr.events(rows, "k STRING, v LONG")
    pair = hr.pattern("A B", define={"B": col("k") == col("A.k")})
    found = stream.group_by("k").match(pair, first=col("A.v"), last=col("B.v"))
    assert found.cht().to_pylist() == [
        {"le": 2, "re": 3, "k": "a", "first": 0, "last": 2},
        {"le": 3, "re": 4, "k": "b", "first": 1, "last": 3},
    ]
    applied = stream.group_by("k").apply(lambda group: group.match(pair, first=col("A.v"), last=col("B.v")))
    assert hr.same_history(applied.cht(), found.cht())
    assert stream.match(pair, n=count()).cht().num_rows == 0


# --- numbers, subsets, anchors, registers in measures -----------------------------------------------------------------


def test_numbers_go_on_behind_what_is_forgotten_and_move_up_for_a_late_match():
    drawn = """
        kind   | le | re | s
        insert | 1  | 2  | A
        insert | 2  | 3  | B
        cti    | 4  |    |
        insert | 6  | 7  | A
        insert | 7  | 8  | B
        insert | 4  | 5  | A
        insert | 5  | 6  | B
        cti    | 9  |    |
        insert | 9  | 10 | A
        insert | 10 | 11 | B
    """
    stream = hr.events(drawn, "s STRING", batches=[2, 1, 2, 2, 1, 2])
    found = stream.match(shaped("A B"), n=hr.match_number())
    assert [(row["le"], row["n"]) for row in found.cht().to_pylist()] == [(2, 1), (5, 2), (7, 3), (10, 4)]
    moved = batches(found)
    assert moved[2][0] == [(7, 1)]
    assert moved[3][0] == [(5, 1), (7, -1), (7, 1)], "the match at 7 was the second, and is the third"
    assert hr.history_diff(found.cht(), found.history("duckdb").cht()) == ""


def test_with_numbers_an_open_run_holds_the_matches_behind_it():
    stream = letters("XAB", ctis={3: 4})
    later = shaped("(X A B C | A B)", skip="to next row")
    assert batches(stream.match(later, n=count()))[3] == ([], 4)
    assert batches(stream.match(later, n=hr.match_number()))[3] == ([], 3)


@pytest.mark.slow
def test_an_anchored_match_begins_with_the_first_tuple_of_all():
    assert words(letters("AABAB", ctis={2: 3, 4: 5}), shaped("A+ B").anchored()) == ["AAB@3"]
    assert words(letters("BAB", ctis={1: 2}), shaped("A+ B").anchored()) == []
    assert words(letters("BAB"), shaped("(A | B) A").anchored()) == ["BA@2"]


def test_a_subset_stands_for_its_variables():
    pattern = shaped("A B+ C").subset("S", "A", "B").where(hr.last("S.n") < 4)
    found = letters("ABBCABC").match(pattern, n=count("S"), of=hr.collect("S.n"), first=hr.first("S.n"))
    assert found.cht().to_pylist() == [{"le": 4, "re": 5, "n": 3, "of": [1, 2, 3], "first": 1}]
    differential_reference(found.node)


def test_measures_may_ask_for_what_registers_have_come_to():
    m = col("m")
    pattern = shaped("A B+").register("m", 0, A=m + 5, B=m + count()).register("t", "-", B=col("s"))
    found = letters("ABBB").match(pattern, rows="all", m=m, t=col("t"), end=hr.final("m"))
    assert [(row["m"], row["t"], row["end"]) for row in found.cht().to_pylist()] == [
        (5, "-", 11), (6, "B", 11), (8, "B", 11), (11, "B", 11),
    ]  # fmt: skip
    differential_reference(found.node)


# --- corrections and progress -----------------------------------------------------------------------------------------


def batches(stream: hr.Stream) -> list[tuple[list[tuple[int, int]], int]]:
    """What left in each batch, times and weights, and the CTI after it."""
    result = differential_reference(stream.node).results["out"]
    return [(sorted(zip(c.le.tolist(), c.weight.tolist(), strict=True)), p.cti) for c, p in result.batches]


def test_computed_keys_bring_tuples_together_by_themselves():
    parity = letters("ABAB").group_by(even=col("n") % 2 == 0)
    for rows in ("one", "all"):
        found = parity.match("X Y", rows=rows, c=count())  # type: ignore[arg-type]
        assert "brought together by even" in found.explain()
        differential_reference(found.node, buckets=3)


def test_a_late_tuple_and_a_retracted_one_correct_matches():
    drawn = """
        kind    | le | re | re_new | s
        insert  | 1  | 2  |        | A
        insert  | 3  | 4  |        | B
        insert  | 2  | 3  |        | C
        retract | 2  | 3  | 2      | C
    """
    stream = hr.events(drawn, "s STRING", batches=[1, 1, 1, 1])
    moved = batches(stream.match(shaped("A B"), n=count()))
    assert [left for left, _ in moved[:4]] == [[], [(3, 1)], [(3, -1)], [(3, 1)]]


@pytest.mark.parametrize(
    ("shape", "policy", "ctis"),
    [
        ("A B+", {}, [2, 2, 3]),  # the match AB may grow, and then ABB
        ("A B+?", {}, [2, 3, 4]),  # it is decided
        ("A B", {}, [2, 3, 4]),
        ("A B C", {}, [2, 3, 4]),  # there may be a match, but only from now on
        ("A B C", {"rows": "all"}, [1, 1, 4]),
    ],
)
def test_the_cti_waits_for_what_may_change(shape: str, policy: dict[str, Any], ctis: list[int]):
    stream = letters("ABB", ctis={1: 2, 2: 3, 3: 4})
    found = stream.match(shaped(shape, skip="to next row"), c=count(), **policy)
    assert [cti for _, cti in batches(found)[1:6:2]] == ctis


def test_where_matches_exclude_each_other_an_open_run_holds_those_behind_it():
    stream = letters("XAB", ctis={3: 4})
    later = shaped("(X A B C | A B)")
    assert batches(stream.match(later, n=count()))[3] == ([], 3)
    assert batches(stream.match(later.skip("to next row"), n=count()))[3] == ([], 4)
    assert batches(stream.match(later.all_matches(), n=count()))[3] == ([], 4)
    assert words(letters("XABC"), later) == ["XABC@4"]


def test_when_within_has_passed_nothing_waits_and_nothing_is_kept():
    stream = letters("AB", ctis={2: 100})
    found = stream.match(shaped("A B+", within=50), n=count())
    assert batches(found)[2] == ([], 100)
    done = differential_reference(stream.match(shaped("A B+", within=98), n=count()).node)
    assert done.results["out"].batches[2][1].cti == 100
    held = differential_reference(stream.match(shaped("A B+", within=99), n=count()).node)
    assert held.results["out"].batches[2][1].cti == 2


# --- what is said, and what is refused --------------------------------------------------------------------------------


def test_the_builder_says_what_the_text_says():
    low = col("v") < col("A.v")
    text = hr.pattern("A B+ C?", define={"B": low}, where=count() > 1, within="10 s", skip="to next row")
    built = hr.pattern().then("A").then("B", low, "+").then("C", repeat="?")
    built = built.where(count() > 1).within("10 s").skip("to next row")
    stream = hr.events([{"le": 1, "re": 2, "v": 1}], "v LONG")
    assert stream.match(text, n=count()).node == stream.match(built, n=count()).node
    assert stream.match(text, n=count()).node != stream.match(built.all_matches(), n=count()).node


def test_one_text_says_it_all():
    stream = hr.events([{"le": i, "re": i + 1, "up": up == "U"} for i, up in enumerate("UDDUDUUD")], "up BOOLEAN")
    text = """
        U D+ U+ D+ U+
        define U as up, D as not up
        where count(D.*) = count(U.*) - 1 within 30 ticks after match skip to next row
    """
    back = count("D") == count("U") - 1
    said = hr.pattern("U D+ U+ D+ U+", define={"U": col("up"), "D": ~col("up")}, where=back, within=30)
    assert stream.match(text, n=count()).node == stream.match(said.skip("to next row"), n=count()).node
    with pytest.raises(HeadraceError, match="'down'"):
        stream.match("U D+ define D as down", n=count())


@pytest.mark.parametrize("text", ["A", "A B+ (C | D)?", "(A B){2,4}? PERMUTE(A, B+, C)", "A{3}", "(A | B | C)*? D{2,}"])
def test_a_shape_is_printed_as_it_is_read(text: str):
    assert str(parse(text)) == text
    assert parse(str(parse(text))) == parse(text)


def test_explain_draws_the_automaton():
    text = letters("A").match(hr.pattern("A B*", define={"B": col("n") > col("A.n")}), n=count()).explain()
    assert "1:A   → 2:B, match" in text
    assert "conditions of B asked of runs" in text


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: hr.pattern("A*"), "at least one tuple"),
        (hr.pattern, "at least one tuple"),
        (lambda: hr.pattern("A B+*"), "makes no sense here"),
        (lambda: hr.pattern("(A"), "bracket"),
        (lambda: hr.pattern("A | "), "missing"),
        (lambda: hr.pattern("A{3,2}"), "so many"),
        (lambda: hr.pattern("A{}"), "quantifier"),
        (lambda: hr.pattern("PERMUTE(A, B, C, D, E, F, G)"), "too many orders"),
        (lambda: hr.pattern("A", define={"B": col("n") > 1}), "no variable 'B'"),
        (lambda: hr.pattern("A", define={"A": col("n") + 1}), "not BOOLEAN"),
        (lambda: hr.pattern("A", define={"A": col("m") > 1}), "nothing called 'm'"),
        (lambda: hr.pattern("A", define={"A": 3}), "is an expression"),  # type: ignore[dict-item]
        (lambda: hr.pattern("A").define(A=col("n") > 1).define(A=col("n") > 2), "two conditions"),
        (lambda: hr.pattern("A", skip="to the end"), "not a place to continue"),
        (lambda: hr.pattern("A", skip="to last B"), "no variable 'B'"),
        (lambda: hr.pattern("s", define={}), "is a column and"),
        (lambda: hr.pattern("A B", define={"B": hr.concat(col("A.s")) == "x"}), "cannot ask for concat"),
        (lambda: hr.pattern("A B", define={"B": hr.sum(col("A.n") + col("B.n")) > 1}), "of another"),
        (lambda: hr.pattern("A").within(-1), "negative"),
        (lambda: hr.pattern("A B", define={"B": col("s").like("x%") & (col("A.s") == "a")}).then("2"), "is a name"),
        (lambda: hr.pattern("A", define={"A": hr.prev(hr.prev("n")) > 1}), "stand in each other"),
        (lambda: hr.pattern("A").register("m").register("m"), "already"),
        (lambda: hr.pattern("A").subset("S"), "and variables"),
        (lambda: hr.pattern("A").subset("S", "B"), "no variable 'B'"),
        (lambda: hr.pattern("A B").subset("A", "B"), "a variable and a subset"),
        (lambda: hr.pattern().anchored(), "no shape"),
        (lambda: hr.pattern("A", define={"A": hr.match_number() > 1}), "no number while it is being searched for"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, says: str):
    with pytest.raises(HeadraceError, match=says):
        letters("A").match(make(), n=count())


def test_matches_and_measures_that_make_no_sense():
    with pytest.raises(PlanError, match="looks for a pattern"):
        letters("A").match(3, n=count())  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="needs at least one measure"):
        letters("A").match("A")
    with pytest.raises(PlanError, match="so they have no numbers"):
        letters("A").match(hr.pattern("A").all_matches(), m=hr.match_number())
    with pytest.raises(HeadraceError, match="'n' appears twice"):
        letters("A").match("A", rows="all", n=count())
    with pytest.raises(PlanError, match="both a key and a name of the pattern"):
        letters("A").group_by(A=col("s")).match("A", n=count())
    with pytest.raises(PlanError, match="evaluated before the match is complete"):
        letters("A").match(hr.pattern("A").register("m", 0, A=hr.final("n")).where(col("m") > 0), n=count())
    with pytest.raises(PlanError, match="unknown rows of a match"):
        letters("A").match("A", rows="two", n=count())  # type: ignore[arg-type]


def test_too_many_runs_are_an_error_that_names_the_pattern(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tables, "MOST_RUNS", 500)
    stream = letters("A" * 14)
    with pytest.raises(PatternError, match=r"more than 500 ways"):
        stream.match(hr.pattern("(A | B)+").all_matches(), n=count()).cht()


@pytest.mark.slow
def test_what_is_remembered_does_not_grow():
    stream = letters("AB" * 40, ctis={n: n for n in range(2, 80)})
    for pattern in (shaped("A B+"), shaped("A B A C", within=6), shaped("A B A", within=5, skip="to next row")):
        done = differential_reference(stream.match(pattern, c=count(), p=hr.prev("s", 2)).node)
        assert done.results["out"].batches[-2][1].cti >= 70
        assert 0 < max(states(stream.match(pattern, c=count(), p=hr.prev("s", 2)))) <= 20


def states(stream: hr.Stream) -> list[int]:
    """How many rows a pattern remembers after each batch."""
    line = cut(optimize([Output(stream.node, "out")]))
    runner = Runner(line, 1, None)
    (source,) = line.sources
    rows = []
    for block in batches_of(source):
        runner.round({source.fingerprint: block})
        kernels = [kernel for stage in runner.stages for run in stage for kernel in run.kernels.values()]
        rows += [kernel.state()["rows"] for kernel in kernels if isinstance(kernel, MatchKernel)]
    return rows


def test_a_run_is_open_as_long_as_its_next_tuple_is_not_settled():
    """The second tuple's successor may still change, however long ago `within` has passed for the first one."""
    stream = hr.events("""
        kind   | le | re | i
        insert | 6  | 7  | 1
        insert | 6  | 7  | 2
        insert | 22 | 23 | 3
        cti    | 20 |    |
        insert | 20 | 21 | 4
    """, batches=[1] * 5)  # fmt: skip
    for rows in ("one", "all"):
        found = stream.match(hr.pattern("A B", within=0), rows=rows, behind=hr.next("i"))
        differential_reference(found.node)
        assert found.cht().to_pylist()[-1]["behind"] == 4


def test_a_quiet_group_is_freed_once_within_has_passed_twice():
    """Until then its alarm may be late: it frees state, and no answer waits for it."""
    pattern = shaped("A B C", within=10)
    stream = letters("ABXX", times=[1, 2, 30, 31], ctis={2: 3, 3: 12, 4: 22})
    *_, run_is_over, _, freed = states(stream.group_by(k=col("s") == "X").match(pattern, n=count()))
    others = states(letters("XX", times=[30, 31]).match(pattern, n=count()))[-1]
    assert run_is_over > others
    assert freed == others


def test_a_restored_kernel_waits_where_the_saved_one_did():
    """The least time at which the output CTI waits is kept in memory, and read from the trace after a restart."""
    stream = letters("ABAB", times=[1, 2, 4, 30], ctis={2: 3, 3: 5}).match(shaped("A B+", within=10), n=count())
    check_same_batches(restarted(stream.node, 1), live(stream.node, 1), "restarted after every batch")
    assert [progress.cti for _, progress in live(stream.node, 1).batches][3] == 2
