"""Intents: what they say, what is refused, and that every query they stand for is one that the engine runs rightly."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import combinations, islice
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.paced import random_rounds
from tests.strategies.plans import sources

import headrace as hr
from headrace.errors import IntentError
from headrace.testing import intents as intent
from headrace.testing.generators import traits
from headrace.testing.generators.traits import DIMENSIONS, TRAITS, Traits
from headrace.testing.intents.catalogue import KINDS
from headrace.testing.intents.pairwise import pairwise
from headrace.testing.intents.text import read_intent, read_traits
from headrace.testing.intents.transform import Concrete, concrete
from headrace.testing.intents.tree import Intent
from headrace.testing.strategies import SCHEMA, Event
from headrace.testing.verify.differential import differential_reference
from headrace.time import INFINITY

#: How many queries of each kind are tried, and how many compositions.
OF_EACH = max(3, settings().max_examples // 12)
OF_ANY = max(10, settings().max_examples // 2)
#: The kinds that are queries as they are.
QUERIES = [kind for kind in KINDS if kind != "any"]

# --- streams to try queries on ----------------------------------------------------------------------------------------

WHOLE = (0, 1, 2, -1, 7, None, 2**63 - 1, -(2**63), 2**53 + 1)
FLOATS = (0.0, 1.0, -2.5, 0.1, 3.0, None, float("nan"), float("inf"), -float("inf"), -0.0, 1e300, 5e-324)


def told(random: Random) -> list[Event]:
    """A physical stream that keeps its promises, with corrections."""
    odd = random.random() < 0.4
    whole, floats = (WHOLE, FLOATS) if odd else (WHOLE[:6], FLOATS[:6])
    events: list[Event] = []
    alive: list[tuple[int, int, Event]] = []
    cti = -1
    for _ in range(random.randint(0, 12)):
        what = random.random()
        if what < 0.2:
            cti += random.randint(1, 5)
            events.append({"kind": "cti", "le": cti, "re": None, "re_new": None, **dict.fromkeys("kix")})
        elif what < 0.5 and alive:
            place = random.randrange(len(alive))
            le, re, payload = alive[place]
            new = max(le, cti) + random.choice([0, 1, 3, 9])
            if re < cti or new == re or (new == le and le < cti):
                continue
            events.append({"kind": "retract", "le": le, "re": re, "re_new": new, **payload})
            alive[place : place + 1] = [(le, new, payload)] if new > le else []
        else:
            le = max(cti, 0) + random.randint(0, 12)
            re = random.choice([le + 1, le + 1, le + 2, le + 5, le + 14, INFINITY])
            payload = {"k": random.choice(("a", "b", "c", None)), "i": random.choice(whole), "x": random.choice(floats)}
            events.append({"kind": "insert", "le": le, "re": re, "re_new": None, **payload})
            alive.append((le, re, payload))
    return events


def streams(seed: int, count: int) -> list[hr.Stream]:
    """Streams to try a query on: each by itself, or such that keep pace with each other."""
    random = Random(seed)
    if random.random() < 0.4:
        rounds = random_rounds(seed, count, 8)
        return [sources([e for r in rounds for e in r[n]], tuple(len(r[n]) for r in rounds)) for n in range(count)]
    found = [told(random) for _ in range(count)]
    return [sources(e, (1,) * len(e) if random.random() < 0.5 else (len(e),) if e else ()) for e in found]


def check(query: Concrete, seed: int) -> None:
    """It keeps the columns, its text gives the same plan, and the engine and the twins agree on it."""
    inputs = streams(seed, query.sources)
    built = query.build(inputs)
    assert built.schema == SCHEMA
    names: dict[str, Any] = {f"s{number}": stream for number, stream in enumerate(inputs)}
    exec(query.python(), names)  # noqa: S102 - that it runs is what is tested
    assert names["out"].node == built.node
    try:
        differential_reference(built.node, buckets=1 + seed % 3)
    except Exception as error:
        error.add_note(f"seed {seed}: {query.describe()}\n{query.python()}")
        raise


@pytest.mark.parametrize("kind", QUERIES)
def test_every_kind_is_a_query_that_the_engine_and_the_twins_agree_on(kind: str):
    for seed, query in enumerate(islice(concrete(Intent(kind), 1), OF_EACH)):
        assert query.kind == kind
        check(query, seed)


@pytest.mark.parametrize("part", range(5))
def test_any_is_a_composition_that_the_engine_and_the_twins_agree_on(part: int):
    for seed, query in enumerate(islice(concrete(intent.any(), part), OF_ANY // 5)):
        assert "any" not in [node.kind for node in query.walk()]
        check(query, 100 * part + seed)


@pytest.mark.parametrize("kind", QUERIES)
def test_every_value_of_every_dimension_makes_a_plan_of_its_own(kind: str):
    """Otherwise it would be counted as tried without being so; the size of a snapshot is the one that means nothing."""
    found = KINDS[kind]
    inputs = streams(3, found.arity)
    plain = {"module": "onwards" if kind == "operate" else "timed"}
    start = {name: plain.get(name, values[0]) for name, values in found.dimensions.items()}
    for name, values in found.dimensions.items():
        rows = [start | {name: value} for value in values if found.allowed(start | {name: value})]
        plans = [found.build(tuple(inputs), row).node.fingerprint for row in rows]
        assert len(set(plans)) == len(plans) > 1, name


@given(st.sampled_from(sorted(KINDS)), st.integers(0, 1000))
@settings(max_examples=max(10, settings().max_examples // 2))
def test_the_same_intent_and_seed_give_the_same_queries(kind: str, seed: int):
    first, second = (list(islice(concrete(Intent(kind), seed), 4)) for _ in range(2))
    assert [q.python() for q in first] == [q.python() for q in second]
    assert [q.describe() for q in first] == [q.describe() for q in second]


def test_queries_do_not_depend_on_the_hashes_of_a_process():
    program = (
        "from itertools import islice\nfrom headrace.testing import intents as i\n"
        "for q in islice(i.concrete(i.equi_join() >> i.any(), 5), 8): print(q.describe(), q.python())"
    )
    given = [
        subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    assert given[0] == given[1] != b""


# --- filling in -------------------------------------------------------------------------------------------------------


def test_the_first_queries_of_an_intent_cover_all_pairs_of_what_it_leaves_open():
    wanted = intent.equi_join(over=traits.in_order | traits.out_of_order)
    seen: set[tuple[Any, ...]] = set()
    for query in islice(concrete(wanted, 1), 60):
        cells = [*query.options.items(), *query.settings[0].items()]
        seen |= set(combinations(cells, 2))
    dimensions = {**KINDS["equi_join"].dimensions, **DIMENSIONS, "disorder": ("in_order", "out_of_order")}
    for (a, mine), (b, others) in combinations(dimensions.items(), 2):
        assert {((a, v), (b, w)) for v in mine for w in others} <= seen


def test_options_that_rule_out_most_others_are_found():
    """For a module that sees no lifetimes nothing is clipped: most values of one dimension do not go with it."""
    wanted = read_intent("module_aggregate(module=merging|two_merging, beside=nothing, verify=no)")
    for query in islice(concrete(wanted, 0), 20):
        assert query.options["clipping"] == "none"


def test_what_is_said_of_an_intent_holds_for_all_its_streams_and_what_is_said_of_one_for_that_one():
    wanted = intent.equi_join(
        intent.stream(over=traits.points), intent.where(over=traits.infinite | traits.long), over=traits.lulls
    )
    for query in islice(concrete(wanted, 2), 20):
        first, second = query.settings
        assert first["lulls"] == second["lulls"] == "lulls"
        assert first["duration"] == "points"
        assert second["duration"] in ("infinite", "long")
    assert query.inputs[0] == 0
    assert isinstance(query.inputs[1], Concrete)


def test_streams_of_a_query_differ():
    settings_of = [query.settings for query in islice(concrete(intent.union(), 1), 20)]
    assert any(first != second for first, second in settings_of)
    assert all(set(one) == set(DIMENSIONS) for pair in settings_of for one in pair)


def test_an_intent_embedded_in_another_is_its_input():
    for query in islice(concrete(intent.aggregate(intent.equi_join(), window="snapshot"), 3), 20):
        assert query.options["window"] == "snapshot"
        assert [node.kind for node in query.walk()] == ["aggregate", "equi_join"]
        assert query.sources == 2
        check(query, 3)


def test_any_reads_what_is_piped_into_it_and_can_be_piped_on():
    query = next(concrete(intent.top() >> intent.any(depth="2") >> intent.final(), 4))
    kinds = [node.kind for node in query.walk()]
    assert kinds[0] == "final"
    assert "top" in kinds
    check(query, 1)


def test_any_is_told_which_queries_come_last():
    for query in islice(concrete(intent.any(operator="top", below="clip", depth="3"), 4), 10):
        assert query.kind == "top"
        assert isinstance(query.inputs[0], Concrete)
        assert query.inputs[0].kind == "clip"


def test_an_intent_about_streams_alone_is_tried_with_the_plainest_query():
    query = next(concrete(intent.stream(over=traits.points), 1))
    assert query.python() == "import headrace as hr\n\nout = s0.where(hr.lit(True))\n"
    assert query.settings[0]["duration"] == "points"


def test_what_a_query_covers_is_said_by_dimension():
    wanted = intent.where(predicate="null") >> intent.operate(
        module="onwards", window="session", clipping="full", timestamping="clip", over=traits.out_of_order
    )
    query = next(concrete(wanted, 1))
    covered = query.covers()
    assert covered["operator"] == "operate + where"
    assert covered["policy"] == "full clip"
    assert (covered["window"], covered["disorder"], covered["predicate"]) == ("session", "out_of_order", "null")
    assert "\n" not in query.describe()
    assert query.describe().startswith("operate(where(s0, predicate=null), window=session")


def test_options_that_do_not_go_together_are_refused_and_never_chosen():
    with pytest.raises(IntentError, match="cannot be combined") as raised:
        concrete(intent.operate(module="plain", clipping="left"), 1)
    assert raised.value.given == "module=plain, clipping=left"
    for query in islice(concrete(intent.operate(), 1), 200):
        assert KINDS["operate"].allowed(query.options)


def test_traits_that_contradict_those_of_all_streams_are_refused_when_it_is_filled_in():
    with pytest.raises(IntentError, match="no stream can have both traits"):
        concrete(intent.where(intent.select(over=traits.points), over=traits.infinite), 1)


# --- pairwise ---------------------------------------------------------------------------------------------------------


def covered_after(dimensions: dict[str, list[str]], seed: int, rows: int) -> set[tuple[Any, ...]]:
    found = islice(pairwise(dimensions, seed), rows)
    return {pair for row in found for pair in combinations(row.items(), 2)}


@pytest.mark.parametrize(
    ("dimensions", "values", "rows"), [(4, 3, 11), (13, 3, 21), (10, 4, 34), (3, 10, 115)]
)  # AETG: 9, 15, about 28, 100
def test_all_pairs_occur_in_few_rows(dimensions: int, values: int, rows: int):
    space = {f"d{d}": [f"v{v}" for v in range(values)] for d in range(dimensions)}
    pairs = dimensions * (dimensions - 1) // 2 * values**2
    assert len(covered_after(space, 1, rows)) == pairs


@given(st.lists(st.integers(1, 5), max_size=6), st.integers(0, 99))
def test_all_pairs_occur_whatever_the_dimensions_are_and_rows_never_end(sizes: list[int], seed: int):
    space = {f"d{d}": [f"v{v}" for v in range(size)] for d, size in enumerate(sizes)}
    rows = list(islice(pairwise(space, seed), 60))
    assert len(rows) == 60
    assert rows == list(islice(pairwise(space, seed), 60))
    wanted = {((a, v), (b, w)) for a, b in combinations(space, 2) for v in space[a] for w in space[b]}
    assert {pair for row in rows for pair in combinations(row.items(), 2)} == wanted
    for name, values in space.items():
        assert {row[name] for row in rows} == set(values)


@given(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2)), max_size=25), st.integers(0, 9))
def test_only_rows_that_are_allowed_and_all_pairs_that_can_be(forbidden: set[tuple[int, int, int]], seed: int):
    space = {"a": list("0123"), "b": list("012"), "c": list("012")}

    def allowed(row: Any) -> bool:
        return len(row) < 3 or tuple(int(row[name]) for name in "abc") not in forbidden

    whole = [{"a": a, "b": b, "c": c} for a in space["a"] for b in space["b"] for c in space["c"]]
    possible = {pair for row in whole if allowed(row) for pair in combinations(row.items(), 2)}
    rows = list(islice(pairwise(space, seed, allowed=allowed), 45))
    assert all(map(allowed, rows))
    assert {pair for row in rows for pair in combinations(row.items(), 2)} == possible


def test_rows_that_cannot_be_are_refused_at_once():
    with pytest.raises(IntentError, match="can be combined"):
        pairwise({"a": ["1", "2"], "b": ["1"]}, 1, allowed=lambda row: len(row) < 2)
    with pytest.raises(IntentError, match="no value left"):
        pairwise({"a": []}, 1)


# --- saying it --------------------------------------------------------------------------------------------------------


def test_an_intent_is_said_in_python_and_in_text():
    said = intent.equi_join(over=traits.highly_out_of_order & traits.speculative)
    assert said == read_intent("equi_join over highly_out_of_order & speculative")
    embedded = intent.aggregate(intent.equi_join(), window="snapshot", over=traits.points)
    assert embedded == read_intent("aggregate(equi_join, window=snapshot) over points")
    piped = intent.equi_join() >> intent.aggregate(function="median", over=traits.lulls & traits.nulls)
    assert piped == read_intent("equi_join >> aggregate(function=median) over lulls & nulls")
    assert intent.top(k=1) == read_intent("top(k=1)")
    assert intent.clip(None, intent.where()) == read_intent("clip(stream, where)")


def test_a_pipe_fills_the_first_input_that_is_left_out():
    assert str(intent.where() >> intent.clip(intent.select())) == "clip(select(where))"
    assert str(intent.where() >> intent.clip(intent.stream(over=traits.points))) == "clip(stream over points, where)"
    with pytest.raises(IntentError, match="omits no input"):
        intent.where() >> intent.stream(over=traits.points)
    with pytest.raises(TypeError):
        intent.where() >> 1


@st.composite
def some_traits(draw: st.DrawFn) -> Traits:
    allowed = {}
    for name in draw(st.lists(st.sampled_from(sorted(DIMENSIONS)), unique=True, max_size=3)):
        allowed[name] = frozenset(draw(st.sets(st.sampled_from(DIMENSIONS[name]), min_size=1)))
    return Traits(allowed)


@st.composite
def some_intents(draw: st.DrawFn, depth: int = 3) -> Intent:
    kind = draw(st.sampled_from([*KINDS, "stream"])) if depth else "stream"
    if kind == "stream":
        return Intent(kind, over=draw(some_traits()))
    inputs = [draw(st.none() | some_intents(depth=depth - 1)) for _ in range(draw(st.integers(0, KINDS[kind].arity)))]
    options = {}
    for name, values in KINDS[kind].dimensions.items():
        if draw(st.booleans()):
            options[name] = frozenset(draw(st.sets(st.sampled_from(values), min_size=1)))
    return Intent(kind, tuple(inputs), options, draw(some_traits()))


@given(some_intents())
def test_what_an_intent_prints_reads_as_itself(given: Intent):
    assert read_intent(str(given)) == given


@given(some_traits())
def test_what_traits_print_reads_as_themselves(given: Traits):
    assert read_traits(str(given)) == given


@pytest.mark.parametrize(
    ("text", "said", "place", "instead"),
    [
        ("equi_jon over points", "no kind of query 'equi_jon'", 0, "equi_join"),
        ("aggregate(window=snapshott)", "no window of aggregate 'snapshott'", 17, "snapshot"),
        ("aggregate(windo=snapshot)", "no dimension of aggregate 'windo'", 10, "window"),
        ("equi_join over in_ordr", "no trait 'in_ordr'", 15, "in_order"),
        ("equi_join over in_order & out_of_order", "no stream can have both traits", 26, "|"),
        ("equi_join over in_order | points", "between values of one dimension", 24, ""),
        ("where(", "a kind of query is missing", 6, ""),
        ("where(select", "',' is missing", 12, ""),
        ("(where", "')' is missing", 6, ""),
        ("where over", "a trait is missing", 10, ""),
        ("where % 3", "cannot be read to its end", 6, ""),
        ("where\nselect", "cannot be read to its end", 6, ""),
        ("where(predicate=text, select)", "inputs come before options", 22, ""),
        ("where(predicate=text, predicate=null)", "said twice", 22, ""),
        ("where(predicate=)", "a value of predicate is missing", 16, ""),
        ("where(select, select)", "where has 1 input", 0, ""),
        ("where >> stream", "omits no input", 6, ""),
        ("", "a kind of query is missing", 0, ""),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(text: str, said: str, place: int, instead: str):
    with pytest.raises(IntentError) as raised:
        read_intent(text)
    assert said in raised.value.message
    lines = raised.value.message.splitlines()
    assert lines[-1] == " " * (2 + place) + "^"
    assert lines[-2] == "  " + text.replace("\n", " ")
    assert raised.value.allowed
    assert instead in raised.value.instead


@given(
    st.text("ab(),|&=> ")
    | st.lists(st.sampled_from([*"(),|&=", ">>", "over", "where", "window", *TRAITS])).map(" ".join)
)
def test_any_text_is_read_or_refused(text: str):
    for read in (read_intent, read_traits):
        try:
            read(text)
        except IntentError as error:
            assert "^" in error.message  # noqa: PT017 - either is right


def test_mistakes_in_python_are_refused():
    with pytest.raises(IntentError, match="no kind of query 'equijoin'") as raised:
        _ = intent.equijoin
    assert raised.value.instead == "intent.equi_join()"
    assert not hasattr(intent, "equijoin")
    with pytest.raises(IntentError, match="no function of aggregate 'medan'"):
        intent.aggregate(function=["avg", "medan"])
    with pytest.raises(IntentError, match="has no value"):
        intent.aggregate(function=[])
    with pytest.raises(IntentError, match="described by traits"):
        intent.where(over="points")
    with pytest.raises(IntentError, match="an input must be an intent"):
        intent.where("select")
    with pytest.raises(IntentError, match="not a query yet"):
        KINDS["any"].build(tuple(streams(1, 1)), {})
