"""`make bench-ffp`: the evaluation of the flying fixed-point paper, figures 6 to 11, for its three strategies.

- Figures 6, 8 and 10: every 100th event comes early by some promises. State, promises that leave the loop, lag.
- Figure 7: input comes ever more slowly. Guesses.
- Figures 9 and 11: events between promises are missing, ever more often. Guesses, unresponsiveness.

The query, the simulated clock and the measures are those of `ffp_runs.py`: nothing here depends on the machine. Hybrid
is to be as good as the better of the others everywhere. `--plots` draws the pictures of `docs/pictures`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from benchmarks.ffp_runs import Found, Setting, run
from benchmarks.measure import Row, Section, say
from headrace.plan.recurse import LoopProgress

__all__ = ["FIGURES", "SWEEPS", "Figure", "best_of_both", "measure", "sweep"]

#: By strategy: what was found for each value of what is varied.
Sweep = Mapping[str, Mapping[float, Found]]


@dataclass(frozen=True)
class Varied:
    """An experiment: what is varied, over which values."""

    field: str
    values: tuple[float, ...]
    base: Setting


@dataclass(frozen=True)
class Figure:
    """A figure of the paper: which experiment, what is shown of it, and whether little of it is good."""

    number: int
    title: str
    of: str
    shown: Callable[[Found], float]
    unit: str
    little_is_good: bool = True


SWEEPS = {
    "disorder": Varied("early", (0, 2, 4, 6, 8, 10), Setting(symbols=10_000)),
    "inactivity": Varied("interval", (2_000, 4_000, 8_000, 16_000, 32_000), Setting(symbols=3_000)),
    "lulls": Varied("lull", (0.0, 0.2, 0.4, 0.6, 0.8, 0.9), Setting(symbols=10_000)),
}
FIGURES = (
    Figure(6, "Disorder and state", "disorder", lambda f: f.state, "rows of the join"),
    Figure(8, "Disorder and promises", "disorder", lambda f: f.promises, "promises out", little_is_good=False),
    Figure(10, "Disorder and lag", "disorder", lambda f: f.lag, "application time"),
    Figure(7, "Inactivity and guesses", "inactivity", lambda f: f.guesses, "guesses"),
    Figure(9, "Lulls and guesses", "lulls", lambda f: f.guesses, "guesses"),
    Figure(11, "Lulls and unresponsiveness", "lulls", lambda f: f.unresponsive, "ticks"),
)


def sweep(varied: Varied) -> Sweep:
    """One run for each strategy and value."""
    found: dict[str, dict[float, Found]] = {}
    for strategy in get_args(LoopProgress):
        for value in varied.values:
            setting = replace(varied.base, **{varied.field: value})  # type: ignore[arg-type]
            found.setdefault(strategy, {})[value] = run(setting, strategy)
    return found


def best_of_both(figure: Figure, found: Sweep) -> float:
    """How much worse Hybrid is than the better of the others, where it is worst: 1 is as good, 2 twice as bad."""
    ratios = []
    for value, hybrid in found["hybrid"].items():
        others = [figure.shown(found[name][value]) for name in ("hwm", "probing")]
        own = figure.shown(hybrid)
        ratios.append(own / min(others) if figure.little_is_good else max(others) / own)
    return max(ratios)


def measure(root: Path, options: argparse.Namespace) -> Section:  # noqa: ARG001 - as the others
    """All of it, as a section of the report."""
    section = Section("Progress of loops: the evaluation of flying fixed-point, simulated")
    sweeps: dict[str, Sweep] = {}
    for name, varied in SWEEPS.items():
        sweeps[name] = sweep(varied)
        _say(name, sweeps[name])
    for figure in FIGURES:
        _compare(section, figure, sweeps[figure.of])
    _bound(section)
    _growth(section, sweeps["inactivity"])
    _wasted(section, sweeps["lulls"])
    if getattr(options, "plots", None):
        # Only pictures need matplotlib.
        from benchmarks.ffp_plots import draw

        draw(Path(options.plots), FIGURES, sweeps)
    return section


def _compare(section: Section, figure: Figure, found: Sweep) -> None:
    value = max(found["hybrid"])
    shown = _shown({name: figure.shown(by[value]) for name, by in found.items()}, ",.0f")
    ratio = best_of_both(figure, found)
    section.rows.append(
        Row(f"figure {figure.number}: {figure.title.lower()}, at {value:g} ({figure.unit})", headrace=shown,
            ratio=f"{ratio:.2f} times the better at worst", goal="about 1")
    )  # fmt: skip
    section.figures[f"figure {figure.number}/best of both"] = ratio
    section.figures |= {f"figure {figure.number}/{name}": figure.shown(by[value]) for name, by in found.items()}


def _bound(section: Section) -> None:
    """The mean lag beside half the time between two promises, which none can better when events come one by one."""
    base = replace(SWEEPS["disorder"].base, symbols=3_000)
    for batch in (1, base.batch):
        setting = replace(base, batch=batch)
        lags = {name: run(setting, name).lag / (setting.every / 2) for name in get_args(LoopProgress)}
        section.rows.append(
            Row(f"mean lag ÷ d/2, in order, {batch} events at a time", headrace=_shown(lags, ".2f"),
                ratio=f"{lags['hybrid']:.2f}", goal="hybrid ≤ 1.25")
        )  # fmt: skip
        section.figures |= {f"lag/{batch}/{name}": lag for name, lag in lags.items()}


def _wasted(section: Section, found: Sweep) -> None:
    """Guesses for each promise, where lulls are most likely."""
    value = max(found["hybrid"])
    each = {name: by[value].guesses / by[value].promises for name, by in found.items()}
    section.rows.append(
        Row(f"guesses for each promise, lulls at {value:g}", headrace=_shown(each, ".1f"),
            ratio=f"{each['hybrid']:.2f}", goal="hybrid: 1")
    )  # fmt: skip
    section.figures |= {f"each/{name}": guesses for name, guesses in each.items()}


def _growth(section: Section, found: Sweep) -> None:
    """How many times more guesses there are when input comes more slowly."""
    growth = {name: by[max(by)].guesses / by[min(by)].guesses for name, by in found.items()}
    section.rows.append(
        Row("guesses, input slowest ÷ fastest", headrace=_shown(growth, ".1f"), ratio=f"{growth['hybrid']:.2f}",
            goal="hybrid: 1")
    )  # fmt: skip
    section.figures |= {f"idle/{name}": times for name, times in growth.items()}


def _shown(values: Mapping[str, float], format_: str) -> str:
    return ", ".join(f"{name} {value:{format_}}" for name, value in values.items())


def _say(name: str, found: Sweep) -> None:
    for strategy, by in found.items():
        for value, f in by.items():
            say.print(
                f"  {name} {value:g}, {strategy}: lag {f.lag:.1f}, state {f.state:,.0f}, guesses {f.guesses:,}, "
                f"promises {f.promises:,}, unresponsive {f.unresponsive:,}, busy {f.busy:.0%}",
                highlight=False,
            )
