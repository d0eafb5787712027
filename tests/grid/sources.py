"""Rows of the grid that differ in where their input is from, and in how it becomes events."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.grid.features import Feature, Pairs
from tests.grid.inputs import PAYLOAD, SCHEMA, Row, changes, events, points, write_files

import headrace as hr
from headrace_sqlite import SqliteSource

__all__ = ["SOURCES"]

ROWS = "t LONG, k STRING, i LONG, x DOUBLE"
IN_MEMORY = {"files": "the input is in memory", "clock": "the input has no files"}
ONE_BATCH = {"begun": "the input is one batch", "two batches": "the input is one batch"}
Read = Callable[[Path], hr.Stream]


def counted(stream: hr.Stream) -> hr.Stream:
    return stream.group_by("k").window(hr.tumbling(4)).aggregate(n=hr.count(), s=hr.sum("x"), top=hr.max("i"))


def source(name: str, read: Read, write: Callable[[Path], object], **about: Any) -> Feature:
    """A feature that reads `in` below its folder."""

    def pairs(folder: Path) -> Pairs:
        return [(counted(read(folder / "in")), hr.files(str(folder / "out" / "events")))]

    return Feature(name, "source", lambda folder: write(folder / "in") and None, pairs, **about)


def files_of(name: str, kind: str, read: Callable[..., hr.Stream], rows: list[list[Row]], **options: Any) -> Feature:
    """Files of a format, whose damage is an error."""
    about = {"bad_rows": "raise", **options.pop("reading", {})}
    return source(name, lambda path: read(str(path), **about), lambda path: write_files(path, rows, kind), **options)


_POINTS = {"lifetime": hr.point("t"), "progress": hr.advance(delay=10)}
_LOG = {"insert": "insert", "update": "update", "delete": "delete"}


def _table(seed: int) -> pa.Table:
    return pa.Table.from_pylist([row for rows in points(seed) for row in rows], SCHEMA)


def in_memory(_: Path) -> hr.Stream:
    rows = events(1)
    flat = [{n: hr.INFINITY if v == "inf" else v for n, v in row.items()} for batch in rows for row in batch]
    return hr.events(flat, PAYLOAD, batches=[len(batch) for batch in rows])


def bad_rows(path: Path) -> None:
    """Rows of which some are late, and some cannot be read."""
    write_files(path, points(3))
    for number, file in enumerate(sorted(path.glob("*"))):
        stat = file.stat()
        file.write_text(file.read_text() + f'{{"t": {number % 3}, "k": "a", "i": 1, "x": 1.0}}\nno row\n')
        os.utime(file, (stat.st_atime, stat.st_mtime))


def intervals(path: Path) -> None:
    rows = [[row | {"u": row["t"] + 1 + row["i"]} for row in batch] for batch in points(4)]
    write_files(path, rows, "parquet")


def debezium(path: Path) -> None:
    """Change events of a database as Debezium writes them."""
    ops = {"insert": "c", "update": "u", "delete": "d"}
    found = []
    for batch in changes(5, ops):
        rows = []
        for row in batch:
            image = {name: row[name] for name in ("t", "k", "i", "x")}
            gone = row["op"] == "d"
            rows.append(
                {
                    "before": image if gone else None,
                    "after": None if gone else image,
                    "op": row["op"],
                    "ts_ms": row["t"],
                }
            )
        found.append(rows)
    write_files(path, found)


def delta_versions(path: Path) -> None:
    """A Delta table with a version for each batch."""
    from deltalake import write_deltalake  # an extra

    for rows in points(6):
        write_deltalake(str(path), pa.Table.from_pylist(rows, SCHEMA), mode="append")


def sqlite_table(path: Path) -> None:
    """A table of SQLite, from which an installed adapter reads."""
    path.mkdir()
    with closing(sqlite3.connect(path / "db")) as connection, connection:
        connection.execute("CREATE TABLE rows (t INTEGER, k TEXT, i INTEGER, x REAL)")
        for rows in points(10):
            connection.executemany("INSERT INTO rows VALUES (:t, :k, :i, :x)", rows)


CHANGES = partial(hr.read_changes, schema=ROWS, key="k", at="t", format="json", progress=hr.ordered())
OTHER_LIBRARY = {"files": "another library reads the files of the table", "clock": "versions have no times of files"}
SOURCES: list[Feature] = [
    files_of("json", "json", hr.read_json, points(1), reading={"schema": ROWS, **_POINTS}),
    files_of("csv", "csv", hr.read_csv, points(1), reading={"schema": ROWS, **_POINTS}),
    files_of("parquet", "parquet", hr.read_parquet, points(1), reading={"schema": ROWS, **_POINTS}),
    files_of(
        "csv in order of names", "csv", hr.read_csv, points(1), reading={"schema": ROWS, "order": "name", **_POINTS}
    ),
    files_of(
        "progress per key", "csv", hr.read_csv, points(1),
        reading={"schema": ROWS, "lifetime": hr.point("t"), "progress": hr.advance(2, per="k", idle=30)},
    ),
    source(
        "late rows adjusted",
        lambda path: hr.read_parquet(
            str(path), lifetime=hr.interval("t", "u"), progress=hr.advance(1, late="adjust"), bad_rows="raise"
        ).drop("u"),
        intervals,
    ),
    files_of(
        "edges", "csv", hr.read_csv, points(1),
        reading={"schema": ROWS, "lifetime": hr.edge("t", "k"), "progress": hr.advance(10)},
    ),
    source(
        "intervals",
        lambda path: hr.read_parquet(
            str(path), lifetime=hr.interval("t", "u"), progress=hr.advance(10), bad_rows="raise"
        ).drop("u"),
        intervals,
    ),
    source(
        "rows diverted",
        lambda path: hr.read_json(str(path), ROWS, lifetime=hr.point("t"), progress=hr.advance(4)),
        bad_rows,
        lacks={"files": "bad_rows='divert' counts a damaged file, and goes on", "batch": "batch SQL reads no bad rows"},
    ),
    source("events in memory", in_memory, lambda _: None, lacks=IN_MEMORY),
    source(
        "arrow table", lambda _: hr.from_arrow(_table(7), **_POINTS), lambda _: None,
        begun=0, lacks=IN_MEMORY | ONE_BATCH,
    ),
    source(
        "generated",
        lambda _: hr.generated("trades", rows=60, seed=3).select(k=hr.col("symbol"), i=hr.lit(1), x=hr.col("price")),
        lambda _: None, begun=0, lacks=IN_MEMORY | ONE_BATCH,
    ),
    files_of("changes", "json", CHANGES, changes(8, _LOG)),
    files_of(
        "changes as of flink", "json", partial(CHANGES, encoding="flink", op="op"),
        changes(8, {"insert": "+I", "update": "+U", "delete": "-D"}),
    ),
    files_of("changes as upserts", "json", partial(CHANGES, encoding="upsert", deletes=hr.col("i") == 0), points(9)),
    source(
        "changes as of debezium",
        lambda path: hr.read_changes(
            str(path), ROWS, key="k", at="t", encoding="debezium", format="json", progress=hr.ordered(),
            bad_rows="raise",
        ),
        debezium,
    ),
    source(
        "delta table",
        lambda path: hr.read_delta(path, lifetime=hr.point("t"), progress=hr.advance(10), start="earliest"),
        delta_versions, lacks=OTHER_LIBRARY, options={"rows_per_batch": 10}, adapters=True,
    ),
    source(
        "adapter",
        lambda path: hr.read_source(SqliteSource(str(path / "db"), "rows", ROWS), **_POINTS),
        sqlite_table,
        lacks={"files": "another library reads the database", "clock": "rows have no times of files"},
        options={"rows_per_batch": 10}, adapters=True,
    ),
]  # fmt: skip
