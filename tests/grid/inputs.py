"""The input of the grid's queries: physical events with corrections, as files, one per batch."""

from __future__ import annotations

import csv
import json
import os
import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["BATCHES", "PAYLOAD", "SCHEMA", "changes", "events", "points", "write_files"]

Row = dict[str, Any]
BATCHES, ROWS = 5, 10
PAYLOAD = "k STRING, i LONG, x DOUBLE"
SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.string()), ("i", pa.int64()), ("x", pa.float64())])


def events(seed: int) -> list[list[Row]]:
    """Batches of physical events: later ones correct earlier ones, and each ends with a promise."""
    draw, alive, cti, found = random.Random(seed), [], 0, []
    for _ in range(BATCHES):
        rows: list[Row] = []
        for _ in range(ROWS):
            if alive and draw.random() < 0.35:
                event = alive.pop(draw.randrange(len(alive)))
                floor = max(event["le"], cti)
                new = draw.choice([floor, floor + draw.randrange(9), "inf"])
                if new != event["re"]:
                    rows.append({**event, "kind": "retract", "re_new": new})
                    alive += [{**event, "re": new}] if new != event["le"] else []
            else:
                le = cti + draw.randrange(8)
                payload = {"k": draw.choice("abc"), "i": draw.randrange(5), "x": draw.randrange(20) / 2}
                event = {"kind": "insert", "le": le, "re": draw.choice([le + 1, le + 4, "inf"]), **payload}
                rows.append(event)
                alive.append(event)
        cti += 2 + draw.randrange(4)
        rows.append({"kind": "cti", "le": cti})
        alive = [event for event in alive if event["re"] == "inf" or event["re"] >= cti]
        found.append(rows)
    return found


def points(seed: int) -> list[list[Row]]:
    """Batches of rows with a time, a little out of order."""
    draw = random.Random(seed)
    return [
        [
            {"t": 6 * batch + draw.randrange(10), "k": draw.choice("abc"), "i": draw.randrange(5), "x": row / 2}
            for row in range(ROWS)
        ]
        for batch in range(BATCHES)
    ]


def changes(seed: int, operations: Mapping[str, str]) -> list[list[Row]]:
    """The log of a table's changes: rows of a key `k` that are inserted, updated and deleted, in order of time."""
    draw, alive, found, t = random.Random(seed), set[str](), [], 0
    for _ in range(BATCHES):
        rows: list[Row] = []
        for _ in range(ROWS):
            t, key = t + draw.randrange(3), draw.choice("abcdef")
            op = "insert" if key not in alive else draw.choice(["update", "update", "delete"])
            alive = alive - {key} if op == "delete" else alive | {key}
            rows.append({"op": operations[op], "t": t, "k": key, "i": draw.randrange(5), "x": draw.randrange(9) / 2})
        found.append(rows)
    return found


def _json(path: Path, rows: list[Row]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def _csv(path: Path, rows: list[Row]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _parquet(path: Path, rows: list[Row]) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path)


WRITERS: Mapping[str, Callable[[Path, list[Row]], None]] = {"json": _json, "csv": _csv, "parquet": _parquet}


def write_files(folder: Path, batches: Iterable[list[Row]], kind: str = "json") -> None:
    """One file per batch, in the order of their times."""
    folder.mkdir(parents=True)
    for number, rows in enumerate(batches):
        path = folder / f"{number:03d}.{kind}"
        WRITERS[kind](path, rows)
        os.utime(path, (1_000_000 + number, 1_000_000 + number))
