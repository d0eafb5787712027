"""Every planted fault is real: for each there is a small stream that it answers wrongly, and the engine does not.

Streams are written in one line: `[1,5) a 1 0.5` is an insert with k, i and x, `[1,5)->3 a 1 0.5` its retraction,
`cti 4` a promise; `_` is null, `;` goes on in the same batch and `|` begins the next.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.properties.test_recovery import run as run_with_restarts
from tests.verification.faults import FAULTS, Fault, FaultError, fault, planted
from tests.verification.planting import site

import headrace as hr
from headrace import col
from headrace.columnar import factorize
from headrace.errors import EventError
from headrace.host.local.run import run_local
from headrace.optimizer import optimize
from headrace.plan.nodes import Output
from headrace.progress import Progress
from headrace.stages.cut import cut
from headrace.testing.checks import Violation
from headrace.testing.strategies import SCHEMA
from headrace.testing.verify.differential import differential_reference
from headrace.time import INFINITY

Query = Callable[..., hr.Stream]
Check = Callable[[hr.Stream, int], None]


# --- streams ----------------------------------------------------------------------------------------------------------


def told(text: str) -> hr.Stream:
    """The stream of a line."""
    batches = [[_event(event) for event in batch.split(";") if event.strip()] for batch in text.split("|")]
    rows = [event for batch in batches for event in batch]
    sizes = [len(batch) for batch in batches if batch]
    # What the engine refuses is diverted, so that it still answers, and the answer is wrong.
    return hr.events(rows, SCHEMA.arrow, batches=sizes, progress=hr.explicit("divert"), bad_rows="divert")


def _event(text: str) -> dict[str, Any]:
    promise = re.fullmatch(r"cti (-?\d+)", text.strip())
    if promise is not None:
        return {"kind": "cti", "le": int(promise[1])}
    match = re.fullmatch(r"\[(-?\d+),(-?\d+|∞)\)(?:->(-?\d+|∞))? (\S+) (\S+) (\S+)", text.strip())
    assert match is not None, text
    le, end, new_end, k, i, x = match.groups()
    payload = {"k": None if k == "_" else k, "i": None if i == "_" else int(i), "x": None if x == "_" else float(x)}
    if new_end is None:
        return {"kind": "insert", "le": int(le), "re": _time(end), **payload}
    return {"kind": "retract", "le": int(le), "re": _time(end), "re_new": _time(new_end), **payload}


def _time(text: str) -> int:
    return INFINITY if text == "∞" else int(text)


def points(folder: Path, *batches: str) -> hr.Stream:
    """Points `t,k` of a file for each batch; the highest time is the CTI."""
    for number, rows in enumerate(batches):
        (folder / f"{number}.csv").write_text("t,k\n" + rows.replace(" ", "\n") + "\n")
    return hr.read_csv(str(folder), "t LONG, k STRING", lifetime=hr.point("t"), progress=hr.advance(0))


# --- what may be wrong ------------------------------------------------------------------------------------------------


def as_the_twins(stream: hr.Stream, buckets: int) -> None:
    """After every batch the history and the promise are those of the twins, and the output keeps its promises."""
    differential_reference(stream.node, buckets=buckets)


def restarted(stream: hr.Stream, buckets: int) -> None:
    """Stopped and restored before every batch, the query gives the same."""
    line = cut(optimize([Output(stream.node, "out")]))
    whole = run_with_restarts(line, buckets, set())
    again = run_with_restarts(line, buckets, set(range(-1, len(whole))))
    if again != whole:
        raise Violation("a run that was restarted differs", given=again, allowed=str(whole))


def as_written(stream: hr.Stream, buckets: int) -> None:
    """With all rules of the optimizer the query promises as early as with none."""

    def promises(**options: Any) -> list[Progress]:
        done = run_local([Output(stream.node, "out")], buckets=buckets, **options)
        return [progress for _, progress in done.results["out"].batches]

    with_rules, without = promises(), promises(rules=())
    if with_rules != without:
        raise Violation("the optimizer changes what is promised", given=with_rules, allowed=str(without))


# --- modules ----------------------------------------------------------------------------------------------------------


class Lasting(hr.Aggregate):
    """How long events last together."""

    input = "v LONG"
    output = "LONG"
    time_sensitive = True

    def compute(self, items: list[Any], _window: Any) -> int:
        return sum(item.re - item.le for item in items if item.re < INFINITY)


class Total(hr.IncrementalAggregate):
    """A sum, kept up."""

    input = "v LONG"
    output = "LONG"

    def initial(self) -> list[int]:
        return [0]

    def add(self, state: list[int], items: list[Any]) -> None:
        state[0] += sum(item or 0 for item in items)

    def remove(self, state: list[int], items: list[Any]) -> None:
        state[0] -= sum(item or 0 for item in items)

    def merge(self, state: list[int], other: list[int]) -> list[int]:
        return [state[0] + other[0]]

    def compute(self, state: list[int]) -> int:
        return state[0] % 2**40


# --- examples ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Example:
    """A query and streams for it that tell the engine with a fault from the one without."""

    query: Query
    streams: tuple[str, ...] = ()
    buckets: int = 1
    check: Check = as_the_twins

    def stream(self, folder: Path) -> hr.Stream:
        """The query, made anew, for plans remember what they have worked out; one without streams reads files."""
        return self.query(*map(told, self.streams)) if self.streams else self.query(folder)


def counted(window: Any, *keys: str, **more: Any) -> Query:
    """Counts by window."""
    return lambda s: s.group_by(*keys).window(window).aggregate(n=hr.count(), **more)


def in_sessions(*keys: str) -> Query:
    """Counts by session, beside a value for which the events of a session are read."""
    return counted(hr.session(4), *keys, middle=hr.median("i"))


def unchanged(stream: hr.Stream) -> hr.Stream:
    """All that comes, as it came."""
    return stream


EXAMPLES: dict[str, Example] = {
    "removals that get lost": Example(
        counted(hr.tumbling(5)), ("[0,1) a 1 1.0 | [0,1)->0 a 1 1.0; [0,5) a 1 0.0; [0,5) a 1 0.0",)
    ),
    "pairing without the start": Example(unchanged, ("[2,3) a 1 0.0 | [2,3)->2 a 1 0.0; [0,1) a 1 0.0",)),
    "empty lifetimes that stay": Example(lambda s: s.extend(-2), ("[0,1) a 1 1.0; [0,1)->2 a 1 1.0",)),
    "deletion that says its old end": Example(unchanged, ("[0,1) a 1 1.0 | [0,1)->0 a 1 1.0",)),
    "deletion that leaves an instant": Example(unchanged, ("[0,1) a 1 1.0; [0,1)->0 a 1 1.0",)),
    "minus zero is another key": Example(lambda a, b: a.join(b, "x"), ("[0,1) a 1 -0.0", "[0,1) a 1 0.0")),
    "merge that drops a segment": Example(
        lambda s: s.coalesce(), ("[0,1) b 1 0.0 | [0,1) a 1 1.0 | [0,1) a 2 1.0 | [0,1) b 1 0.0",)
    ),
    "segment dropped with its first row": Example(lambda s: s.final(), ("[0,1) a 1 1.0; cti 2; [2,3) a 1 1.0",)),
    "lookup that finds one row a key": Example(
        lambda s: s.coalesce(), ("[0,1) a 2 0.0; [0,2) a 2 0.0 | [0,1)->0 a 2 0.0",)
    ),
    "rows due now that are left behind": Example(lambda s: s.final(), ("[0,1) a 1 1.0; cti 2",)),
    "restore that forgets what is forgotten": Example(
        lambda s: s.final(), ("[0,2) a 1 1.0; [0,2) a 1 0.0; [0,1) a 1 1.0; [0,2) _ 1 1.0; cti 2",), check=restarted
    ),
    "restore that forgets the scalars": Example(
        counted(hr.tumbling(5)), ("[5,6) a 1 1.0; [0,8) a 1 1.0",), check=restarted
    ),
    "restore that forgets the clocks": Example(
        lambda a, b: a.union(b), ("cti 5", "cti 5 | [6,7) a 1 1.0"), check=restarted
    ),
    "the fastest input decides": Example(lambda a, b: a.union(b), ("[0,1) a 1 1.0; cti 1 | [2,3) a 1 1.0", "cti 5")),
    "the first bucket speaks for all": Example(
        lambda s: (
            s.group_by("k")
            .window(hr.session(4))
            .aggregate(i=hr.count())
            .group_by("i")
            .window(hr.tumbling(5))
            .aggregate(n=hr.count())
        ),
        ("cti 4; [4,5) a 1 1.0; cti 5",),
        buckets=2,
    ),
    "hopping windows promise their ends": Example(counted(hr.hopping(6, 2)), ("[0,1) a 1 1.0; cti 6",)),
    "promise that forgets who waits": Example(in_sessions(), ("[0,1) a 1 1.0; cti 1 | [3,4) a 1 1.0",)),
    "final promises too much": Example(lambda s: s.final(), ("[0,9) a 1 1.0; cti 5",)),
    "final one tick too soon": Example(lambda s: s.final(), ("[0,5) a 1 1.0; cti 5 | [0,5)->7 a 1 1.0",)),
    "shortening that keeps its promise": Example(lambda s: s.extend(-3), ("[0,9) a 1 1.0; cti 8 | [0,9)->8 a 1 1.0",)),
    "shift that never goes back": Example(lambda s: s.shift(-3), ("cti 4 | [4,5) a 1 1.0",)),
    "late at the CTI": Example(unchanged, ("cti 5 | [5,6) a 1 1.0",)),
    "a retraction is as old as its event": Example(unchanged, ("[0,9) a 1 1.0; cti 5 | [0,9)->7 a 1 1.0",)),
    "admission forgets at the CTI": Example(unchanged, ("[0,5) a 1 1.0; cti 5 | [0,5)->8 a 1 1.0",)),
    "rows for the last bucket get lost": Example(
        counted(hr.tumbling(5), "k"), ("[0,1) b 1 1.0; [0,1) a 1 1.0",), buckets=2
    ),
    "together by more is together": Example(
        lambda s: (
            s.group_by("k", "i")
            .window(hr.snapshot())
            .aggregate(n=hr.count())
            .group_by("k")
            .window(hr.snapshot())
            .aggregate(n=hr.sum("n"))
        ),
        ("[0,1) a _ 1.0; [0,1) a 1 1.0",),
        buckets=3,
    ),
    "the order of keys does not matter": Example(
        lambda a, b: (
            a.group_by("k", "i")
            .window(hr.snapshot())
            .aggregate(n=hr.count())
            .join(b.group_by("i", "k").window(hr.snapshot()).aggregate(m=hr.count()), ("k", "i"))
        ),
        (
            "[0,3) a 1 1.0; [0,3) b 1 1.0; [0,3) a 2 1.0; [0,3) b 2 1.0",
            "[1,4) a 1 1.0; [1,4) b 1 1.0; [1,4) a 2 1.0; [1,4) b 2 1.0",
        ),
        buckets=3,
    ),
    "in the window that ends at its start": Example(counted(hr.tumbling(5)), ("[5,6) a 1 1.0",)),
    "in the window that starts at its end": Example(counted(hr.tumbling(5)), ("[3,5) a 1 1.0; [7,8) b 1 1.0",)),
    "windows close without their origin": Example(counted(hr.hopping(5, 5, 2)), ("[2,3) a 1 1.0 | cti 6",)),
    "runs counted twice": Example(counted(hr.tumbling(5)), ("[5,6) a 1 1.0; [1,2) a 1 1.0; [1,2)->6 a 1 1.0",)),
    "windows dropped when they are seen": Example(
        counted(hr.tumbling(5)), ("[0,1) a 1 1.0; [5,6) a 1 1.0 | [0,1) a 1 1.0",)
    ),
    "old answers that stay": Example(counted(hr.tumbling(5)), ("[0,1) a 1 1.0; [5,6) a 1 1.0 | [0,1) a 1 1.0",)),
    "taken back, and still reaching": Example(
        counted(hr.tumbling(5)), ("[0,1) a 1 1.0; [0,∞) a 1 1.0; [0,8) a 1 1.0; [0,1) a 1 1.0 | [0,8)->0 a 1 1.0",)
    ),
    "sliding windows lose their last": Example(counted(hr.hopping(6, 2)), ("[0,1) a 1 1.0",)),
    "sliding total without the present window": Example(counted(hr.hopping(6, 2)), ("[4,5) a 1 1.0 | [2,3) a 1 1.0",)),
    "sums that run into the next group": Example(counted(hr.snapshot(), "k"), ("[0,∞) a 1 1.0; [0,1) _ 1 1.0",)),
    "nothing counted is nothing changed": Example(
        counted(hr.tumbling(5), total=hr.sum("i")), ("[5,6) a _ 1.0 | [5,6)->5 a _ 1.0; [5,6) a 1 1.0",)
    ),
    "sums without weights": Example(counted(hr.tumbling(5), total=hr.sum("i")), ("[0,2) a 1 1.0 | [0,2)->1 a 1 1.0",)),
    "extremes that remember the dead": Example(
        counted(hr.tumbling(5), most=hr.max("i")), ("[0,∞) a 1 1.0; [0,∞) a _ 1.0 | [0,∞)->0 a 1 1.0",)
    ),
    "sums that wrap": Example(
        counted(hr.tumbling(5), total=hr.sum("i")), ("[0,1) a -1 1.0; [0,1) a -9223372036854775808 1.0",)
    ),
    "infinity less infinity is infinity": Example(
        counted(hr.tumbling(5), total=hr.sum("x")), ("[0,1) a 1 -inf; [0,1) a 1 inf",)
    ),
    "first by chance": Example(counted(hr.tumbling(5), first=hr.first("i")), ("[0,1) a 2 1.0; [0,1) a 1 1.0",)),
    "distinct by start": Example(
        counted(hr.tumbling(5), first=hr.first("i"), distinct=hr.distinct_count("i")), ("[0,1) a 1 1.0; [1,2) a 1 1.0",)
    ),
    "session that ends one tick late": Example(in_sessions(), ("[0,1) a 1 1.0; [4,5) a 1 1.0",)),
    "sessions that never fall apart": Example(
        counted(hr.session(4)), ("[0,1) a 1 1.0; [3,4) a 1 1.0; [6,7) a 1 1.0 | [3,4)->3 a 1 1.0",)
    ),
    "one more in a count window": Example(counted(hr.count_by_start(2)), ("[1,2) a 1 1.0; [0,1) a 1 1.0",)),
    "snapshots forgotten at the CTI": Example(lambda s: s.top(1, by="i"), ("[0,2) a 1 1.0; cti 2 | [0,2)->3 a 1 1.0",)),
    "what lasts is not looked at again": Example(
        lambda s: s.window(hr.tumbling(2)).top(1, by="i"), ("[0,9) a 1 1.0; cti 2 | cti 4 | cti 6",)
    ),
    "a snapshot continues from one that has ended": Example(
        lambda s: s.top(1, by="i"), ("[0,2) a 5 1.0 | [2,4) a 1 1.0",)
    ),
    "a snapshot whose content changed alone": Example(lambda s: s.top(1, by="i"), ("[0,4) a 5 1.0 | [0,4) a 7 1.0",)),
    "changed content, same window": Example(in_sessions(), ("[0,1) a 1 1.0; [9,10) a 1 1.0 | [0,1) a 1 1.0",)),
    "quiet groups are forgotten": Example(in_sessions("k"), ("[0,1) a 1 1.0 | [4,5) _ 1 1.0",)),
    "answers forgotten when they are seen": Example(in_sessions(), ("[4,5) a 1 1.0; [0,1) a 1 1.0 | [0,1) a 1 1.0",)),
    "twins take one place": Example(
        lambda s: s.top(2, by="i"), ("[0,4) a 1 1.0; [0,4) a 1 1.0; [0,4) a 2 1.0 | [0,4)->2 a 2 1.0",)
    ),
    "ties as they came": Example(lambda s: s.top(1, by="i"), ("[0,1) b 1 1.0; [0,1) a 1 1.0",)),
    "clipped at the wrong side": Example(
        lambda s: s.window(hr.tumbling(5), clipping="left").aggregate(n=Lasting().of("i")), ("[3,8) a 1 1.0",)
    ),
    "states that only grow": Example(
        lambda s: s.window(hr.snapshot()).aggregate(n=Total().of("i")),
        ("[0,2) a 1 1.0; [0,2) a 1 1.0 | [0,2)->1 a 1 1.0",),
    ),
    "an end hides a start": Example(counted(hr.snapshot()), ("[0,1) a 1 1.0; [1,2) a 1 1.0",)),
    "snapshot settled at the CTI": Example(counted(hr.snapshot()), ("cti 0 | [0,1) a 1 1.0 | [0,1) a 1 1.0",)),
    "each side forgets by its own CTI": Example(
        lambda a, b: a.join(b, "k"), ("[0,9) a 1 1.0; cti 12", "cti 1 | [5,6) a 1 1.0")
    ),
    "events that meet are a pair": Example(lambda a, b: a.join(b, "k"), ("[3,5) a 1 1.0", "[0,3) a 1 1.0")),
    "overlap by one tick is none": Example(lambda a, b: a.join(b, "k"), ("[3,4) a 1 1.0", "[0,4) a 1 1.0")),
    "null keys that match": Example(lambda a, b: a.join(b, "k"), ("[0,1) _ 1 1.0", "[0,1) _ 1 1.0")),
    "null groups that are none": Example(
        lambda s: s.group_by("k").apply(lambda g: g.join(g.where(col("i") > 0), "i")), ("[0,1) _ 1 1.0",)
    ),
    "covered by the last alone": Example(
        lambda a, b: a.anti_join(b, "k"), ("[0,3) a 1 1.0", "[1,2) a 1 1.0; [0,3) a 1 1.0")
    ),
    "what covered is not remembered": Example(
        lambda a, b: a.anti_join(b, "k"), ("[0,∞) a 1 1.0; cti 5", "[0,2) a 1 1.0; cti 5 | [7,8) a 1 1.0")
    ),
    "outer joins forget at the CTI": Example(
        lambda a, b: a.anti_join(b, "k"), ("[0,5) a 1 1.0; cti 5 | [0,5)->8 a 1 1.0", "[0,3) a 1 1.0; cti 5")
    ),
    "no match before, no match now": Example(
        lambda a, b: a.anti_join(b, "k"), ("[0,1) b 1 1.0", "[0,1) a 1 1.0 | [0,1) b 1 1.0")
    ),
    "the start that is not inside hides the next": Example(
        lambda a, b: a.clip(b, "k"), ("[0,5) a 1 1.0", "[0,1) a 1 1.0; [3,4) a 1 1.0")
    ),
    "clip forgets at the CTI": Example(
        lambda a, b: a.clip(b, "k"), ("[0,5) a 1 1.0; cti 5 | [0,5)->8 a 1 1.0", "cti 5")
    ),
    "events that meet stay apart": Example(lambda s: s.coalesce(), ("[0,1) b 2 1.0; [1,2) b 2 1.0",)),
    "a span as long as its last event": Example(lambda s: s.coalesce(), ("[0,5) a 1 1.0; [1,2) a 1 1.0",)),
    "a span over at the CTI": Example(lambda s: s.coalesce(), ("[0,5) a 1 1.0; cti 5 | [5,8) a 1 1.0",)),
    "a cap that stretches": Example(lambda s: s.cap_duration(3), ("[0,1) a 1 1.0",)),
    "a filter on answers filters events": Example(
        lambda s: s.group_by("k").window(hr.tumbling(5)).aggregate(i=hr.sum("i")).where(col("i") > 1),
        ("[0,1) a 1 1.0; [1,2) a 1 1.0",),
    ),
    "a computed key hides its column": Example(
        lambda s: s.group_by(i=col("i") + 1).window(hr.snapshot()).aggregate(total=hr.sum("i")), ("[0,1) a 1 1.0",)
    ),
    "partial states of what may be taken back": Example(
        lambda s: s.window(hr.tumbling(5)).aggregate(n=Total().of("i")), ("[0,1) a 1 1.0 | [0,1)->0 a 1 1.0",)
    ),
    "filters that stop the clock": Example(
        lambda folder: points(folder, "1,a", "9,b").where(col("k") == "a"), check=as_written
    ),
}


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_the_fault_is_found_by_its_example(fault: Fault, tmp_path: Path):
    example = EXAMPLES[fault.name]
    example.check(example.stream(tmp_path), example.buckets)
    with planted(fault):
        run_local([Output(example.stream(tmp_path).node, "out")], buckets=example.buckets)  # it answers, if wrongly
        with pytest.raises((Violation, EventError)):
            example.check(example.stream(tmp_path), example.buckets)
    example.check(example.stream(tmp_path), example.buckets)


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_what_a_fault_needs_is_what_its_example_has(fault: Fault):
    example = EXAMPLES[fault.name]
    has = {"restarts": example.check is restarted, "buckets": example.buckets > 1, "files": not example.streams}
    assert [need for need, there in has.items() if there] == ([fault.needs] if fault.needs else [])


def test_every_fault_has_a_name_of_its_own():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) == len(EXAMPLES)
    assert all(fault.why and fault.old != fault.new for fault in FAULTS)


@pytest.mark.parametrize(
    ("module", "function", "old", "new"),
    [
        ("headrace.segments", "Segment.of", "uuid.uuid4().hex", "uuid.uuid4().hex + NOTE"),
        (
            "headrace.operators.aggregate.merge",
            "MergeKernel.__init__",
            "super().__init__(node)",
            "super().__init__(node); NOTE",
        ),
        ("headrace.plan.aggregate", "Aggregate.split", "return", "NOTE; return"),
    ],
    ids=["class method", "super", "cached property"],
)
def test_whatever_kind_of_function_it_is(module: str, function: str, old: str, new: str):
    mistake = Fault("note", module, function, old, new, "a name that is nowhere")
    query = counted(hr.tumbling(5))
    with pytest.raises(NameError, match="NOTE"), planted(mistake):
        query(told("[0,1) a 1 1.0 | cti 1")).cht()
    assert query(told("[0,1) a 1 1.0 | cti 1")).cht().num_rows == 1


def test_the_function_stays_and_its_code_comes_back():
    before, code = factorize, factorize.__code__
    with planted(fault("minus zero is another key")):
        assert factorize is before
        assert factorize.__code__ is not code
    assert factorize.__code__ is code


def test_where_a_fault_is():
    """A function that remembers what it was asked may not run when it matters: nothing is said of it."""
    assert site(fault("minus zero is another key")) is factorize.__code__
    assert site(Fault("once", "headrace.operators.table", "_index", "", "", "")) is None


def test_the_code_comes_back_after_an_error():
    code = factorize.__code__
    with pytest.raises(ZeroDivisionError), planted(fault("minus zero is another key")):
        raise ZeroDivisionError
    assert factorize.__code__ is code


@pytest.mark.parametrize(
    ("function", "old", "message"),
    [
        ("factorize", "no such text", "occurs 0 times"),
        ("factorize", "numbers", "times in factorize, not once"),
        ("no_such_function", "", "there is no headrace.columnar.no_such_function"),
        ("_MARK", "", "is no function"),
    ],
)
def test_a_fault_that_no_longer_fits_says_so(function: str, old: str, message: str):
    broken = Fault("broken", "headrace.columnar", function, old, "pass", "it was written for another text")
    with pytest.raises(FaultError, match=message), planted(broken):
        pass
