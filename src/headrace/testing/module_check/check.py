"""Check a module on random windows and streams; a failure is shown on the smallest example.

    from headrace.testing.module_check.check import module_check

    print(module_check(MyMedian()))

A module must answer, always the same, and not modify its input. An incremental module must give the same answer however
its items are added and removed. In a query with corrections, batches and buckets the answer must be the history's.
Some findings are notes, not failures: whether clipping changes answers, whether outputs are bound in time.

It needs hypothesis, which comes with `pip install headrace[test]`.
"""

from __future__ import annotations

import copy
import math
import pickle
import random
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from headrace.errors import HeadraceError, HostError, ModuleError
from headrace.events import history_diff
from headrace.modules.base import Module, Operator, Window
from headrace.operators.per_window.calling import Failure
from headrace.testing.module_check.claims import FilteredWindow, added, differ, filters, merges, name_problem, removed
from headrace.testing.module_check.process import CALL_LIMIT, answer_of, answers_elsewhere, caller_of
from headrace.testing.module_check.report import Finding, ModuleReport
from headrace.testing.module_check.streams import (
    Change,
    Drawn,
    ModuleQuery,
    Parts,
    WindowContent,
    bags,
    changed_at,
    changes,
    parts,
    queries,
    same_answer,
    sample_of,
)

__all__ = ["Finding", "ModuleReport", "module_check"]

Step = tuple[str, Sequence[Drawn]]
_SHRINKING = 10.0  # seconds


def module_check(
    module: Any,
    sample: Any = None,
    *,
    examples: int = 100,
    seed: int | None = None,
    nulls: bool = True,
    odd: bool = True,
    only: Collection[str] = (),
    tell: Callable[[Finding], None] | None = None,
) -> ModuleReport:
    """Run all checks on a module, or only those named, and return their findings.

    `sample` is a stream that the module finds something in, as `hr.events` takes it, its columns the module's fields;
    without one a rare pattern may never be drawn. `nulls=False` and `odd=False` are for modules whose input never has
    nulls, or NaN, infinities and extremes. `tell` is called with each finding.
    """
    if not isinstance(module, Module):
        instead = f"module_check({module.__name__}())" if isinstance(module, type) else ""
        raise ModuleError("this is not a module", given=module, allowed="an instance of a module", instead=instead)
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    found = []
    events = sample_of(sample, module) if sample is not None else ()
    for finding in _Checks(module, events, examples, seed, nulls=nulls, odd=odd).run(only):
        found.append(finding)
        if tell is not None:
            tell(finding)
    return ModuleReport(str(module), seed, tuple(found))


Planned = tuple[str, Callable[[], Finding]]


class _Broken(Exception):
    """A check does not hold for an example."""

    def __init__(self, what: str, shown: object) -> None:
        super().__init__(what)
        self.what, self.shown = what, str(shown)


@dataclass(frozen=True)
class _Result:
    broken: _Broken | None
    examples: int
    seconds: float


