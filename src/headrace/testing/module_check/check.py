"""Does a module keep its word? Checks on random windows and streams; what fails is shown on the smallest one.

    from headrace.testing.module_check.check import module_check

    print(module_check(MyMedian()))

A module must answer, always the same, and leave its input alone; an incremental one must answer the same however its
items came and went; and in a query with corrections, batches and buckets the answer must be that over the history.
Some findings are no failures but good to know: whether clipping changes answers, whether outputs are bound in time.

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
from headrace.testing.module_check.claims import Filtered, added, differing, filters, merged_ways, misnamed, removed
from headrace.testing.module_check.process import CALL_LIMIT, asked, asked_elsewhere, asking
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
    """Run all checks on a module, or only those named, and say what they found.

    `sample` is a stream that the module finds something in, as `hr.events` takes it, its columns the module's fields;
    without one a rare pattern may never be drawn. `nulls=False` and `odd=False` are for modules whose input never has
    nulls, or NaN, infinities and extremes. `tell` hears of each check as soon as it is done.
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
    tried: int
    seconds: float


class _Checks:
    def __init__(
        self, module: Module, sample: tuple[Drawn, ...], examples: int, seed: int, *, nulls: bool, odd: bool
    ) -> None:
        self.module, self.sample, self.examples, self.seed = module, sample, examples, seed
        self.nulls, self.odd = nulls, odd
        self.caller = asking(module)
        self.bags = bags(module, sample)
        self.failed: set[str] = set()
        self.outputs = 0  # how many answers were more than an empty list

    def run(self, only: Collection[str]) -> Iterator[Finding]:
        """Every check in turn, or only those that are named."""
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
        if misnamed(self.module):
            yield "filter through", lambda: Finding("filter through", "failed", misnamed(self.module))
        elif self.module.filter_through:
            yield self._must("filter through", filters(self.module, self.sample, nulls=self.nulls), self._commutes)
        yield "corrections", self._corrections

    # --- searching ---------------------------------------------------------------------------------------------------

    def _search(self, drawn: st.SearchStrategy[Any], check: Callable[[Any], None], examples: int) -> _Result:
        """Draw examples until one breaks the check, then the smallest of those that do."""
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
            except _Broken as found:
                broken.append(found)
                patience = min(patience, time.monotonic() + _SHRINKING)
                raise
            except Exception as error:  # whatever the module does
                broken.append(_Broken(f"it raised {type(error).__name__}: {error}", example))
                patience = min(patience, time.monotonic() + _SHRINKING)
                raise broken[-1] from error

        # Flaky: a module that is not deterministic may be right the next time, and patience may have come to its end.
        with suppress(_Broken, Flaky):
            run()
        # The one tried last is the smallest, unless it was right by chance.
        return _Result(broken[-1] if broken else None, tried, time.monotonic() - started)

    def _must(self, name: str, drawn: st.SearchStrategy[Any], check: Callable[[Any], None]) -> Planned:
        """A check that has to hold."""
        return name, lambda: self._held(name, drawn, check, self.examples)

    def _held(self, name: str, drawn: st.SearchStrategy[Any], check: Callable[[Any], None], examples: int) -> Finding:
        before = self.outputs
        result = self._search(drawn, check, examples)
        if result.broken is not None:
            return Finding(name, "failed", result.broken.what, result.tried, result.seconds, result.broken.shown)
        vacuous = name == "answers" and self.outputs == before
        detail = "but no example gave any output: give a sample" if vacuous else ""
        return Finding(name, "ok", detail, result.tried, result.seconds)

    def _may(
        self, name: str, drawn: st.SearchStrategy[Any], check: Callable[[Any], None], holds: str, breaks: str
    ) -> Planned:
        """Something that is good to know."""

        def noted() -> Finding:
            before = self.outputs
            result = self._search(drawn, check, 2 * self.examples)  # one that breaks it may be rare
            detail = holds if self.outputs > before else "not known: no example gave any output"
            return Finding(name, "note", detail if result.broken is None else breaks, result.tried, result.seconds)

        return name, noted

    # --- answers -----------------------------------------------------------------------------------------------------

    def _answer(self, bag: WindowContent, module: Module | None = None) -> Any:
        found = asked(module or self.module, bag)
        if isinstance(found, Failure):
            raise _Broken(found.reason, bag)
        self.outputs += bool(found) or not isinstance(found, list)
        return found

    def _answers(self, bag: WindowContent) -> None:
        self._answer(bag)

    def _deterministic(self, two: tuple[WindowContent, WindowContent]) -> None:
        """The same answer again, after other questions, and by a new module about equal items elsewhere in memory."""
        bag, other = two
        first = self._answer(bag)
        self._same("asked twice", bag, first, self._answer(bag))
        self._answer(other)
        self._same("asked again after another window", bag, first, self._answer(bag))
        arguments, named = self.module.__getnewargs_ex__()
        new = type(self.module)(*arguments, **named)
        self._same("another module with the same parameters", bag, first, self._answer(bag.afresh(), new))

    def _determinism(self) -> Finding:
        """The same answer again; and in another process, which is elsewhere, later, and hashes otherwise."""
        found = self._held("determinism", st.tuples(self.bags, self.bags), self._deterministic, self.examples)
        if found.verdict == "failed" or self._has_texts:
            return found
        elsewhere = self._elsewhere("determinism", (1,), "")
        if elsewhere.verdict == "skipped":
            return replace(found, detail=f"not asked in another process: {elsewhere.detail}")
        return replace(elsewhere, examples=found.examples, seconds=found.seconds + elsewhere.seconds)

    @property
    def _has_texts(self) -> bool:
        return any(field.type.element.is_text for field in self.module.fields)

    def _set_order(self) -> Finding:
        """Texts hash differently in every process, so sets and dicts of them have another order there."""
        return self._elsewhere("set order", (1, 2), "; sets of texts have another order in each")

    def _elsewhere(self, name: str, hash_seeds: Sequence[int], why: str) -> Finding:
        started, seen = time.monotonic(), list[WindowContent]()
        self._search(self.bags, seen.append, self.examples)
        here = [asked(self.module, bag) for bag in seen]
        try:
            others = [asked_elsewhere(self.module, seen, hash_seed) for hash_seed in hash_seeds]
        except HostError as error:
            return Finding(name, "skipped", error.message)
        asked_of = [(bag, a, b) for other in others for bag, a, b in zip(seen, here, other, strict=True)]
        differ = [(bag, a, b) for bag, a, b in asked_of if not same_answer(a, b)]
        took = time.monotonic() - started
        if not differ:
            return Finding(name, "ok", "", len(seen), took)
        bag, a, b = min(differ, key=lambda one: len(one[0].events))
        told = f"it gave {a!r} in one process and {b!r} in another{why}"
        return Finding(name, "failed", told, len(seen), took, str(bag))

    def _same(self, how: str, shown: object, first: Any, again: Any) -> None:
        if not same_answer(first, again):
            raise _Broken(f"{how}: it gave {first!r}, then {again!r}", shown)

    def _leaves_alone(self, bag: WindowContent) -> None:
        given_ = bag.items()
        kept, copied = list(given_), copy.deepcopy(given_)
        if self.module.incremental:
            added(self.module, self.module.initial(), given_)
        elif self.module.time_sensitive or self.module.takes_window:
            self._drained(self.module.compute(given_, bag.window))
        else:
            self._drained(self.module.compute(given_))
        alone = len(given_) == len(kept) and all(a is b for a, b in zip(given_, kept, strict=True))
        if not alone or not same_answer(given_, copied):
            raise _Broken("it changes the list it is given; take a copy, such as sorted(items)", bag)

    def _drained(self, found: Any) -> None:
        """A generator does its work when it is read."""
        if isinstance(found, Iterator):
            for _ in found:
                pass

    # --- states ------------------------------------------------------------------------------------------------------

    def _states(self) -> Iterator[Planned]:
        came = parts(self.module, self.sample)
        yield self._must("state", self.bags, self._reads)
        if self.module.order_sensitive:
            yield _skipped("adding", "order-sensitive: its states are made anew, in order")
            return
        yield self._must("adding", came, self._adds)
        if self.module.invertible:
            yield self._must("removing", came, self._removes)
        else:
            yield _skipped("removing", "it has no remove: its states are made anew when items go")
        if self.module.algebraic:
            yield self._must("merging", came, self._merges)

    def _built(self, bag: WindowContent, steps: Sequence[Step]) -> Any:
        """A state after some steps; it is stored in between, as the engine does."""
        state = self.module.initial()
        for step, events in steps:
            if events:
                change = added if step == "add" else removed
                state = pickle.loads(pickle.dumps(change(self.module, state, bag.items(events))))  # noqa: S301 - ours
        return state

    def _read(self, bag: WindowContent, state: Any, shown: object) -> Any:
        found = self.caller.read(pickle.dumps(state), bag.window)
        if isinstance(found, Failure):
            raise _Broken(found.reason, shown)
        return found

    def _reads(self, bag: WindowContent) -> None:
        """Reading a state does not change it."""
        state = added(self.module, self.module.initial(), bag.items())
        before = self._read(bag, state, bag)
        args = (state, bag.window) if self.module.time_sensitive or self.module.takes_window else (state,)
        for _ in range(2):
            self._drained(self.module.compute(*args))
        self._same("compute changes the state it reads", bag, before, self._read(bag, state, bag))

    def _adds(self, came: Parts) -> None:
        steps = [("add", part) for part in came.parts]
        rule = "a state must not depend on the order and the parts its items came in"
        self._compare(came.bag, steps, came.bag.events, rule)

    def _removes(self, came: Parts) -> None:
        first, *others = came.parts
        gone = [event for part in others for event in part]
        steps = [*(("add", part) for part in came.parts), *(("remove", part) for part in reversed(others))]
        if first:
            rule = "a state from which items are removed must be as if they had never come"
            self._compare(came.bag, steps, first, rule)
        if gone:
            again = [("add", came.bag.events), ("remove", gone), ("add", gone)]
            self._compare(came.bag, again, came.bag.events, "items that go and come again must leave no mark")

    def _merges(self, came: Parts) -> None:
        parts = [part for part in came.parts if part]

        def states() -> list[Any]:
            return [self._built(came.bag, [("add", part)]) for part in parts]

        for how, merged in merged_ways(self.module.merge, states):
            told = f"merge {' + '.join(str(came.bag.items(part)) for part in parts)} {how}"
            self._differ(came.bag, came.bag.events, merged, "merged states must be the state of all items", told)

    def _compare(self, bag: WindowContent, steps: Sequence[Step], left: Sequence[Drawn], rule: str) -> None:
        told = ", then ".join(f"{step} {bag.items(events)}" for step, events in steps if events)
        self._differ(bag, left, self._built(bag, steps), rule, told)

    def _differ(self, bag: WindowContent, left: Sequence[Drawn], state: Any, rule: str, told: str) -> None:
        """Refuse a state that answers otherwise than one that is made anew from what is left."""
        shown = f"{told}\n{bag.with_events(left)}"
        right = self._read(bag, self._built(bag, [("add", left)]), shown)
        found = self.caller.read(pickle.dumps(state), bag.window)
        if isinstance(found, Failure):
            raise _Broken(f"{rule}: {found.reason}", shown)
        if not same_answer(found, right):
            raise _Broken(f"{rule}: it gave {found!r}, not {right!r}{_hint(found, right)}", shown)

    # --- values ------------------------------------------------------------------------------------------------------

    def _sound(self, bag: WindowContent) -> None:
        """An answer; and whatever holds for plain values must hold for these too."""
        self._answer(bag)
        if "determinism" not in self.failed:
            self._deterministic((bag, bag))
        if self.module.incremental and not self.module.order_sensitive:
            half = len(bag.events) // 2
            came = Parts(bag, (bag.events[half:], bag.events[:half]))
            if "adding" not in self.failed:
                self._adds(came)
            if self.module.invertible and "removing" not in self.failed:
                self._removes(came)
            if self.module.algebraic and "merging" not in self.failed:
                self._merges(came)

    def _empty(self) -> Finding:
        bag = WindowContent(self.module, Window(0, 10), ())
        try:
            found = self._answer(bag)
        except _Broken as broken:
            return Finding("no items", "note", f"{broken.what}; the engine never asks: such windows have no output")
        return Finding("no items", "note", f"it would give {found!r}; the engine never asks")

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
        """What says it looks at no end behind its window's must not see where it is."""
        whole, cut = self._answer(bag), self._answer(bag.clipped(right=True))
        if not same_answer(whole, cut):
            raise _Broken(
                f"it says within_window = True, but looks at ends behind the window: it gave {whole!r}, and {cut!r} "
                "when they are cut off",
                bag,
            )

    def _commutes(self, drawn: Filtered) -> None:
        """What a filter keeps of the outputs is what comes of the events it keeps."""
        behind = drawn.behind(self._answer(drawn.bag))
        before = self._answer(drawn.before) if drawn.before.events else []
        if differing(behind, before):
            raise _Broken(
                f"it says filter_through = {tuple(self.module.filter_through)!r}, but the filter changes its outputs: "
                f"behind it, it leaves {behind!r}, before it, it gives {before!r}",
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
        """What a change of the input changes in the output lies at or after it."""
        before, after = self._answer(change.bag), self._answer(change.bag.with_events(change.events))
        for sync in changed_at(before, after):
            if sync < change.sync:
                raise _Broken(f"a change at {change.sync} changed the output at {sync}", change.bag)

    # --- queries -----------------------------------------------------------------------------------------------------

    def _corrections(self) -> Finding:
        if self.failed & {"determinism", "set order"}:
            return Finding("corrections", "skipped", "nothing can be said of answers that differ by themselves")
        fewer = max(10, self.examples // 4)  # each is two whole queries
        return self._held("corrections", queries(self.module, CALL_LIMIT, self.sample), self._corrects, fewer)

    def _corrects(self, query: ModuleQuery) -> None:
        try:
            given_ = query.corrected().cht(buckets=query.buckets)
            right = query.at_once().cht()
        except HeadraceError as error:
            raise _Broken(error.message, query) from error
        differs = history_diff(given_, right, names=("the corrected stream", "its history at once"))
        if differs:
            raise _Broken("a corrected stream must end where its history starts", f"{differs}\n{query}")


def _skipped(name: str, why: str) -> Planned:
    return name, lambda: Finding(name, "skipped", why)


def _hint(found: Any, right: Any) -> str:
    if isinstance(found, float) and isinstance(right, float) and math.isclose(found, right, rel_tol=1e-9):
        return "; adding floats rounds, each time differently: keep fractions.Fraction, or the values for math.fsum"
    return ""
