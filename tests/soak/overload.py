"""Overload: more input, larger groups, batches and windows than a query can bear at ease.

Each case runs a query in this process, checks its answers, and returns figures. Tests run all of them in small;
`python -m tests.soak --overload` runs them at full size, each in a process of its own, and shows the memory.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

import headrace as hr

__all__ = ["CASES", "report"]

Figures = dict[str, float]
SCHEMA = "t LONG, k LONG, v LONG"


def _write(path: Path, times: Any, keys: Any, values: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"_{path.name}")
    columns = {"t": times, "k": keys, "v": values}
    pyarrow.csv.write_csv(pa.table({name: np.asarray(column, np.int64) for name, column in columns.items()}), draft)
    draft.rename(path)


def _rows(folder: Path) -> hr.Stream:
    folder.mkdir(parents=True, exist_ok=True)
    return hr.read_csv(str(folder), SCHEMA, lifetime=hr.point("t"), progress=hr.advance(delay=0))


def _run(stream: hr.Stream, folder: Path) -> tuple[Any, Any, float]:
    """Run a query over what is there, to the end of the input; its memory sink, itself, and the seconds it takes."""
    memory, began = hr.memory(), time.monotonic()
    query = stream.start(memory, host="local", checkpoint=str(folder / "state"))
    query.finish()
    seconds = time.monotonic() - began
    query.stop()
    return memory, query, seconds


def three_times(folder: Path, size: int) -> Figures:
    """Input at three times the capacity for `size` seconds, and then none: batches stay short, lag is seen and ends.

    The capacity is that of a sink that takes a millisecond for each row, which has a kilobyte.
    """
    per_file, every = 300, 0.1  # rows, seconds
    text = "x" * 1000
    seen, done = list[int](), list[int]()

    def slow(rows: Any, _: int) -> None:
        time.sleep(rows.num_rows / 1000)
        done.append(rows.num_rows)

    (folder / "in").mkdir(parents=True)
    stream = hr.read_csv(str(folder / "in"), f"{SCHEMA}, p STRING", lifetime=hr.point("t"))
    query = stream.start(hr.foreach_batch(slow, encoding="changes"), host="local", checkpoint=str(folder / "state"))
    began, written = time.monotonic(), 0
    while time.monotonic() - began < size:
        time.sleep(max(0.0, began + written * every - time.monotonic()))
        draft = folder / "in" / f"_{written:06d}.csv"
        draft.write_text("t,k,v,p\n" + "".join(f"{written},{row},1,{text}\n" for row in range(per_file)))
        draft.rename(folder / "in" / f"{written:06d}.csv")
        written += 1
        seen.append(sum(limits["waiting_files"] for limits in query.progress().get("intake", {}).values()))
    query.process_all_available()
    behind = sum(limits["waiting_files"] for limits in query.progress()["intake"].values())
    query.stop()
    assert sum(done) == written * per_file, "every row arrives once"
    assert behind == 0, "it recovers"
    return {"rows": sum(done), "seconds": time.monotonic() - began, "most waiting files": max(seen),
            "longest batch, s": max(query.batch_seconds), "most rows of a batch": max(done)}  # fmt: skip


def one_huge_group(folder: Path, size: int) -> Figures:
    """All rows have one key."""
    values = np.arange(size)
    for part in range(4):
        own = values[part::4]
        _write(folder / "in" / f"{part}.csv", np.sort(own) // 1000, np.zeros(len(own)), own)
    stream = _rows(folder / "in").group_by("k").window(hr.tumbling(size)).aggregate(n=hr.count(), s=hr.sum("v"))
    memory, query, seconds = _run(stream, folder)
    rows = memory.cht().to_pylist()
    late = sum(counts["diverted"] for counts in query.counts.values())
    assert sum(row["n"] for row in rows) + late == size
    return {"rows": size, "seconds": seconds, "rows/s": size / seconds}


def one_huge_batch(folder: Path, size: int) -> Figures:
    """All rows are in one file, which a batch reads whole."""
    _write(folder / "in" / "all.csv", np.arange(size), np.arange(size) % 1000, np.arange(size))
    stream = _rows(folder / "in").group_by("k").window(hr.tumbling(size)).aggregate(s=hr.sum("v"))
    memory, query, seconds = _run(stream, folder)
    assert sum(row["s"] for row in memory.cht().to_pylist()) == size * (size - 1) // 2
    return {"rows": size, "seconds": seconds, "rows/s": size / seconds, "longest batch, s": max(query.batch_seconds)}


def many_groups(folder: Path, size: int) -> Figures:
    """Each row has a key of its own, in a window that stays open."""
    for part in range(4):
        keys = np.arange(part, size, 4)
        _write(folder / "in" / f"{part}.csv", np.full(len(keys), part), keys, np.ones(len(keys)))
    stream = _rows(folder / "in").group_by("k").window(hr.tumbling(1000)).aggregate(n=hr.count())
    memory = hr.memory(encoding="final")
    began = time.monotonic()
    query = stream.start(memory, host="local", checkpoint=str(folder / "state"))
    query.process_all_available()
    held = sum(one["bytes"] for one in query.progress()["operators"])
    groups = max(one["rows"] for one in query.progress()["operators"])
    query.finish()
    seconds = time.monotonic() - began
    query.stop()
    assert memory.cht().num_rows == groups == size
    return {"groups": size, "seconds": seconds, "state bytes": held, "state bytes a group": held / size}


def many_open_windows(folder: Path, size: int) -> Figures:
    """Each event is in `size` windows of its group, and all of them are open."""
    events, groups = 50, 4
    times, keys = np.repeat(np.arange(events), groups), np.tile(np.arange(groups), events)
    _write(folder / "in" / "0.csv", times, keys, np.ones(len(times)))
    stream = _rows(folder / "in").group_by("k").window(hr.hopping(size, 1)).aggregate(n=hr.count())
    memory, _, seconds = _run(stream, folder)
    found = memory.cht()
    windows = found.num_rows
    assert windows == groups * (size + events - 1)
    assert sum(found["n"].to_pylist()) == len(times) * size
    return {"windows": windows, "seconds": seconds}


def silent_source(folder: Path, size: int) -> Figures:
    """One source of a join is silent, so the rows of the other stay; the report says how many, and they go later."""
    left, right = _rows(folder / "left"), _rows(folder / "right")
    joined = left.set_duration(10).join(right.set_duration(10).select("k", w="v"), on="k")
    memory = hr.memory()
    query = joined.start(memory, host="local", checkpoint=str(folder / "state"), files_per_batch=1)
    _write(folder / "right" / "0.csv", [0], [0], [5])
    held = []
    for part in range(4):
        _write(
            folder / "left" / f"{part}.csv",
            np.arange(size // 4) + part * size,
            np.arange(size // 4),
            np.ones(size // 4),
        )
        query.process_all_available()
        held.append(sum(one["rows"] for one in query.progress()["operators"]))
    _write(folder / "right" / "1.csv", [10 * size], [0], [5])
    query.process_all_available()
    after = sum(one["rows"] for one in query.progress()["operators"])
    query.stop()
    assert held == sorted(held)
    assert held[-1] >= size
    assert after < held[0], "the state goes when the source speaks again"
    return {"rows": size, "state rows while silent": held[-1], "state rows afterwards": after}


Case = Callable[[Path, int], Figures]
#: The cases with their small and their full size.
CASES: dict[str, tuple[Case, int, int]] = {
    "three_times": (three_times, 2, 600),
    "one_huge_group": (one_huge_group, 40_000, 5_000_000),
    "one_huge_batch": (one_huge_batch, 40_000, 5_000_000),
    "many_groups": (many_groups, 20_000, 1_000_000),
    "many_open_windows": (many_open_windows, 200, 10_000),
    "silent_source": (silent_source, 4_000, 1_000_000),
}


def report(folder: Path, say: Callable[[str], None], share: float = 1.0) -> int:
    """Run all cases, each in a process of its own; the number of those that fail."""
    failed = 0
    for name, (_, _, full) in CASES.items():
        size = str(max(1, int(full * share)))
        command = [sys.executable, "-m", "tests.soak.overload", name, size, str(folder / name)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        failed += done.returncode != 0
        say(f"{name}: {done.stdout.strip() if done.returncode == 0 else done.stderr[-2000:]}")
    return failed


if __name__ == "__main__":
    figures = CASES[sys.argv[1]][0](Path(sys.argv[3]), int(sys.argv[2]))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(json.dumps({**{key: round(value, 3) for key, value in figures.items()}, "peak MB": round(peak)}))  # noqa: T201
