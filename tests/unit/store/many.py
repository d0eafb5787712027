"""Many simulated runs of the commit protocol: `python -m tests.unit.store.many --runs 100000`, or `make simulate`.

A round runs one seed in every scenario of the real driver, and many seeds of the store alone, whose runs are short.
Processes take turns: one of n takes every n-th round. The report says how many runs there were, and what one cost. A
failure says its seed and its scenario; `simulate(seed, scenario)` does it again.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest
from tests.unit.store import test_changing, test_rivals, test_simulation
from tests.unit.store.changing import ChangingQuery, install
from tests.unit.store.simulated import simulate
from tests.unit.store.world import MemoryObjects, MemoryStorage

from headrace.store import cleanup

#: Runs of the store alone in a round, on each kind of store.
RIVALS = 60
Report = dict[str, tuple[int, float]]


def scenarios() -> Iterator[tuple[str, int, Callable[[int], object]]]:
    """The name of every scenario, how often it runs in a round, and the run of a seed."""
    for scenario in test_simulation.SCENARIOS:
        yield scenario.__name__, 1, lambda seed, scenario=scenario: simulate(seed, scenario)  # type: ignore[misc]
    for change in test_changing.SCENARIOS:
        yield change.__name__, 1, lambda seed, change=change: simulate(seed, change, ChangingQuery)  # type: ignore[misc]
    for storage in (MemoryStorage, MemoryObjects):
        name = f"rivals, {storage.place}"
        yield name, RIVALS, lambda seed, storage=storage: test_rivals.simulate(seed, storage)  # type: ignore[misc]


def runs_of(rounds: range, until: float) -> Report:
    """Some rounds, as far as there is time."""
    patch = pytest.MonkeyPatch()
    install(patch)
    patch.setattr(cleanup, "_EVERY", 1)
    found: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    try:
        for number in rounds:
            for name, times, run in scenarios():
                if time.monotonic() >= until:
                    return {key: (int(count), seconds) for key, (count, seconds) in found.items()}
                begun = time.perf_counter()
                for seed in range(number * times, (number + 1) * times):
                    run(seed)
                found[name][0] += times
                found[name][1] += time.perf_counter() - begun
    finally:
        patch.undo()
    return {key: (int(count), seconds) for key, (count, seconds) in found.items()}


def main() -> int:
    """Run them, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--first", type=int, default=0, help="the first round: others have other seeds")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    rounds = -(-given.runs // sum(times for _, times, _ in scenarios()))
    begun, until = time.monotonic(), time.monotonic() + 60 * given.minutes
    parts = [range(given.first + i, given.first + rounds, given.processes) for i in range(given.processes)]
    with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
        reports = pool.starmap(runs_of, [(part, until) for part in parts])
    names = list(dict.fromkeys(name for report in reports for name in report))
    counts = {name: sum(report.get(name, (0, 0.0))[0] for report in reports) for name in names}
    seconds = {name: sum(report.get(name, (0, 0.0))[1] for report in reports) for name in names}
    lines = [f"{counts[name]:>9,} runs  {1000 * seconds[name] / counts[name]:7.1f} ms each  {name}" for name in names]
    lines.append(f"{sum(counts.values()):>9,} runs in {time.monotonic() - begun:,.0f} s, every promise held")
    sys.stdout.write("\n".join([*lines, ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
