"""The pictures of `make bench-esl`: figures 4 to 7 of Stream Mill's paper, as measured here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

__all__ = ["draw"]

Rates = Mapping[str, Mapping[int, float]]


def draw(
    folder: Path, averages: Rates, frequent: Rates, slides: Mapping[str, Mapping[int, tuple[float, float]]]
) -> None:
    """One picture with a figure for each pair."""
    folder.mkdir(parents=True, exist_ok=True)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), constrained_layout=True)
    for axes, title, found in ((left, "Average (figure 4)", averages), (right, "Frequent items (figure 5)", frequent)):
        for name, rates in found.items():
            axes.plot(list(rates), [1e6 / rate for rate in rates.values()], marker="o", label=name)
        axes.set(title=title, xscale="log", yscale="log", xlabel="tuples in the window", ylabel="µs a tuple")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.savefig(folder / "esl_windows.png", dpi=110)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), constrained_layout=True)
    for name, by in slides.items():
        left.plot(list(by), [rows for _, rows in by.values()], marker="o", label=name)
        right.plot(list(by), [rate / 1e6 for rate, _ in by.values()], marker="o", label=name)
    left.set(title="What is remembered (figure 6)", xscale="log", yscale="log", xlabel="slide", ylabel="rows of state")
    right.set(title="Tuple rate (figure 7)", xscale="log", xlabel="slide", ylabel="million tuples a second")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.savefig(folder / "esl_slides.png", dpi=110)
