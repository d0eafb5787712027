"""Absence at the end of a pattern: what a slow search finds, however rows come (rules 1.5 and 9.4)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import col, count
from headrace.errors import PlanError
from headrace.plan.nodes import Final
from headrace.testing.batches import check_same_batches
from headrace.testing.checks import check_output
from headrace.testing.strategies import batch_sizes, buckets
from headrace.testing.verify.checks import live, restarted
from headrace.testing.verify.differential import differential_reference

HALF = settings(max_examples=max(5, settings().max_examples // 2))
FEW = settings(max_examples=max(5, settings().max_examples // 5))
COLUMNS = "k STRING, s STRING, v LONG, n LONG"
A, B = col("s") == "a", col("s").isin("a", "b")
#: The shapes, and what they are as regular expressions over the letters of rows.
SHAPES = {"A": "a", "A B*": "a[ab]*", "A B+": "a[ab]+", "A B*?": "a", "A B{1,2}": "a[ab]{1,2}", "A A B?": "aa[ab]?"}


class Row(NamedTuple):
    le: int
    k: str | None
    s: str
    v: int
    n: int


class Case(NamedTuple):
    """A stream, its rows, and whether their arrivals are known: not if there are retractions."""

    stream: hr.Stream
    rows: list[Row]
    arrivals: bool


Condition = Callable[[Sequence[Row], Row, Row | None], bool]
#: What must be absent, and the same of a match, a row and the row before it.
ABSENT: list[tuple[hr.Expr | None, Condition]] = [
    (None, lambda *_: True),
    (col("s") == "c", lambda _match, row, _: row.s == "c"),
    (col("C.s") == "c", lambda _match, row, _: row.s == "c"),
    ((col("s") != "a") & (col("v") >= hr.first("A.v")), lambda match, row, _: row.s != "a" and row.v >= match[0].v),
    (col("v") > hr.sum("v"), lambda match, row, _: row.v > sum(one.v for one in match)),
    (col("v") > count(), lambda match, row, _: row.v > len(match)),
    (hr.prev("s") == "c", lambda _match, _row, before: before is not None and before.s == "c"),
    ((col("m") == col("C.v")) & (col("s") > "a"), lambda match, row, _: row.v == match[0].v and row.s > "a"),
    (col("le") - hr.first("le") > 2, lambda match, row, _: row.le - match[0].le > 2),
    ((col("s") == "c") | (hr.last("v") == 0), lambda match, row, _: row.s == "c" or match[-1].v == 0),
]


def found(case: Case, shape: str, span: int, skip: str, absent: Condition) -> list[tuple[Any, ...]]:
    """Search each group in its order; look at every later row of each match."""
    answers = []
    for key in dict.fromkeys(row.k for row in case.rows):
        group = [row for row in case.rows if row.k == key]
        group.sort(key=lambda row: (row.le, row.n) if case.arrivals else (row.le, row.s, row.v, row.n))
        at = 0
        while at < len(group):
            limit = group[at].le + span
            near = [row for row in group[at:] if row.le <= limit]
            match = near[: _length(SHAPES[shape], "".join(row.s for row in near))]
            rest = [
                place
                for place in range(at + len(match), at + len(near))
                if match and (case.arrivals or group[place].le > match[-1].le)
            ]
            if match and not any(absent(match, group[i], group[i - 1] if i else None) for i in rest):
                answers.append((limit, limit + 1, key, match[0].n, len(match), match[-1].v))
            at += len(match) if match and skip == "past last row" else 1
    return answers


def _length(expression: str, letters: str) -> int:
    fits = re.match(expression, letters)
    return len(fits[0]) if fits else 0


@st.composite
def cases(draw: st.DrawFn, size: int = 12) -> Case:
    """Rows in any order, some of them retracted later, with promises that are kept, in batches of any size."""
    parts = st.tuples(st.integers(0, 8), st.sampled_from(["x", "x", "x", None]), st.sampled_from("aabbcd"),
                      st.integers(0, 4))  # fmt: skip
    rows = [Row(*part, n) for n, part in enumerate(draw(st.lists(parts, min_size=4, max_size=size)))]
    dropped = draw(st.sets(st.sampled_from(rows), max_size=len(rows) // 3))
    steps: list[tuple[str, Row]] = [("insert", row) for row in rows]
    for row in dropped:
        steps.insert(draw(st.integers(row_place(steps, row) + 1, len(steps))), ("retract", row))
    events: list[dict[str, Any]] = []
    for place, (kind, row) in enumerate(steps):
        if draw(st.integers(0, 3)) == 0:
            events.append({"kind": "cti", "le": min(later.le for _, later in steps[place:])})
        events.append({"kind": kind, "le": row.le, "re": row.le + 1, **dict(zip("ksvn", row[1:], strict=True))})
        events[-1] |= {"re_new": row.le} if kind == "retract" else {}
    stream = hr.events(events, COLUMNS, batches=draw(batch_sizes(len(events))))
    return Case(stream, [row for row in rows if row not in dropped], not dropped)


def row_place(steps: list[tuple[str, Row]], row: Row) -> int:
    return steps.index(("insert", row))


PATTERNS = st.tuples(
    st.sampled_from(list(SHAPES)),
    st.integers(0, 5),
    st.sampled_from(["past last row", "past last row", "to next row"]),
    st.sampled_from(ABSENT),
)


def query(stream: hr.Stream, drawn: tuple[str, int, str, tuple[hr.Expr | None, Any]]) -> hr.Stream:
    shape, span, skip, (condition, _) = drawn
    pattern = hr.pattern(shape, skip=skip, within=span).then_not("C", condition)
    defined = {"A": A, "B": B}
    pattern = pattern.define({name: defined[name] for name in defined if name in shape})
    pattern = pattern.register("m", -1, A=hr.when(col("m") < 0).then("v").otherwise("m"))
    return stream.group_by("k").match(pattern, first=hr.first("n"), rows_=count(), last=col("v"))


@HALF
@given(cases(), PATTERNS)
def test_oracle_a_slow_search_finds_the_same(case: Case, drawn: Any):
    shape, span, skip, (_, absent) = drawn
    answers = [tuple(row.values()) for row in query(case.stream, drawn).cht().to_pylist()]
    assert sorted(answers, key=str) == sorted(found(case, shape, span, skip, absent), key=str)


@FEW
@given(cases(), PATTERNS, buckets())
def test_differential_absence(case: Case, drawn: Any, n: int):
    differential_reference(query(case.stream, drawn).node, buckets=n)


@FEW
@given(cases(), PATTERNS)
def test_oracle_history_says_the_same(case: Case, drawn: Any):
    asked = query(case.stream, drawn)
    assert hr.history_diff(asked.cht(), asked.history("duckdb").cht()) == ""


@FEW
@given(cases(), PATTERNS, buckets())
def test_restarts_and_final_answers_do_not_show(case: Case, drawn: Any, n: int):
    node = query(case.stream, drawn).node
    check_same_batches(restarted(node, n), live(node, n), "restarted after every batch")
    result = live(Final(node), n)
    check_output(result.events())
    assert hr.same_history(result.cht(), hr.Stream(node).cht())


# --- drawn streams ---------------------------------------------------------------------------------------------------

ORDERED = hr.pattern("O !P", define={"O": col("s") == "order", "P": col("s") == "paid"}, within=10)


def changes(text: str, batches: list[int]) -> list[tuple[Any, ...]]:
    output = hr.events(text, "s STRING", batches=batches).match(ORDERED, since=hr.first("le")).run(finish=False)
    return [(row["kind"], row["le"], row["since"]) for row in output.events().to_pylist()]


def test_a_match_is_final_when_its_time_has_passed():
    given = """
        kind   | le | re | s
        insert | 1  | 2  | order
        cti    | 11 |    |
        cti    | 12 |    |
    """
    assert changes(given, [1, 1, 1]) == [("insert", 11, 1), ("cti", 11, None), ("cti", 12, None)]


def test_what_comes_late_retracts_the_match():
    given = """
        kind   | le | re | s
        insert | 1  | 2  | order
        insert | 20 | 21 | other
        insert | 11 | 12 | paid
    """
    assert changes(given, [1, 1, 1]) == [("insert", 11, 1), ("retract", 11, 1)]
    assert changes(given.replace("11 | 12", "12 | 13"), [1, 1, 1]) == [("insert", 11, 1)]


def test_rows_that_start_together_are_in_the_order_of_arrival_if_it_is_known():
    together = hr.events("le | s \n 1 | order \n 1 | paid \n 2 | paid \n 20 | paid \n 20 | order", "s STRING")
    assert [row["le"] for row in together.match(ORDERED, n=count()).cht().to_pylist()] == [30]
    first = hr.events("le | s \n 1 | order \n 1 | paid", "s STRING")
    assert first.match(ORDERED, n=count()).cht().num_rows == 0
    unknown = first.coalesce()  # makes events of its own, which have not arrived
    assert unknown.match(ORDERED, n=count()).cht().num_rows == 1


@pytest.mark.parametrize(
    ("pattern", "options", "message"),
    [
        (hr.pattern("A !C"), {}, "!C needs a time"),
        (hr.pattern("A !C B", within=1), {}, "an absence is the end of a pattern"),
        (hr.pattern("!C", within=1), {}, "an absence is the end of a pattern"),
        (hr.pattern("A (!C)+", within=1), {}, "an absence is the end of a pattern"),
        (hr.pattern("A C !C", within=1), {}, "an absence is the end of a pattern"),
        (hr.pattern("A !B !C", within=1), {}, "an absence is the end of a pattern"),
        (hr.pattern("A | B !C", within=1), {}, "an absence is the end of a pattern"),
        (hr.pattern("A !C", within=1, skip="to last C"), {}, "the pattern has no variable 'C'"),
        (hr.pattern("A !C", within=1).partial(), {}, "partial matches"),
        (hr.pattern("A !C", within=1), {"rows": "all"}, "all rows of a match"),
        (hr.pattern("A !C", within=1), {"m": hr.match_number()}, "no numbers"),
        (hr.pattern("A !C", within=1), {"m": col("C.s")}, "there is nothing called 'C.s'"),
        (hr.pattern("A !C", within=1, define={"C": hr.final("s") == "x"}), {}, "cannot use this"),
    ],
)  # fmt: skip
def test_what_is_refused(pattern: hr.Pattern, options: dict[str, Any], message: str):
    stream = hr.events("le | s \n 1 | a", "s STRING")
    with pytest.raises(PlanError, match=re.escape(message)):
        stream.match(pattern, n=count(), **options)


def test_misplaced_absences_and_missing_names_are_refused_early():
    with pytest.raises(PlanError, match="an absence is the end"):
        hr.pattern("!C A").anchored()
    with pytest.raises(PlanError, match="after ! comes the variable"):
        hr.pattern("A !(B C)")
    with pytest.raises(PlanError, match="not what is absent"):
        hr.pattern("A !C", within=1).transitions()
    stream, rules = hr.events("le | s \n 1 | a", "s STRING"), hr.events(hr.pattern("A").transitions())
    with pytest.raises(PlanError, match="a pattern has no absence"):
        stream.match(hr.pattern("A !C", within=1).all_matches(), transitions=rules, n=count())
