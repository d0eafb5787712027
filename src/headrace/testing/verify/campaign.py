"""Run many cases, and shrink those that fail.

`verify_intent` tests the engine on the queries of an intent, `verify_node` a user's own query on streams generated for
it (`own_query.py`). Cases are numbered; seed and number reproduce a case on any machine.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from random import Random

from headrace.display.words import counted
from headrace.errors import HeadraceError, IntentError
from headrace.history.duckdb import DuckDBHistory
from headrace.plan.nodes import Node
from headrace.testing.checks import Shape, Violation
from headrace.testing.generators.generate import Pattern
from headrace.testing.generators.shrink import shrink
from headrace.testing.generators.stories import StoryStream
from headrace.testing.generators.traits import Traits, anything
from headrace.testing.intents.catalogue import KINDS
from headrace.testing.intents.transform import concrete
from headrace.testing.intents.tree import Intent
from headrace.testing.order import Order
from headrace.testing.verify.case import VerifyCase, case_of
from headrace.testing.verify.checks import ALWAYS, CHECKS, VARIANTS, NotApplicable, Trial
from headrace.testing.verify.own_query import own_cases

__all__ = [
    "VerificationFailure",
    "VerificationReport",
    "cases_of_intent",
    "default_cases",
    "try_case",
    "verify_cases",
    "verify_intent",
    "verify_node",
]

#: The number of metamorphic checks per case, in addition to the checks of every case.
_VARIANTS_EACH = 1
#: Checks that apply to histories alone: where rows may be late, order and batches of files matter.
_HISTORY_ONLY = ("batches", "arrival", "corrections", "times", "twins")
Tell = Callable[["VerificationReport"], None]


@dataclass(frozen=True)
class VerificationFailure:
    """A case that failed a check, and the smallest streams that still fail it."""

    case: str
    check: str
    why: str
    query: str
    python: str
    #: How the streams reach the query, and the streams as drawn tables.
    feeds: tuple[str, ...]
    drawn: tuple[str, ...]
    schemas: tuple[str, ...]
    batches: tuple[tuple[int, ...], ...]
    buckets: int
    rows: int
    interrupted: bool = False
    intent: str = ""

    def __str__(self) -> str:
        program = "\n".join([*self._streams(), self.python.strip()])
        target = f"--intent {self.intent!r} " if self.intent else "FILE.py:NAME "
        restarted = ", restarted after every batch" if self.interrupted else ""
        return (
            f"case {self.case} failed the check {self.check!r}, in {counted(self.buckets, 'bucket')}{restarted}\n"
            f"query: {self.query}\nto repeat it: headrace verify {target}--case {self.case}\n{self.why}\n\n"
            f"the smallest streams that show it ({counted(self.rows, 'row')}):\n{program}\n"
        )

    def _streams(self) -> Iterator[str]:
        inputs = zip(self.drawn, self.schemas, self.batches, self.feeds, strict=True)
        for number, (text, schema, batches, feed) in enumerate(inputs):
            cuts = f", batches={list(batches)}" if len(batches) > 1 else ""
            fragment_name = feed.removeprefix("events, ") if feed.startswith("events, ") else ""
            comment = f"  # fed as {feed}" if feed != "events" and not fragment_name else ""
            events = f'"""\n{_indented(text)}\n"""' if not text.startswith("[") else text
            yield f"s{number} = hr.events({events}, {schema!r}{cuts}){comment}"
            if fragment_name:
                fragment = f"make_speculative(s{number}, {schema.split()[0]!r})"
                expression = (
                    f"duplicate_retractions({fragment})" if fragment_name == "duplicate_retractions" else fragment
                )
                names = "duplicate_retractions, make_speculative" if expression != fragment else "make_speculative"
                yield f"from headrace.testing.generators.generate import {names}\n\ns{number} = {expression}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


@dataclass
class VerificationReport:
    """The cases, checks and failures of a run."""

    cases: int = 0
    rows: int = 0
    seconds: float = 0.0
    failures: list[VerificationFailure] = field(default_factory=list)
    checks: Counter[str] = field(default_factory=Counter)
    #: How often each value of each dimension occurred, and each operator and policy under each disorder.
    covered: dict[str, Counter[str]] = field(default_factory=dict)
    operators: dict[str, Counter[str]] = field(default_factory=dict)
    policies: dict[str, Counter[str]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.failures

    def add(self, other: VerificationReport) -> None:
        """Add the report of another part of the same run."""
        self.cases += other.cases
        self.rows += other.rows
        self.seconds = max(self.seconds, other.seconds)
        self.failures += other.failures
        self.checks.update(other.checks)
        tables = ("covered", "operators", "policies")
        for own, added in ((getattr(self, table), getattr(other, table)) for table in tables):
            for name, counts in added.items():
                own.setdefault(name, Counter()).update(counts)

    def note(self, case: VerifyCase) -> None:
        """Count a case."""
        self.cases += 1
        self.rows += case.rows
        for name, values in case.covers.items():
            for value in values.split(" + "):
                self.covered.setdefault(name, Counter())[value] += 1
        for disorder in case.covers.get("disorder", "").split(" + "):
            for counts, what in ((self.operators, "operator"), (self.policies, "policy")):
                for value in filter(None, case.covers.get(what, "").split(" + ")):
                    counts.setdefault(value, Counter())[disorder] += 1


def cases_of_intent(intent: Intent, seed: int) -> Iterator[VerifyCase]:
    """The cases of an intent, without end."""
    cases = (case_of(query, seed, number) for number, query in enumerate(concrete(intent, seed)))
    return (replace(case, intent=str(intent)) for case in cases)


def default_cases(seed: int) -> Iterator[tuple[str, VerifyCase]]:
    """The default cases: every kind of query in turn, with its intent."""
    kinds = {kind: cases_of_intent(Intent.of(kind), seed) for kind in KINDS}
    while True:
        for kind, cases in kinds.items():
            yield kind, next(cases)


def verify_intent(
    intent: Intent,
    *,
    seed: int = 0,
    cases: int = 100,
    tell: Tell | None = None,
    stop_after: int = 1,
    shrinking: float = 20.0,
) -> VerificationReport:
    """Test the engine on the queries and streams of an intent.

    `tell` is called with the report after each case. The run stops after `stop_after` failures; `shrinking` is the time
    limit for shrinking a failure, in seconds.
    """
    return verify_cases(
        islice(cases_of_intent(intent, seed), cases), tell=tell, stop_after=stop_after, shrinking=shrinking
    )


def verify_node(
    node: Node,
    *,
    over: Traits = anything,
    seed: int = 0,
    cases: int = 100,
    shape: Shape = "interval",
    order: Order = "corrections",
    pattern: Pattern | None = None,
    tell: Tell | None = None,
    stop_after: int = 1,
    shrinking: float = 20.0,
) -> VerificationReport:
    """Test a user's query on streams generated for its sources; its author declares shape and order."""
    own = (replace(case, shape=shape, order=order) for case in islice(own_cases(node, over, seed, pattern), cases))
    return verify_cases(own, tell=tell, stop_after=stop_after, shrinking=shrinking)


