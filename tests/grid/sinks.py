"""Rows of the grid that differ in where their answers go, and in which encoding."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from tests.grid.features import Feature, Pairs, two_streams, write_two

import headrace as hr
from headrace_sqlite import SqliteSink

__all__ = ["SINKS"]

NO_FILES = {"sink files": "the sink has no files that Headrace publishes"}


def answers(folder: Path) -> hr.Stream:
    stream = two_streams(folder)[0]
    return stream.group_by("k").window(hr.tumbling(4)).aggregate(n=hr.count(), s=hr.sum("x"))


def latest(folder: Path) -> hr.Stream:
    """Rows with a key."""
    return answers(folder).select("k", "n", "s", at=hr.start())


def sink(
    name: str, make: Callable[[Path], Any], stream: Callable[[Path], hr.Stream] = answers, **about: Any
) -> Feature:
    def pairs(folder: Path) -> Pairs:
        return [(stream(folder), make(folder / "out"))]

    return Feature(name, "sink", write_two, pairs, **about)


def recorded(out: Path) -> Any:
    """A function that writes every batch to a file of its number: so a batch that it gets again changes nothing."""

    def keep(rows: pa.Table, batch: int) -> None:
        (out / "rows").mkdir(parents=True, exist_ok=True)
        (out / "rows" / f"{batch:03d}.json").write_text(json.dumps(rows.to_pylist()))

    return hr.foreach_batch(keep)


def several(folder: Path) -> Pairs:
    """One query with three outputs."""
    return [
        (answers(folder), hr.files(str(folder / "out" / "answers"))),
        (two_streams(folder)[0], hr.files(str(folder / "out" / "input"), format="parquet")),
        (latest(folder), hr.files(str(folder / "out" / "latest"), encoding="upsert", key="k")),
    ]


def diverted(folder: Path) -> Pairs:
    """The rows that were not used, as an output of the query."""
    stream = hr.read_events(
        str(folder / "in" / "a"), "k STRING, i LONG, x DOUBLE", format="json", progress=hr.advance(2)
    )
    return [
        (stream, hr.files(str(folder / "out" / "used"))),
        (stream.diverted().drop("file"), hr.files(str(folder / "out" / "diverted"), encoding="final")),
    ]


def sqlite(encoding: Literal["changes", "upsert"], *key: str) -> Callable[[Path], SqliteSink]:
    """A table of SQLite, into which an installed adapter delivers."""

    def make(out: Path) -> SqliteSink:
        out.mkdir(exist_ok=True)
        (out / "db").touch()
        return SqliteSink(encoding, key, database=str(out / "db"), table="answers")

    return make


def files(**options: Any) -> Callable[[Path], Any]:
    return lambda out: hr.files(str(out / "rows"), **options)


SINKS: list[Feature] = [
    sink("events as jsonl", files()),
    sink("events as parquet", files(format="parquet")),
    sink("changes as jsonl", files(encoding="changes")),
    sink("changes as parquet", files(encoding="changes", format="parquet")),
    sink("final as jsonl", files(encoding="final")),
    sink("final as parquet", files(encoding="final", format="parquet", sort_by="k")),
    sink("upserts as jsonl", files(encoding="upsert", key="k"), latest),
    sink("upserts as parquet", files(encoding="upsert", key=("k", "at"), format="parquet"), latest),
    sink("partitioned files", files(encoding="final", format="parquet", partition_by="k")),
    sink("compacted files", files(encoding="final", format="parquet", compact=2)),
    sink("named times", files(encoding="changes", time_columns=("start", "end"))),
    sink("function", recorded, lacks=NO_FILES),
    sink("memory", lambda _: hr.memory(encoding="changes"), lacks=NO_FILES | {
        "lasting sinks": "what a process has in memory ends with it",
    }),
    sink("delta rows", lambda out: hr.delta_lake(out / "table"), adapters=True, lacks=NO_FILES),
    sink(
        "delta upserts", lambda out: hr.delta_lake(out / "table", encoding="upsert", key="k"), latest,
        adapters=True, lacks=NO_FILES,
    ),
    sink("delta log", lambda out: hr.delta_lake(out / "table", encoding="changes"), adapters=True, lacks=NO_FILES),
    sink("adapter's changes", sqlite("changes"), adapters=True, lacks=NO_FILES),
    sink("adapter's upserts", sqlite("upsert", "k"), latest, adapters=True, lacks=NO_FILES),
    sink("recorded", files(encoding="changes", compact=2), options={"record": "1 h"}),
    Feature("several outputs", "sink", write_two, several),
    Feature("output of diverted rows", "sink", write_two, diverted, lacks={
        "files": "bad_rows='divert' counts a damaged file, and goes on", "state": "the query has no state",
        "stage": "the query has no stages", "batch": "lateness is decided by the batch"}),
]  # fmt: skip