class _Checks:
    def __init__(
        self, module: Module, sample: tuple[Drawn, ...], examples: int, seed: int, *, nulls: bool, odd: bool
    ) -> None:
        self.module, self.sample, self.examples, self.seed = module, sample, examples, seed
        self.nulls, self.odd = nulls, odd
        self.caller = caller_of(module)
        self.bags = bags(module, sample)
        self.failed: set[str] = set()
        self.outputs = 0  # how many answers were more than an empty list

    def run(self, only: Collection[str]) -> Iterator[Finding]:
        """Run all checks in order, or only those that are named."""
        planned = dict(self._planned())
        for name in only:
            if name not in planned:
                raise ModuleError(f"there is no check {name!r} for this module", given=name, allowed=", ".join(planned))
        for name, check in planned.items():
            if only and name not in only:
                continue
            finding = check()
            if finding.verdict == "failed":
                self.failed.add(name)
            yield finding
            if "answers" in self.failed:
                yield Finding("the rest", "skipped", "a module that does not answer cannot be checked further")
                return

    def _planned(self) -> Iterator[Planned]:
        """The checks that make sense for this module."""
        yield self._must("answers", self.bags, self._answers)
        yield "determinism", self._determinism
        if self._has_texts:
            yield "set order", self._set_order
        yield self._must("own input", self.bags, self._leaves_alone)
        if self.module.incremental:
            yield from self._states()
        if self.odd and any(field.type.element.is_numeric for field in self.module.fields):
            yield self._must("odd values", bags(self.module, self.sample, odd=True), self._sound)
        if self.nulls:
            yield self._must("nulls", bags(self.module, self.sample, nulls=True), self._sound)
        yield "no items", self._empty
        if self.module.time_sensitive:
            yield from self._times()
        if name_problem(self.module):
            yield "filter through", lambda: Finding("filter through", "failed", name_problem(self.module))
        elif self.module.filter_through:
            yield self._must("filter through", filters(self.module, self.sample, nulls=self.nulls), self._commutes)
        yield "corrections", self._corrections

    # --- the search --------------------------------------------------------------------------------------------------

    def _search(self, drawn: st.SearchStrategy[Any], check: Callable[[Any], None], examples: int) -> _Result:
        """Draw examples until one breaks the check, then shrink it."""
        started, tried, broken = time.monotonic(), 0, list[_Broken]()
        patience = math.inf

        @seeded(self.seed)
        @settings(
            max_examples=examples,
            database=None,
            deadline=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
            report_multiple_bugs=False,
        )
        @given(drawn)
        def run(example: Any) -> None:
            nonlocal tried, patience
            if time.monotonic() > patience:
                return  # small enough
            tried += not broken
            try:
                check(example)
            except _Broken as error_found:
                broken.append(error_found)
                patience = min(patience, time.monotonic() + _SHRINKING)
                raise
            except Exception as error:  # a module may raise anything
                broken.append(_Broken(f"it raised {type(error).__name__}: {error}", example))
                patience = min(patience, time.monotonic() + _SHRINKING)
                raise broken[-1] from error

        # Flaky: a nondeterministic module may pass the next time, and the time for shrinking may be over.
        with suppress(_Broken, Flaky):
            run()
        # The last failure is the smallest, unless a smaller one passed by chance.
        return _Result(broken[-1] if broken else None, tried, time.monotonic() - started)

    def _must(self, name: str, drawn: st.SearchStrategy[Any], check: Callable[[Any], None]) -> Planned:
        """A check that must pass."""
        return name, lambda: self._held(name, drawn, check, self.examples)

    def _held(self, name: str, drawn: st.SearchStrategy[Any], check: Callable[[Any], None], examples: int) -> Finding:
        before = self.outputs
        result = self._search(drawn, check, examples)
        if result.broken is not None:
            return Finding(name, "failed", result.broken.what, result.examples, result.seconds, result.broken.shown)
        vacuous = name == "answers" and self.outputs == before
        detail = "but no example gave any output: give a sample" if vacuous else ""
        return Finding(name, "ok", detail, result.examples, result.seconds)

    def _may(
        self, name: str, drawn: st.SearchStrategy[Any], check: Callable[[Any], None], holds: str, breaks: str
    ) -> Planned:
        """A check whose result is only a note."""

        def find() -> Finding:
            before = self.outputs
            result = self._search(drawn, check, 2 * self.examples)  # a counterexample may be rare
            detail = holds if self.outputs > before else "not known: no example gave any output"
            return Finding(name, "note", detail if result.broken is None else breaks, result.examples, result.seconds)

        return name, find

    # --- answers -----------------------------------------------------------------------------------------------------

    def _answer(self, bag: WindowContent, module: Module | None = None) -> Any:
        answer = answer_of(module or self.module, bag)
        if isinstance(answer, Failure):
            raise _Broken(answer.reason, bag)
        self.outputs += bool(answer) or not isinstance(answer, list)
        return answer

    def _answers(self, bag: WindowContent) -> None:
        self._answer(bag)

    def _deterministic(self, pair: tuple[WindowContent, WindowContent]) -> None:
        """The same answer again, after another window, and from a new module with equal items elsewhere in memory."""
        bag, other = pair
        first = self._answer(bag)
        self._same("asked twice", bag, first, self._answer(bag))
        self._answer(other)
        self._same("asked again after another window", bag, first, self._answer(bag))
        arguments, named = self.module.__getnewargs_ex__()
        new = type(self.module)(*arguments, **named)
        self._same("another module with the same parameters", bag, first, self._answer(bag.copied(), new))

    def _determinism(self) -> Finding:
        """The same answer again, also in another process, which hashes texts differently."""
        finding = self._held("determinism", st.tuples(self.bags, self.bags), self._deterministic, self.examples)
        if finding.verdict == "failed" or self._has_texts:
            return finding
        remote = self._elsewhere("determinism", (1,), "")
        if remote.verdict == "skipped":
            return replace(finding, detail=f"not run in another process: {remote.detail}")
        return replace(remote, examples=finding.examples, seconds=finding.seconds + remote.seconds)

    @property
    def _has_texts(self) -> bool:
        return any(field.type.element.is_text for field in self.module.fields)

    def _set_order(self) -> Finding:
        """Texts hash differently in every process, so sets and dicts of them have another order there."""
        return self._elsewhere("set order", (1, 2), "; sets of texts have another order in each")

    def _elsewhere(self, name: str, hash_seeds: Sequence[int], reason: str) -> Finding:
        started, windows = time.monotonic(), list[WindowContent]()
        self._search(self.bags, windows.append, self.examples)
        own_answers = [answer_of(self.module, bag) for bag in windows]
        try:
            others = [answers_elsewhere(self.module, windows, hash_seed) for hash_seed in hash_seeds]
        except HostError as error:
            return Finding(name, "skipped", error.message)
        comparisons = [(bag, a, b) for other in others for bag, a, b in zip(windows, own_answers, other, strict=True)]
        different = [(bag, a, b) for bag, a, b in comparisons if not same_answer(a, b)]
        seconds = time.monotonic() - started
        if not different:
            return Finding(name, "ok", "", len(windows), seconds)
        bag, a, b = min(different, key=lambda comparison: len(comparison[0].events))
        detail = f"it gave {a!r} in one process and {b!r} in another{reason}"
        return Finding(name, "failed", detail, len(windows), seconds, str(bag))

    def _same(self, context: str, shown: object, first: Any, second: Any) -> None:
        if not same_answer(first, second):
            raise _Broken(f"{context}: it gave {first!r}, then {second!r}", shown)

    def _leaves_alone(self, bag: WindowContent) -> None:
        items = bag.items()
        originals, copies = list(items), copy.deepcopy(items)
        if self.module.incremental:
            added(self.module, self.module.initial(), items)
        elif self.module.time_sensitive or self.module.takes_window:
            self._exhaust(self.module.compute(items, bag.window))
        else:
            self._exhaust(self.module.compute(items))
        unchanged = len(items) == len(originals) and all(a is b for a, b in zip(items, originals, strict=True))
        if not unchanged or not same_answer(items, copies):
            raise _Broken("it changes the list that it receives; copy it first, as sorted(items) does", bag)

    def _exhaust(self, outputs: Any) -> None:
        """Exhaust a generator, which does its work when it is read."""
        if isinstance(outputs, Iterator):
            for _ in outputs:
                pass

    # --- states ------------------------------------------------------------------------------------------------------

    def _states(self) -> Iterator[Planned]:
        parts_strategy = parts(self.module, self.sample)
        yield self._must("state", self.bags, self._reads)
        if self.module.order_sensitive:
            yield _skipped("adding", "order-sensitive: its states are rebuilt, in order")
            return
        yield self._must("adding", parts_strategy, self._adds)
        if self.module.invertible:
            yield self._must("removing", parts_strategy, self._removes)
        else:
            yield _skipped("removing", "it has no remove: its states are rebuilt when items are removed")
        if self.module.algebraic:
            yield self._must("merging", parts_strategy, self._merges)

    def _build_state(self, bag: WindowContent, steps: Sequence[Step]) -> Any:
        """The state after these steps; it is pickled after each, as in the engine."""
        state = self.module.initial()
        for step, events in steps:
            if events:
                change = added if step == "add" else removed
                state = pickle.loads(pickle.dumps(change(self.module, state, bag.items(events))))  # noqa: S301 - ours
        return state

    def _read(self, bag: WindowContent, state: Any, shown: object) -> Any:
        answer = self.caller.read(pickle.dumps(state), bag.window)
        if isinstance(answer, Failure):
            raise _Broken(answer.reason, shown)
        return answer

    def _reads(self, bag: WindowContent) -> None:
        """Reading a state does not change it."""
        state = added(self.module, self.module.initial(), bag.items())
        before = self._read(bag, state, bag)
        args = (state, bag.window) if self.module.time_sensitive or self.module.takes_window else (state,)
        for _ in range(2):
            self._exhaust(self.module.compute(*args))
        self._same("compute changes the state it reads", bag, before, self._read(bag, state, bag))

    def _adds(self, parts_: Parts) -> None:
        steps = [("add", part) for part in parts_.parts]
        rule = "a state must not depend on the order and the parts in which its items were added"
        self._compare(parts_.bag, steps, parts_.bag.events, rule)

    def _removes(self, parts_: Parts) -> None:
        first, *others = parts_.parts
        removed_events = [event for part in others for event in part]
        steps = [*(("add", part) for part in parts_.parts), *(("remove", part) for part in reversed(others))]
        if first:
            rule = "a state from which items are removed must be as if they had never been added"
            self._compare(parts_.bag, steps, first, rule)
        if removed_events:
            again = [("add", parts_.bag.events), ("remove", removed_events), ("add", removed_events)]
            self._compare(
                parts_.bag, again, parts_.bag.events, "items that are removed and added again must leave no trace"
            )

    def _merges(self, parts_: Parts) -> None:
        parts = [part for part in parts_.parts if part]

        def states() -> list[Any]:
            return [self._build_state(parts_.bag, [("add", part)]) for part in parts]

        for order_name, merged in merges(self.module.merge, states):
            label = f"merge {' + '.join(str(parts_.bag.items(part)) for part in parts)} {order_name}"
            self._differ(parts_.bag, parts_.bag.events, merged, "merged states must be the state of all items", label)

    def _compare(self, bag: WindowContent, steps: Sequence[Step], remaining: Sequence[Drawn], rule: str) -> None:
        label = ", then ".join(f"{step} {bag.items(events)}" for step, events in steps if events)
        self._differ(bag, remaining, self._build_state(bag, steps), rule, label)

    def _differ(self, bag: WindowContent, remaining: Sequence[Drawn], state: Any, rule: str, label: str) -> None:
        """Refuse a state whose answer differs from that of a state built from the remaining items."""
        shown = f"{label}\n{bag.with_events(remaining)}"
        expected = self._read(bag, self._build_state(bag, [("add", remaining)]), shown)
        answer = self.caller.read(pickle.dumps(state), bag.window)
        if isinstance(answer, Failure):
            raise _Broken(f"{rule}: {answer.reason}", shown)
        if not same_answer(answer, expected):
            raise _Broken(f"{rule}: it gave {answer!r}, not {expected!r}{_hint(answer, expected)}", shown)

    # --- values ------------------------------------------------------------------------------------------------------

    def _sound(self, bag: WindowContent) -> None:
        """The module answers, and the checks for plain values hold for these values too."""
        self._answer(bag)
        if "determinism" not in self.failed:
            self._deterministic((bag, bag))
        if self.module.incremental and not self.module.order_sensitive:
            half = len(bag.events) // 2
            halves = Parts(bag, (bag.events[half:], bag.events[:half]))
            if "adding" not in self.failed:
                self._adds(halves)
            if self.module.invertible and "removing" not in self.failed:
                self._removes(halves)
            if self.module.algebraic and "merging" not in self.failed:
                self._merges(halves)

    def _empty(self) -> Finding:
        bag = WindowContent(self.module, Window(0, 10), ())
        try:
            answer = self._answer(bag)
        except _Broken as broken:
            return Finding("no items", "note", f"{broken.what}; the engine never asks: such windows have no output")
        return Finding("no items", "note", f"it would give {answer!r}; the engine never asks")

    # --- times -------------------------------------------------------------------------------------------------------

    def _times(self) -> Iterator[Planned]:
        if self.module.within_window:
            yield self._must("within window", self.bags, self._looks_inside)
        for side, advice in (("right", ": with it windows close in time and outputs are final sooner"), ("left", "")):
            yield self._may(
                f"clipping {side}",
                self.bags,
                lambda bag, side=side: self._same(  # type: ignore[misc]
                    side, bag, self._answer(bag), self._answer(bag.clipped(**{side: True}))
                ),
                f"clipping={side!r} changes no answer{advice}",
                f"clipping={side!r} changes answers",
            )
        if isinstance(self.module, Operator):
            yield self._must("timestamping", self.bags, self._starts_in_window)
            yield self._may(
                "time bound",
                changes(self.module, self.sample),
                self._bound,
                "timestamping='time_bound' can be kept: the output CTI is then the input's",
                "timestamping='time_bound' cannot be kept: outputs depend on what comes after their start",
            )

    def _looks_inside(self, bag: WindowContent) -> None:
        """A module with `within_window` must not depend on ends after its window."""
        full, cut = self._answer(bag), self._answer(bag.clipped(right=True))
        if not same_answer(full, cut):
            raise _Broken(
                f"it declares within_window = True, but depends on ends after the window: it gave {full!r}, "
                f"and {cut!r} when they are cut off",
                bag,
            )

    def _commutes(self, drawn: FilteredWindow) -> None:
        """The outputs that a filter keeps are the outputs of the events that it keeps."""
        after = drawn.after(self._answer(drawn.bag))
        before = self._answer(drawn.before) if drawn.before.events else []
        if differ(after, before):
            raise _Broken(
                f"it declares filter_through = {tuple(self.module.filter_through)!r}, but the filter changes its "
                f"outputs: applied after the module it leaves {after!r}, before it {before!r}",
                drawn,
            )

    def _starts_in_window(self, bag: WindowContent) -> None:
        for le, re, *payload in self._answer(bag):
            if le < bag.window.le:
                raise _Broken(
                    f"it gave [{le}, {re}) {payload}, which starts before the window: an error, unless the query says "
                    "timestamping='clip' or 'align'",
                    bag,
                )

    def _bound(self, change: Change) -> None:
        """A change of the input changes the output only at or after its own time."""
        before, after = self._answer(change.bag), self._answer(change.bag.with_events(change.events))
        for sync in changed_at(before, after):
            if sync < change.sync:
                raise _Broken(f"a change at {change.sync} changed the output at {sync}", change.bag)

    # --- queries -----------------------------------------------------------------------------------------------------

    def _corrections(self) -> Finding:
        if self.failed & {"determinism", "set order"}:
            return Finding("corrections", "skipped", "answers that differ from run to run cannot be compared")
        fewer = max(10, self.examples // 4)  # each example runs two queries
        return self._held("corrections", queries(self.module, CALL_LIMIT, self.sample), self._corrects, fewer)

    def _corrects(self, query: ModuleQuery) -> None:
        try:
            corrected = query.corrected().cht(buckets=query.buckets)
            expected = query.at_once().cht()
        except HeadraceError as error:
            raise _Broken(error.message, query) from error
        differs = history_diff(corrected, expected, names=("the corrected stream", "its history at once"))
        if differs:
            raise _Broken("a corrected stream must give the answer of its history", f"{differs}\n{query}")


def _skipped(name: str, reason: str) -> Planned:
    return name, lambda: Finding(name, "skipped", reason)


def _hint(found: Any, right: Any) -> str:
    if isinstance(found, float) and isinstance(right, float) and math.isclose(found, right, rel_tol=1e-9):
        return "; adding floats rounds, each time differently: keep fractions.Fraction, or the values for math.fsum"
    return ""