def verify_cases(
    cases: Iterator[VerifyCase], *, tell: Tell | None = None, stop_after: int = 1, shrinking: float = 20.0
) -> VerificationReport:
    """Run these cases in order."""
    report, start = VerificationReport(), time.monotonic()
    oracle = DuckDBHistory()
    try:
        for case in cases:
            failure = try_case(case, oracle, report=report, shrinking=shrinking)
            report.note(case)
            if failure is not None:
                report.failures.append(failure)
            report.seconds = time.monotonic() - start
            if tell is not None:
                tell(report)
            if len(report.failures) >= stop_after:
                break
    finally:
        oracle.close()
    return report


def try_case(
    case: VerifyCase,
    oracle: DuckDBHistory,
    *,
    report: VerificationReport | None = None,
    only: Sequence[str] = (),
    shrinking: float = 20.0,
) -> VerificationFailure | None:
    """The first check that a case fails, with the smallest streams that fail it."""
    for name in only:
        if name not in CHECKS:
            raise IntentError(f"there is no check {name!r}", given=name, allowed=", ".join(CHECKS))
    failed = None
    with Trial(case, oracle) as trial:
        for name in only or _checks_of(case):
            try:
                wrong = _problem(trial, name) is not None
            except NotApplicable:
                continue
            if report is not None:
                report.checks[name] += 1
            if wrong:
                failed = name
                break
    return None if failed is None else _smallest(case, failed, oracle, shrinking)


def _checks_of(case: VerifyCase) -> list[str]:
    possible = [n for n in VARIANTS if n not in case.skips and (case.physical or n not in _HISTORY_ONLY)]
    random: Random = case.random
    chosen = random.sample(possible, _VARIANTS_EACH)
    return [*ALWAYS, *chosen, *(name for name in case.asks if name in possible and name not in chosen)]


def _problem(trial: Trial, check: str) -> str | None:
    """The reason why a case fails a check; None if it passes."""
    try:
        CHECKS[check](trial)
    except Violation as error:
        return str(error).partition("] ")[2]  # without its code
    except AssertionError as error:
        return str(error) or "an assertion in the engine does not hold"
    except HeadraceError as error:
        return f"{type(error).__name__}: {error}"
    except NotApplicable:
        raise
    except Exception as error:  # noqa: BLE001 - a bug in the engine may raise anything
        return f"it raised {type(error).__name__}: {error}"
    return None


def _smallest(case: VerifyCase, check: str, oracle: DuckDBHistory, seconds: float) -> VerificationFailure:
    def problem(streams: tuple[StoryStream, ...]) -> str | None:
        with Trial(case.with_streams(streams), oracle) as trial:
            try:
                return _problem(trial, check)
            except NotApplicable:
                return None

    def fails(streams: tuple[StoryStream, ...]) -> bool:
        return problem(streams) is not None

    streams = shrink(case.streams, fails, seconds=seconds) if seconds > 0 else case.streams
    small = case.with_streams(streams)
    return VerificationFailure(
        case.name,
        check,
        problem(streams) or "it does not fail every time",
        case.says,
        case.python,
        tuple(map(str, case.feeds)),
        tuple(stream.drawn() for stream in streams),
        tuple(str(stream.schema) for stream in streams),
        tuple(stream.cuts for stream in streams),
        case.buckets,
        small.rows,
        case.interrupted,
        case.intent,
    )
