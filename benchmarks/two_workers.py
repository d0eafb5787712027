"""A cluster of two workers beside `local[2]`, and a hot key beside uniform keys: the same files on S3.

The cluster is that of the tests: a master and two workers with one core each, processes of this machine without a path
in common, which get Headrace from the driver. A process has one Spark session, so every run is a process of its own:
`python -m benchmarks.two_workers MASTER URL` prints the seconds of its batches.

Half of all events of the hot files have one key. An average is combined before the shuffle, so that a hot key sends as
many rows as any other; a median needs all rows of a key in one place.

The JVMs of a new session are slow, and a cluster has three of them where `local[2]` has one. So the first query of each
session is reported apart. All batches have two files, however long they take.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
from tests.fixtures.s3_server import BUCKET, S3Server, serve
from tests.fixtures.spark_cluster import SparkCluster, run_cluster

import headrace as hr
from benchmarks.measure import Row, Section, say
from headrace.host.driving.pace import Pace
from headrace.io.sinks import Nowhere

__all__ = ["measure"]

KEYS, FILES, PER_BATCH = 1000, 12, 2
KINDS = ("uniform", "hot")
AGGREGATES = {"average": hr.avg, "median": hr.median}
#: The queries of a session: their names, aggregates and files. The first one is measured in a new session.
FIRST = "first query of a session"
QUERIES = [(FIRST, "average", "uniform"), *((f"{name}, {kind}", name, kind) for name in AGGREGATES for kind in KINDS)]
_GOAL, _MOST = 0.8, 1.5
_NO_BOUND = 1 << 40


def measure(root: Path, options: argparse.Namespace) -> Section:
    """Seconds of batches, of both places in turns."""
    rows = options.rows // 2
    (root / "s3").mkdir()
    with serve(root / "s3") as server, run_cluster(root / "cluster") as cluster:
        say.print("two workers: writing events to S3 …")
        for kind in KINDS:
            _upload(server, kind, rows)
        found: dict[str, dict[str, list[float]]] = {"local[2]": {}, "cluster": {}}
        for number in range(options.rounds):
            for place, master in (("local[2]", "local[2,4]"), ("cluster", cluster.url)):
                url = f"s3://{BUCKET}/state-{place[0]}-{number}"
                for name, times in _run(master, url, server, cluster).items():
                    found[place].setdefault(name, []).extend(times[1:])
                    shown = f"{' '.join(f'{t:.2f}' for t in times)} s; load {os.getloadavg()[0]:.1f}"
                    say.print(f"  round {number + 1}: {place}, {name}: {shown}")
    return _section(found)


def _section(found: dict[str, dict[str, list[float]]]) -> Section:
    section = Section("Two workers, and a hot key (same files on S3)", beside="local[2]")
    seconds = {place: {name: statistics.median(times) for name, times in runs.items()} for place, runs in found.items()}
    for name, here in seconds["local[2]"].items():
        there, goal = seconds["cluster"][name], "" if name == FIRST else f"≥ {_GOAL}"
        section.rows.append(
            Row(f"{name}, seconds of a batch", f"{here:.2f}", f"{there:.2f}", f"{here / there:.2f}", goal)
        )
        section.figures[f"{name} cluster_by_local"] = here / there
    for place, times in seconds.items():
        for name in AGGREGATES:
            factor = times[f"{name}, hot"] / times[f"{name}, uniform"]
            section.rows.append(Row(f"{name}, hot ÷ uniform, {place}", "", "", f"{factor:.2f}", f"≤ {_MOST}"))
            section.figures[f"{name} hot_by_uniform {place}"] = factor
    return section


def _upload(server: S3Server, kind: str, rows: int) -> None:
    client = server.client()
    for number in range(FILES):
        draw = np.random.default_rng(number)
        keys = draw.integers(0, KEYS, rows)
        if kind == "hot":
            keys[draw.random(rows) < 0.5] = 0
        times = np.sort(draw.integers(number * 10_000, number * 10_000 + 10_000, rows))
        table = pa.table({"t": pa.array(times), "k": pa.array(keys), "v": pa.array(draw.random(rows))})
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        obstore.put(client, f"{kind}/{number:03d}.parquet", sink.getvalue().to_pybytes())


def _run(master: str, url: str, server: S3Server, cluster: SparkCluster) -> dict[str, list[float]]:
    python = sys.executable if master.startswith("local") else str(cluster.python)
    own = server.environment | {"PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-m", "benchmarks.two_workers", master, url]
    done = subprocess.run(command, env=os.environ | own, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main(master: str, url: str) -> None:
    """All queries over all files, in one session."""
    found, memory = {}, {"spark.executor.memory": "900m"}
    for number, (name, aggregate, kind) in enumerate(QUERIES):
        events = hr.read_parquet(f"s3://{BUCKET}/{kind}/", lifetime=hr.point("t"), progress=hr.advance(100))
        stream = events.group_by("k").window(hr.tumbling(1000)).aggregate(v=AGGREGATES[aggregate]("v"))
        place = f"{url}-{number}"
        query = stream.start(Nowhere(), master=master, checkpoint=place, files_per_batch=PER_BATCH, options=memory)
        query.driver.byte_pace = Pace(_NO_BOUND, _NO_BOUND, _NO_BOUND)
        query.process_all_available()
        found[name] = list(query.batch_seconds)
        query.stop()
    sys.stdout.write(f"{json.dumps(found)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
