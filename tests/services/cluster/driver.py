"""A query on a cluster, in a process of its own. Its input, output and checkpoint are on S3.

Usage: `python -m tests.services.cluster.driver MASTER URL NAMES [BOOTSTRAP TOPIC]`. It continues the query at URL and
ends when all input is answered. NAMES of queries have commas between them. With BOOTSTRAP and TOPIC, of Kafka, there is
one more.
"""

from __future__ import annotations

import sys
from pathlib import Path

import obstore
from tests.fixtures.s3_server import BUCKET, S3Server
from tests.recovery.driver import SCHEMA, write_input
from tests.services.cluster.gates import gated
from tests.services.cluster.own_modules import Spread

import headrace as hr
from headrace import col
from headrace.cli.demo.trades import trades, vwap
from headrace.io.encode import rows_to_jsonl

__all__ = ["EXECUTORS", "queries", "sums", "upload_input"]

EXECUTORS = {"spark.executor.memory": "512m", "spark.driver.memory": "512m", "spark.driver.bindAddress": "127.0.0.1"}


def upload_input(server: S3Server, url: str, folder: Path, *, files: int, seed: int = 1) -> None:
    """Trades for the demo's query, physical events that correct each other, and plain rows, so many files of each."""
    write_input(folder, seed, files)
    client, prefix = server.client(), url.removeprefix(f"s3://{BUCKET}/")
    table = trades(2000, seed)
    size = -(-table.num_rows // files)
    for number, path in enumerate(sorted(folder.iterdir())):
        obstore.put(client, f"{prefix}/in/{path.name}", path.read_bytes())
        part = rows_to_jsonl(table.slice(number * size, size))
        obstore.put(client, f"{prefix}/trades/{number:03d}.jsonl", part)
        rows = [(t, t + 7, "abcd"[t % 4], t * 31 % 100) for t in range(number * 20, number * 20 + 20)]
        lines = "".join(f"{','.join(map(str, row))}\n" for row in rows)
        obstore.put(client, f"{prefix}/rows/{number:03d}.csv", f"t,u,k,v\n{lines}".encode())


def queries(url: str) -> dict[str, hr.Stream]:
    """The demo's query, a join, a pattern, a loop across buckets, a user's own module, and stages in a row."""
    stream = hr.read_events(f"{url}/in/", SCHEMA, format="json", progress=hr.explicit())
    counts = stream.group_by("k").window(hr.hopping(20, every=10)).aggregate(n=hr.count(), s=hr.sum("v"))
    links = stream.select(src=col("v") % 10, dst=col("v") % 7)
    begin = stream.where(col("k") == "a").select(node=col("v") % 10)
    rising = hr.pattern("A B+").define(B=col("v") > hr.prev("v")).within(20)
    return {
        "demo": vwap(f"{url}/trades/"),
        "join": stream.join(stream.where(col("v") > 50).select("k", large="v"), on="k"),
        "pattern": stream.group_by("k").match(rising, low=hr.first("v"), high=hr.last("v")),
        "loop": hr.recurse(begin, lambda found: found.join(links, on={"node": "src"}).select(node=col("dst"))),
        "own": stream.group_by("k").window(hr.tumbling(20)).aggregate(spread=Spread().of("v")),
        "gated": gated(url),
        "nested": counts.group_by("n").window(hr.tumbling(40)).aggregate(keys=hr.count(), top=hr.max("s")),
    }


def sums(numbers: hr.Stream) -> hr.Stream:
    return numbers.group_by(k=col("n") % 3).window(hr.tumbling(10)).aggregate(n=hr.count(), s=hr.sum("n"))


def kafka_numbers(bootstrap: str, topic: str) -> hr.Stream:
    delay = hr.advance(delay=1000)
    return hr.read_kafka(topic, "n LONG", bootstrap=bootstrap, lifetime=hr.point("n"), progress=delay)


def main(master: str, url: str, names: str, *kafka: str) -> None:
    """Run until everything is answered."""
    streams = {name: stream for name, stream in queries(url).items() if name in names.split(",")}
    streams |= {"kafka": sums(kafka_numbers(*kafka))} if kafka else {}
    sinks = [(stream, hr.files(f"{url}/out/{name}")) for name, stream in streams.items()]
    place = f"{url}/state"
    options = {} if master.startswith("sc://") else EXECUTORS
    query = hr.start_all(sinks, checkpoint=place, master=master, options=options, files_per_batch=2)
    sys.stdout.write(f"buckets {query.driver.job.buckets}\n")
    query.process_all_available()
    query.finish()
    query.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
