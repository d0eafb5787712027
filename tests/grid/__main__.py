"""`make grid`: run the fault grid, and write a report and a picture of it.

    python -m tests.grid                               all cells of rows that need no service
    python -m tests.grid --services                    all cells, with Kafka, PostgreSQL and an object store
    python -m tests.grid --features "window,json"      the rows whose names or families contain one of these
    python -m tests.grid --disruptions killed          the same for columns
    python -m tests.grid --cells 300 --seed 7          so many cells, drawn by the seed
    python -m tests.grid --cell tumbling "commit altered"
    python -m tests.grid --disruptions zombie --add    the other cells of the last report stay
    python -m tests.grid --spark --cells 150           on Spark, in this process

`make grid` adds what ARGS has.
"""

# ruff: noqa: T201 - a command
from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

from tests.grid.picture import picture
from tests.grid.run import DISRUPTIONS, FEATURES, CellResult, run_row, silence
from tests.grid.spark_daemon import grid_session

ROOT = Path(__file__).parents[2]
REPORT, PICTURE = ROOT / "build" / "fault_grid.json", ROOT / "docs" / "pictures" / "fault_grid.svg"
Chosen = dict[str, list[str]]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make grid", description="Run the fault grid.")
    parser.add_argument("--features", default="", help="parts of names or families of rows, with commas between them")
    parser.add_argument("--services", action="store_true", help="also the rows with services, which it starts")
    parser.add_argument("--disruptions", default="", help="the same of columns")
    parser.add_argument("--cells", type=int, help="draw so many of the cells; by default all")
    parser.add_argument("--cell", nargs=2, metavar=("FEATURE", "DISRUPTION"), help="one cell, with its errors")
    parser.add_argument("--seed", type=int, default=0, help="of what is random in cells, and of the draw")
    parser.add_argument("--workers", type=int, default=2, help="the number of processes")
    parser.add_argument("--add", action="store_true", help="keep the cells of the last report that are not run now")
    parser.add_argument("--spark", action="store_true", help="run the cells on Spark, where they make sense there")
    parser.add_argument("--picture", type=Path, default=None, help=f"where to draw it; all cells: {PICTURE.name}")
    parser.add_argument("--report", type=Path, default=REPORT, help="where to write the results, as JSON")
    return parser.parse_args()


def chosen(given: argparse.Namespace) -> Chosen:
    """The disruptions of each feature that are to run."""
    if given.cell:
        return {given.cell[0]: [given.cell[1]]}
    found = [f for f in FEATURES.values() if _fits(given.features, f.name, f.family)]
    rows = [f.name for f in found if given.services or given.features or not f.services]
    columns = [d.name for d in DISRUPTIONS.values() if _fits(given.disruptions, d.name, d.family)]
    cells = [(row, column) for row in rows for column in columns]
    if given.cells is not None and given.cells < len(cells):
        host = "spark" if given.spark else "local"
        fitting = [(r, c) for r, c in cells if DISRUPTIONS[c].why_not(FEATURES[r], host) is None]
        drawn = set(random.Random(given.seed).sample(fitting, given.cells))
        cells = [cell for cell in cells if cell in drawn]
    together: Chosen = {}
    for row, column in cells:
        together.setdefault(row, []).append(column)
    return together


def _fits(wanted: str, *names: str) -> bool:
    return any(part.strip() in name for part in wanted.split(",") for name in names)


def run_all(cells: Chosen, seed: int, workers: int) -> Iterator[CellResult]:
    """The results of all cells, row by row, as rows end; each worker is a fresh process."""
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=silence) as pool:
        futures = [pool.submit(run_row, row, columns, seed) for row, columns in cells.items()]
        for future in as_completed(futures):
            yield from future.result()


def progress(results: Iterable[CellResult], total: int, save: Callable[[list[CellResult]], None]) -> list[CellResult]:
    """Show how far the run is, and wrong cells at once; save the results from time to time."""
    found: list[CellResult] = []
    began = time.monotonic()
    for result in results:
        found.append(result)
        if result.outcome == "wrong":
            print(f"\nWRONG {result.feature} × {result.disruption}: {result.text}", flush=True)
        if len(found) % 20 == 0 or len(found) == total:
            done, seconds = len(found), time.monotonic() - began
            print(f"\r{done}/{total} cells, {seconds:.0f} s, {counted(found)}   ", end="", flush=True)
            save(found)
    print()
    return found


def on_spark(cells: Chosen, seed: int) -> Iterator[CellResult]:
    """The same on Spark, with one session."""
    silence()
    grid_session()
    for row, columns in cells.items():
        yield from run_row(row, columns, seed, "spark")


def read_report(path: Path) -> list[CellResult]:
    """The cells of a report whose rows and columns still exist."""
    found = [CellResult(**cell) for cell in json.loads(path.read_text())["cells"]]
    return [cell for cell in found if cell.feature in FEATURES and cell.disruption in DISRUPTIONS]


def write_report(path: Path, seed: int, results: Sequence[CellResult]) -> None:
    """The counts, and the outcome of each cell."""
    about = {"seed": seed, "counts": dict(Counter(result.outcome for result in results))}
    path.write_text(json.dumps(about | {"cells": [asdict(result) for result in results]}, indent=1))


def joined(new: Iterable[CellResult], before: Iterable[CellResult]) -> list[CellResult]:
    """The cells of both, in the order of the grid; new ones replace those before."""
    found = {(cell.feature, cell.disruption): cell for cell in [*before, *new]}
    return [found[row, column] for row in FEATURES for column in DISRUPTIONS if (row, column) in found]


def counted(results: Iterable[CellResult]) -> str:
    counts = Counter(result.outcome for result in results)
    return ", ".join(f"{name}: {counts[name]}" for name in ("exact", "typed error", "wrong", "not applicable"))


def main() -> int:
    """Run cells; gives 1 if one of them is wrong."""
    given = arguments()
    cells = chosen(given)
    total = sum(map(len, cells.values()))
    running = on_spark(cells, given.seed) if given.spark else run_all(cells, given.seed, given.workers)
    before = read_report(given.report) if given.add else []
    given.report.parent.mkdir(parents=True, exist_ok=True)
    results = progress(running, total, lambda found: write_report(given.report, given.seed, joined(found, before)))
    results = joined(results, before)
    if given.cell:
        print(*(f"{result.outcome}: {result.text}" for result in results), sep="\n")
    whole = not given.spark and len(results) == len(FEATURES) * len(DISRUPTIONS)
    target = given.picture or (PICTURE if whole else None)
    if target is not None:
        target.write_text(picture(results, FEATURES, DISRUPTIONS))
    seconds = sorted(result.seconds for result in results if result.outcome != "not applicable")
    print(f"{counted(results)}; the median cell took {seconds[len(seconds) // 2] if seconds else 0:.2f} s")
    return int(any(result.outcome == "wrong" for result in results))


if __name__ == "__main__":
    sys.exit(main())
