"""`make bench`: figures beside goals, in one process and one report. `ARGS="--only growth"` runs a part of it."""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import tempfile
from pathlib import Path

from benchmarks.measure import Section, show

#: Each is a module here with `measure(root, options)`. Loaded when it runs: growth needs no Spark session, and services
#: needs one with more jars, so it is the first.
BENCHMARKS = (
    "services", "throughput", "kernels", "reading", "live", "objects", "lake", "nexmark", "store", "memory", "growth",
    "relations", "modules", "esl", "patterns", "patterns_spark", "ffp", "recursion", "trips", "scale", "cluster",
    "two_workers", "server", "server_sharing", "traces",
)  # fmt: skip


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=BENCHMARKS, help="which benchmarks")
    parser.add_argument("--rounds", type=int, default=2, help="how often those that are compared take turns")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--files", type=int, default=12, help="throughput: how many files; a batch has two")
    parser.add_argument(
        "--rows", type=int, default=1_000_000, help="throughput, reading: events in a file; lake: rows of a batch"
    )
    parser.add_argument("--small", type=int, default=40, help="throughput: batches of 1000 events for the latency")
    parser.add_argument("--lasting", type=int, default=2000, help="live: batches of 100 events, for memory and files")
    parser.add_argument(
        "--share",
        type=float,
        default=1.0,
        help="nexmark, kernels: so many times as many events; growth, relations: sizes grow so much",
    )
    parser.add_argument("--events", type=int, default=10_000_000, help="scale: how many events")
    parser.add_argument("--queries", nargs="+", help="nexmark, kernels, scale: which queries; all without it")
    parser.add_argument("--records", type=int, default=3_000_000, help="services: records of the topic")
    parser.add_argument("--seconds", type=float, default=20.0, help="services: how long each latency is measured")
    parser.add_argument("--upserts", type=int, default=500_000, help="services: keys of the table")
    parser.add_argument("--plots", type=Path, help="esl, ffp: draw the pictures in this folder")
    options = parser.parse_args()
    sections: list[Section] = []
    for name in options.only:
        root = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
        try:
            section = importlib.import_module(f"benchmarks.{name}").measure(root, options)
        finally:
            shutil.rmtree(root, ignore_errors=True)
        show([section])
        sections.append(section)
    if options.json:
        figures = {name: s.figures for name, s in zip(options.only, sections, strict=True)}
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
