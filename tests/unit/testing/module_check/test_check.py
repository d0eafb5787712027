"""`module_check` and `headrace module`: good modules pass, and of each kind of bad one the right thing is said."""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from textwrap import dedent
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from typer.testing import CliRunner

import headrace as hr
from headrace.cli import app
from headrace.errors import HeadraceError, ModuleError, SourceError
from headrace.testing.module_check import ModuleReport, module_check


def checked(module: Any, sample: Any = None, **options: Any) -> ModuleReport:
    return module_check(module, sample, **({"examples": 30, "seed": 1} | options))


def quick(module: Any) -> list[str]:
    """The checks that must hold for every module but the one that runs whole queries."""
    found = ["answers", "determinism", "own input"]
    if module.incremental:
        found += ["state", "adding", "removing"] + ["merging"] * module.algebraic
    return [*found, "timestamping"] if module.time_sensitive and isinstance(module, hr.Operator) else found


# --- good ones ------------------------------------------------------------------------------------------------------


class Average(hr.IncrementalAggregate):
    """Exact, so the order of items never shows."""

    input = "v DOUBLE"
    output = "DOUBLE"

    def initial(self) -> tuple[Fraction, int]:
        return Fraction(0), 0

    def add(self, state: tuple[Fraction, int], items: list[float]) -> tuple[Fraction, int]:
        return state[0] + sum(map(Fraction, items)), state[1] + len(items)

    def remove(self, state: tuple[Fraction, int], items: list[float]) -> tuple[Fraction, int]:
        return state[0] - sum(map(Fraction, items)), state[1] - len(items)

    def merge(self, state: tuple[Fraction, int], other: tuple[Fraction, int]) -> tuple[Fraction, int]:
        return state[0] + other[0], state[1] + other[1]

    def compute(self, state: tuple[Fraction, int]) -> float:
        return float(state[0] / state[1])


TICKS = "\n".join(["le | price", *(f"{i} | {p}" for i, p in enumerate([1.0, 3.0, 2.0, 4.0, 2.0, 3.0, 1.0]))])


