"""What a module declares about itself: `module_check` finds out what it does not keep."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

import headrace as hr
from headrace.testing.module_check import ModuleReport, module_check


def checked(module: Any, check: str) -> ModuleReport:
    return module_check(module, examples=60, seed=7, only=[check])


class Operator(hr.Operator):
    input = "k STRING, v DOUBLE"
    output = "k STRING, o DOUBLE"


class RanksAmongAll(Operator):
    """Says a filter on `k` may come first; but it counts the events of all keys."""

    filter_through = ("k",)

    def compute(self, rows: list[Any]) -> Iterator[Any]:
        yield from ((row.k, float(place)) for place, row in enumerate(rows))


class SumsPerKey(Operator):
    """A filter on `k` may come first indeed."""

    filter_through = ("k",)

    def compute(self, rows: list[Any]) -> Iterator[Any]:
        for k in sorted({row.k for row in rows if row.k is not None}):
            yield k, float(len([row for row in rows if row.k == k]))


class GivesNoneForNone(Operator):
    """Says something of a window in which the filter leaves nothing."""

    filter_through = ("k",)

    def compute(self, rows: list[Any]) -> Iterator[Any]:
        yield from ((row.k, 0.0) for row in rows)
        yield "a", float(any(row.k == "a" for row in rows))


class NamesNoColumn(SumsPerKey):
    filter_through = ("k", "v")


class LooksBehind(hr.Aggregate):
    """Says it looks at no end behind its window's."""

    input = "v DOUBLE"
    output = "LONG"
    time_sensitive = True
    within_window = True

    def compute(self, events: list[Any], window: Any) -> int:
        return max(e.re for e in events) - window.le


class LooksInside(LooksBehind):
    def compute(self, events: list[Any], window: Any) -> int:
        return max(min(e.re, window.re) for e in events) - window.le


class Aggregate(hr.Aggregate):
    input = "v DOUBLE"
    output = "DOUBLE"


class OwnProcess(Aggregate):
    """Says it is deterministic, but depends on the process it runs in."""

    def compute(self, values: list[float]) -> float:
        return sum(values) + hash("a") % 1000


#: What the clock shows while it is stopped, so that it does not tick before another process is asked.
STOPPED = 0.0


class OwnClock(Aggregate):
    """Says it is deterministic, but looks at the clock, which goes by seconds."""

    def compute(self, values: list[float]) -> float:
        return sum(values) + int(STOPPED or time.time())


class MergesForwards(hr.IncrementalAggregate):
    """Merges only states that come in their order: its runs have a first value."""

    input = "v DOUBLE"
    output = "DOUBLE"

    def initial(self) -> list[float]:
        return []

    def add(self, state: list[float], items: list[float]) -> list[float]:
        return sorted(state + items)

    def remove(self, state: list[float], items: list[float]) -> list[float]:
        left = list(state)
        for item in items:
            left.remove(item)
        return left

    def merge(self, state: list[float], other: list[float]) -> list[float]:
        return state + other

    def compute(self, state: list[float]) -> float:
        return state[0]


class MergesPairs(MergesForwards):
    """Right for two states of different items; equal ones are taken for one."""

    def merge(self, state: list[float], other: list[float]) -> list[float]:
        return sorted(set(state) | set(other))

    def compute(self, state: list[float]) -> float:
        return float(len(state))


class MergesNoNulls(MergesForwards):
    """Merges everything but nulls."""

    def add(self, state: list[Any], items: list[Any]) -> list[Any]:
        return sorted(state + items, key=lambda v: (v is None, v or 0.0))

    def merge(self, state: list[Any], other: list[Any]) -> list[Any]:
        return self.add(state, [v for v in other if v is not None])

    def compute(self, state: list[Any]) -> float:
        return float(len(state))


class RemovesAny(MergesForwards):
    """Says it can take items back, and takes the least."""

    merge = hr.IncrementalAggregate.merge

    def remove(self, state: list[float], items: list[float]) -> list[float]:
        return state[len(items) :]


LIARS: list[tuple[Any, str, str, str]] = [
    (RanksAmongAll(), "filter through", "it declares filter_through = ('k',), but the filter changes", "where k "),
    (GivesNoneForNone(), "filter through", ", before it [", "where k "),
    (NamesNoColumn(), "filter through", "filter_through names v: only a column that an operator reads and outputs", ""),
    (LooksBehind(), "within window", "it declares within_window = True, but depends on ends after", "window 0 .. 1"),
    (OwnProcess(), "determinism", "in one process and", "window 0 .. 1"),
    (OwnClock(), "determinism", "in one process and", "window "),
    (MergesForwards(), "merging", "must be the state of all items", "merge ["),
    (MergesPairs(), "merging", "must be the state of all items", "merge ["),
    (MergesNoNulls(), "nulls", "must be the state of all items", "merge ["),
    (RemovesAny(), "removing", "as if they had never been added|leave no trace", "then remove ["),
]


@pytest.mark.slow
@pytest.mark.parametrize(("module", "check", "what", "shown"), LIARS, ids=[liar[0].name for liar in LIARS])
def test_a_declaration_that_is_not_kept_is_found_out(
    module: Any, check: str, what: str, shown: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys.modules[__name__], "STOPPED", 1000.0)
    report = checked(module, check)
    assert report.failed == (check,), str(report)
    assert any(part in report[check].detail for part in what.split("|")), report[check].detail
    assert shown in report[check].shown, report[check].shown


@pytest.mark.slow
def test_declarations_that_are_kept_pass():
    assert checked(SumsPerKey(), "filter through").ok
    assert checked(LooksInside(), "within window").ok
