"""The curves of a soak as a picture."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from tests.soak.run import CURVES, SoakReport

__all__ = ["draw"]


def draw(report: SoakReport, path: Path) -> None:
    """Draw every curve, with the kills as lines; grey is the first half, which the rule does not look at."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mpl.rcParams["svg.hashsalt"] = "headrace"  # so that equal pictures are equal files
    minutes = [seconds / 60 for seconds in report.times]
    picture, places = plt.subplots(3, 3, figsize=(12, 7), constrained_layout=True)
    for axes, (name, values) in zip(places.flat, report.curves.items(), strict=True):
        axes.plot(minutes, values, linewidth=1.2)
        axes.axvspan(minutes[0], (minutes[0] + minutes[-1]) / 2, color="0.93")
        for kill in report.kills:
            axes.axvline(kill / 60, color="tab:red", linewidth=0.8, linestyle=":")
        axes.set(title=f"{name}, {CURVES[name][0]}", ylim=(0, None))
        axes.grid(alpha=0.3)
    for axes in places[-1]:
        axes.set_xlabel("minutes")
    picture.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(picture)
