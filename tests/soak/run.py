"""A soak: feeds a query, kills it, samples it, and judges the curves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import psutil
from tests.soak.child import WINDOW, answers
from tests.soak.feed import Feed
from tests.soak.trend import Trend, trend_of

from headrace.events import history, to_changes
from headrace.io.sinks import read_events_output

__all__ = ["CURVES", "SoakReport", "soak"]

#: The curves, with their unit and the growth in it that never counts.
CURVES: dict[str, tuple[str, float]] = {
    "memory": ("MB", 30.0),
    "state files": ("files", 5.0), "state bytes": ("kB", 50.0), "commit bytes": ("kB", 10.0),
    "diverted files": ("files", 5.0), "recent files": ("files", 20.0), "all files": ("files", 40.0),
    "batch seconds": ("s", 0.05), "lag": ("s", 1.0),
}  # fmt: skip
_PATIENCE = 180.0


@dataclass
class SoakReport:
    """The curves of a soak, and what is wrong with them."""

    times: list[float] = field(default_factory=list)
    curves: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in CURVES})
    kills: list[float] = field(default_factory=list)
    rows: int = 0
    batches: int = 0
    #: How answers differ from those of a batch over the archive; empty if they do not.
    wrong: str = ""

    @property
    def trends(self) -> dict[str, Trend]:
        return {name: trend_of(self.times, values, CURVES[name][1]) for name, values in self.curves.items()}

    @property
    def problems(self) -> list[str]:
        grown = [
            f"{name} grows: by {trend.growth:.3g} {CURVES[name][0]} in the second half, median {trend.median:.3g}, "
            f"{trend.rising:.0%} of pairs rise" for name, trend in self.trends.items() if trend.fails
        ]  # fmt: skip
        return [*grown, *([self.wrong] if self.wrong else [])]

    def __str__(self) -> str:
        lines = [f"{self.rows:,} rows in {self.batches:,} batches, {len(self.kills)} kills, {self.times[-1]:.0f} s"]
        for name, trend in self.trends.items():
            unit, verdict = CURVES[name][0], "GROWS" if trend.fails else "ok"
            values = self.curves[name]
            lines.append(
                f"  {name:<15} median {trend.median:>9.3f} {unit:<5} most {max(values):>9.3f}  second half "
                f"{trend.growth:>+9.3f} ({trend.rising:>4.0%} of pairs rise)  {verdict}"
            )
        exact = "answers equal those of a batch over all input" if not self.wrong else self.wrong
        return "\n".join([*lines, f"  {exact}"])


class _Child:
    """The process of the query, with the latest line that it has printed."""

    def __init__(self, folder: Path, host: str, kafka: tuple[str, str] | None) -> None:
        self.about: dict[str, Any] = {}
        with (folder / "child.log").open("ab") as log:
            command = [sys.executable, "-m", "tests.soak.child", str(folder), host, *(kafka or ())]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=os.environ)
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with suppress(ValueError):
                self.about = json.loads(line)

    def memory(self) -> float:
        """The megabytes of the process and of all that it has started."""
        with suppress(psutil.Error):
            parent = psutil.Process(self.process.pid)
            return sum(_resident(one) for one in [parent, *parent.children(recursive=True)]) / 1e6
        return 0.0

    def kill(self) -> None:
        for one in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.Error):
                one.kill()
        self.process.kill()
        self.end()

    def end(self) -> int:
        code = self.process.wait(_PATIENCE)
        self._reading.join(_PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


def _resident(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(process.memory_info().rss)
    return 0


def soak(
    folder: Path, seconds: float, *, rate: int = 2000, kills: int = 3, host: str = "local", seed: int = 0,
    kafka: tuple[str, str] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> SoakReport:  # fmt: skip
    """Run for so long; the kills are in the first half, so that the second shows what grows in one process."""
    feed, report = Feed(folder, rate, seed, kafka=kafka), SoakReport()
    moments = iter([seconds / 2 * (number + 1) / (kills + 1) for number in range(kills)])
    child, began, next_kill = _Child(folder, host, kafka), time.time(), next(moments, None)
    try:
        for now in _ticks(began, seconds):
            while feed._next <= began + now:
                feed.step()
            if child.process.poll() is not None:
                raise RuntimeError(f"the query ended: see {folder / 'child.log'}")
            feed.promised = feed.promised or child.about.get("batch", -1) >= 0
            feed.remove_read(child.about.get("files", 0))
            if next_kill is not None and now >= next_kill:
                child.kill()
                report.kills.append(now)
                child, next_kill = _Child(folder, host, kafka), next(moments, None)
            elif child.about:
                _sample(report, folder, child, feed, now)
                say(f"{now:6.0f} s  {_latest(report)}")
        (folder / "finish").touch()
        assert child.end() == 0, (folder / "child.log").read_text()[-2000:]
    finally:
        if child.process.poll() is None:
            child.kill()
    report.rows, report.batches = feed.rows, child.about["batch"]
    report.wrong = _difference(folder, feed, child.about)
    return report


def _ticks(began: float, seconds: float) -> Iterator[float]:
    """The seconds since the beginning, once a second."""
    number = 0
    while number < seconds:
        number += 1
        time.sleep(max(0.0, began + number - time.time()))
        yield time.time() - began


def _sample(report: SoakReport, folder: Path, child: _Child, feed: Feed, now: float) -> None:
    about = child.about
    state = _sizes(folder / "state" / "store")
    commits = [size for name, size in state.items() if "/commits/" in name]
    values = {
        "memory": child.memory(), "state files": len(state), "state bytes": sum(state.values()) / 1e3,
        "commit bytes": max(commits, default=0) / 1e3,
        "diverted files": len(_sizes(folder / "state" / "diverted")), "recent files": len(_sizes(folder / "recent")),
        "all files": len(_sizes(folder / "all")), "batch seconds": about["seconds"],
        "lag": max(0, feed.rows - about["rows"]) / (feed.rate * (2 if feed.kafka else 1)),
    }  # fmt: skip
    report.times.append(now)
    for name, value in values.items():
        report.curves[name].append(float(value))


def _sizes(folder: Path) -> dict[str, int]:
    found = {}
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                file = Path(path, name)
                found[str(file)] = file.stat().st_size
    return found


def _latest(report: SoakReport) -> str:
    return "  ".join(f"{name} {values[-1]:.4g}" for name, values in report.curves.items())


def _difference(folder: Path, feed: Feed, about: dict[str, Any]) -> str:
    """How the answers differ from those of a database over the archive."""
    if (about["rows"], about["diverted"]) != (feed.rows, feed.late):
        return (
            f"{about['rows']:,} rows read, {about['diverted']:,} diverted; written: {feed.rows:,}, {feed.late:,} late"
        )
    schema = answers(folder).schema
    found = history(to_changes(read_events_output(str(folder / "all"), schema), schema))
    size = WINDOW * 1_000_000
    rows = f"read_csv('{folder}/archive/*.csv', columns={{'t': 'BIGINT', 'k': 'BIGINT', 'v': 'BIGINT'}}, header=true)"
    expected = duckdb.sql(
        f"SELECT (t // {size}) * {size} AS le, (t // {size}) * {size} + {size} AS re, k, count(*) AS n, sum(v)::BIGINT "
        f"AS s FROM {rows} WHERE t >= {feed.earliest} GROUP BY ALL"
    )
    columns = ["le", "re", "k", "n", "s"]
    own = sorted(zip(*(found[name].to_pylist() for name in columns), strict=True))
    other = sorted(expected.fetchall())
    if own == other:
        return ""
    return f"{len(set(own) ^ set(other)):,} answers differ of {len(other):,}: {sorted(set(own) ^ set(other))[:4]}"
