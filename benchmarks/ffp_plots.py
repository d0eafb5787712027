"""The pictures of `make bench-ffp`: figures 6 to 11 of the flying fixed-point paper, as measured here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

if TYPE_CHECKING:
    from benchmarks.ffp import Figure, Sweep

__all__ = ["draw"]

_VARIED = {
    "disorder": "every 100th event early by this many promises",
    "inactivity": "ticks in which 100 events come",
    "lulls": "likelihood of a lull",
}
_MARKS = {"hwm": "s", "probing": "^", "hybrid": "o"}


def draw(folder: Path, figures: Sequence[Figure], sweeps: Mapping[str, Sweep]) -> None:
    """One picture for disorder, one for input that pauses."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = {
        "ffp_disorder.png": [figure for figure in figures if figure.of == "disorder"],
        "ffp_pauses.png": [figure for figure in figures if figure.of != "disorder"],
    }
    for name, some in parts.items():
        picture, all_axes = plt.subplots(1, len(some), figsize=(5 * len(some), 4), constrained_layout=True)
        for axes, figure in zip(all_axes, some, strict=True):
            for strategy, by in sweeps[figure.of].items():
                values = [figure.shown(found) for found in by.values()]
                # Hybrid often lies on another curve, which is drawn wider to remain visible.
                width = 1.5 if strategy == "hybrid" else 4
                axes.plot(list(by), values, marker=_MARKS[strategy], label=strategy, linewidth=width, alpha=0.8)
            axes.set(title=f"{figure.title} (figure {figure.number})", xlabel=_VARIED[figure.of], ylabel=figure.unit)
            if figure.unit == "guesses":
                axes.set_yscale("log")
            if figure.of == "inactivity":
                axes.set_xscale("log", base=2)
            axes.grid(alpha=0.3)
            axes.legend(fontsize=8)
        picture.savefig(folder / name, dpi=110)