@pytest.mark.slow
@pytest.mark.parametrize("name", hr.modules().names)
def test_what_is_installed_keeps_its_word(name: str):
    report = checked(
        hr.module(name),
        examples=max(5, settings().max_examples // 5),
        sample=TICKS if hr.modules()[name].input == "price DOUBLE" else None,
    )
    assert report.ok, str(report)


@pytest.mark.slow
def test_a_good_module_passes_every_check_there_is():
    report = checked(Average(), nulls=False, odd=False)
    assert report.ok, str(report)
    assert [f.check for f in report.findings] == [
        "answers", "determinism", "own input", "state", "adding", "removing", "merging", "no items", "corrections",
    ]  # fmt: skip
    assert "ZeroDivisionError" in report["no items"].detail
    assert report["no items"].verdict == "note", "the engine never asks for a window without events"


# --- bad ones -------------------------------------------------------------------------------------------------------


class Aggregate(hr.Aggregate):
    input = "v DOUBLE"
    output = "DOUBLE"


class Rolls(Aggregate):
    def compute(self, values: list[float]) -> float:
        return sum(values) + random.random()


class Remembers(Aggregate):
    seen = 0.0

    def compute(self, values: list[float]) -> float:
        self.seen = max(self.seen, *values)
        return self.seen


class Sorts(Aggregate):
    def compute(self, values: list[float]) -> float:
        values.sort(reverse=True)
        return values[0]


class RaisesOnNaN(Aggregate):
    def compute(self, values: list[float]) -> float:
        return float(round(sum(values)))


class GivesTextForThree(Aggregate):
    def compute(self, values: list[float]) -> Any:
        return "three" if len(values) >= 3 else 1.0


class NeverReturns(Aggregate):
    def compute(self, values: list[float]) -> float:
        while len(values) > 1:
            pass
        return values[0]


class RemovesTooMuch(Average):
    def remove(self, state: tuple[Fraction, int], items: list[float]) -> tuple[Fraction, int]:
        return state[0] - 2 * sum(map(Fraction, items)), state[1] - len(items)


class Last(hr.IncrementalAggregate):
    """Depends on the order and does not say so."""

    input = "v DOUBLE"
    output = "DOUBLE"

    def initial(self) -> None:
        return None

    def add(self, state: Any, items: list[float]) -> float:  # noqa: ARG002 - that is what is wrong with it
        return items[-1]

    def compute(self, state: float) -> float:
        return state


class LastInOrder(Last):
    order_sensitive = True


class Rounds(Last):
    def initial(self) -> float:
        return 0.0

    def add(self, state: float, items: list[float]) -> float:
        return state + sum(items)


class MergesHalf(Average):
    def merge(self, state: tuple[Fraction, int], other: Any) -> tuple[Fraction, int]:  # noqa: ARG002 - the mistake
        return state


class Eats(Average):
    """Reading its state changes it."""

    def initial(self) -> Any:
        return []

    def add(self, state: list[float], items: list[float]) -> None:
        state.extend(items)

    def remove(self, state: list[float], items: list[float]) -> None:
        for item in items:
            state.remove(item)

    def merge(self, state: list[float], other: list[float]) -> None:
        state.extend(other)

    def compute(self, state: list[float]) -> float:
        return min(state.pop() for _ in range(len(state)))


class AsksTheWeather(Aggregate):
    """Right when it is asked twice at once; wrong in a query that takes longer than the weather."""

    weather: ClassVar[list[float]] = []

    def compute(self, values: list[float]) -> float:
        self.weather.append(0.0)
        return sum(values) + len(self.weather) // 50


class StartsEarly(hr.Operator):
    input = "v DOUBLE"
    output = "o DOUBLE"
    time_sensitive = True

    def compute(self, events: list[Any], window: Any) -> Iterator[Any]:  # noqa: ARG002 - the mistake
        yield from (self.event(e.le, e.re, e.v) for e in events)


BAD: list[tuple[Any, set[str], str, str]] = [
    (Rolls(), {"determinism"}, "asked twice", "0  | 1  | 0.0"),
    (Remembers(), {"determinism"}, "asked again after another window|another module", "0  | 1  | "),
    (Sorts(), {"own input"}, "changes the list that it receives", "0  | 1  | 1.0"),
    (RaisesOnNaN(), {"odd values"}, "ValueError: cannot convert float NaN|OverflowError", "0  | 1  | "),
    (GivesTextForThree(), {"answers"}, "it gave 'three', which is no DOUBLE", "2  | 3  | 0.0"),
    (RemovesTooMuch(), {"removing"}, "as if they had never been added|leave no trace", "then remove ["),
    (Last(), {"adding"}, "the order and the parts", "then add ["),
    (MergesHalf(), {"merging"}, "must be the state of all items", "merge ["),
    (Eats(), {"state"}, "it raised ValueError", "window 0 .. 1"),
    (StartsEarly(), {"timestamping"}, "starts before the window", "window 1 .. 2"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("module", "failed", "what", "shown"), BAD, ids=[bad[0].name for bad in BAD])
def test_a_bad_module_is_found_out(module: Any, failed: set[str], what: str, shown: str):
    only = [*quick(module), *(["odd values"] if "odd values" in failed else [])]
    report = checked(module, nulls=False, examples=40, only=only)
    assert set(report.failed) == failed, str(report)
    finding = report[next(iter(failed))]
    assert any(part in finding.detail for part in what.split("|"))
    assert shown in finding.shown, finding.shown


@pytest.mark.slow
def test_a_query_that_ends_elsewhere_than_its_history_is_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("headrace.testing.module_check.check._SHRINKING", 2.0)
    report = checked(AsksTheWeather(), only=["corrections"], examples=200)
    assert report.failed == ("corrections",)
    shown = report["corrections"].shown
    assert "only in its history at once" in shown
    assert ".aggregate(answer=module)" in shown
    assert "| re_new | group_key | v" in shown


@pytest.mark.slow
def test_rounding_sums_are_explained():
    report = checked(Rounds(), examples=200, only=["adding"])
    assert report.failed == ("adding",)
    assert "keep fractions.Fraction" in report["adding"].detail


@pytest.mark.slow
def test_order_sensitive_states_are_made_anew_and_not_blamed():
    report = checked(LastInOrder(), odd=False, nulls=False, examples=15)
    assert report.ok, str(report)
    assert report["adding"].verdict == "skipped"


@pytest.mark.slow
def test_a_module_that_never_returns_is_stopped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("headrace.testing.module_check.process.CALL_LIMIT", 0.1)
    report = checked(NeverReturns(), examples=5, only=["answers", "determinism"])
    assert report.failed == ("answers",)
    assert "did not return within 0.1 s" in report["answers"].detail
    assert report["the rest"].verdict == "skipped"


def test_nulls_are_asked_unless_told_not_to():
    class Total(Aggregate):
        def compute(self, values: list[float]) -> float:
            return sum(values)

    assert checked(Total(), only=["nulls"]).failed == ("nulls",)
    with pytest.raises(ModuleError, match="there is no check 'nulls' for this module"):
        checked(Total(), nulls=False, only=["nulls"])


@pytest.mark.slow
def test_a_seed_repeats_a_run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("headrace.testing.module_check.check._SHRINKING", math.inf)
    first, second = (checked(RemovesTooMuch(), seed=7, only=["adding", "removing"]) for _ in range(2))
    assert [(f.check, f.detail, f.shown) for f in first.findings] == [
        (f.check, f.detail, f.shown) for f in second.findings
    ]
    assert "seed 7" in str(first)


def test_only_a_module_can_be_checked():
    with pytest.raises(ModuleError, match=r"module_check\(Average\(\)\)"):
        module_check(Average)


class Longest(hr.Aggregate):
    """Sees lifetimes: ends beyond the window count unless they are clipped."""

    input = "v DOUBLE"
    output = "LONG"
    time_sensitive = True

    def compute(self, events: list[Any], window: Any) -> int:
        return max(e.re for e in events) - window.le


class Echo(hr.Operator):
    """Gives every event for as long as it lasts: nothing before a change depends on it."""

    input = "v DOUBLE"
    output = "o DOUBLE"
    time_sensitive = True

    def compute(self, events: list[Any], window: Any) -> list[Any]:
        return [self.event(max(e.le, window.le), e.re, e.v) for e in events]


@pytest.mark.slow
def test_what_clipping_and_time_bounds_would_do_is_noted():
    clipping = ["clipping right", "clipping left"]
    longest, echo = checked(Longest(), only=clipping), checked(Echo(), only=["time bound"])
    assert longest["clipping right"].detail == "clipping='right' changes answers"
    assert "changes no answer" in longest["clipping left"].detail
    assert "can be kept" in echo["time bound"].detail
    pattern = checked(hr.module("finance.w_pattern"), TICKS, examples=60, only=["time bound"])
    assert "cannot be kept" in pattern["time bound"].detail


def test_a_pattern_that_is_never_drawn_needs_a_sample():
    pattern = hr.module("finance.head_and_shoulders")
    assert "give a sample" in checked(pattern, examples=10, only=["answers"])["answers"].detail
    assert checked(pattern, TICKS, only=["answers"])["answers"].detail == ""


# --- the command line -----------------------------------------------------------------------------------------------

FILE = dedent('''
    import headrace as hr

    class Spread(hr.Aggregate):
        """Highest less lowest, times a factor."""
        input = "v DOUBLE"
        output = "DOUBLE"
        def __init__(self, factor: float = 1.0):
            self.factor = factor
        def compute(self, values):
            values = [v for v in values if v is not None]
            return self.factor * (max(values) - min(values)) if values else None

    class AnyName(hr.Aggregate):
        input = "name STRING"
        output = "STRING"
        def compute(self, names):
            return next(iter(set(names)))
''')


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "spread_modules.py"
    path.write_text(FILE)
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    yield path
    sys.path[:] = before
    sys.modules.pop("spread_modules", None)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["module", *arguments])
    if isinstance(result.exception, HeadraceError):
        raise result.exception
    return result.exit_code, result.output


@pytest.mark.slow
def test_a_class_of_a_file_is_checked(file: Path):
    code, text = run("check", f"{file}:Spread", "--param", "factor=2.5", "--examples", "15", "--seed", "3", "--no-odd")
    assert code == 0, text
    assert "Spread(factor=2.5): v DOUBLE -> DOUBLE" in text
    assert "✓ corrections" in text
    assert "all checks passed; --seed 3 repeats this" in text
    assert [path.name for path in file.parent.iterdir() if path.name != "__pycache__"] == [file.name], "nothing is left"


@pytest.mark.slow
def test_a_failing_check_shows_the_smallest_stream_and_fails(file: Path):
    code, text = run("check", f"{file}:AnyName", "--examples", "40", "--seed", "3")
    assert code == 1
    assert "✗ set order" in text, "the order of a set of texts differs from process to process"
    assert "le | re | name" in text
    assert "failed: set order; --seed 3 repeats this" in text


def test_modules_are_found_in_packages_by_either_name_and_in_the_registry(tmp_path: Path):
    sample = tmp_path / "ticks.txt"
    sample.write_text(TICKS)
    for target in ("headrace-finance:WPattern", "headrace_finance.patterns:WPattern", "finance.w_pattern"):
        code, text = run("check", target, "--examples", "5", "--sample", str(sample), "--only", "answers")
        assert code == 0, text
        assert "WPattern(tolerance=0.03, rise=0.05)" in text


def test_what_cannot_be_checked_is_refused_with_advice(file: Path):
    with pytest.raises(ModuleError, match=r"instead: .*spread_modules\.py:Spread"):
        run("check", f"{file}:Spred")
    with pytest.raises(SourceError, match="there is no file"):
        run("check", "nowhere.py:Spread")
    with pytest.raises(ModuleError, match="cannot be imported"):
        run("check", "headrace-nowhere:Spread")
    with pytest.raises(ModuleError, match=r"hr\.module\('finance\.vwap'\)"):
        run("check", "finance.vwp")
    with pytest.raises(ModuleError, match="--param alpha="):
        run("check", f"{file}:Spread", "--param", "2.5")
    with pytest.raises(ModuleError, match="factor must be float"):
        run("check", f"{file}:Spread", "--param", "factor=much")
    with pytest.raises(SourceError, match="there is no file"):
        run("check", f"{file}:Spread", "--sample", "nowhere.txt")


def test_the_list_shows_names_and_documentation():
    code, text = run("list")
    assert code == 0
    assert "finance.ema(alpha: float = 0.1)" in text
    assert "The volume-weighted average price" in text
    found = {one["name"]: one for one in json.loads(run("list", "--json")[1])}
    assert found["finance.vwap"]["properties"] == ["invertible", "algebraic"]
    assert found["time_weighted_avg"]["package"] == "headrace"
