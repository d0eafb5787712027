"""Logs of a table's changes in every encoding, and what a dict says about them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from hypothesis import strategies as st

from headrace.border import as_ticks
from headrace.time import INFINITY

__all__ = ["FORMS", "LOGS", "TABLE", "Change", "Row", "changes_of_a_table", "effective", "replayed", "seen"]

TABLE = "ts LONG, id LONG, name STRING, v DOUBLE"
Row = dict[str, Any]
#: A change of a table: its time, its key, and the new row, None if it is deleted.
Change = tuple[int, int, Row | None]
KEYS = st.integers(1, 3)
VALUES = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b", None]), "v": st.sampled_from([1.5, 2.0, float("nan")])}
)
changes_of_a_table = st.lists(st.tuples(st.integers(0, 9), KEYS, st.none() | VALUES), max_size=14)


def effective(changes: Sequence[Change]) -> list[tuple[str, int, int, Row | None, Row | None]]:
    """The changes as a database writes them: what happened, the time, the key, the row before and the row after.

    Nothing happens where a row is deleted that does not exist.
    """
    state: dict[int, Row] = {}
    found = []
    for ts, key, new in changes:
        old = state.pop(key, None)
        if new is None and old is None:
            continue
        what = "delete" if new is None else "insert" if old is None else "update"
        if new is not None:
            state[key] = new
        found.append((what, ts, key, old, new))
    return found


def plain_rows(changes: Sequence[Change], names: Sequence[str] = ("insert", "update", "delete")) -> list[Row]:
    words = dict(zip(("insert", "update", "delete"), names, strict=True))
    return [{"op": words[what], "ts": ts, "id": key, **(new or {})} for what, ts, key, _, new in effective(changes)]


def upserts(changes: Sequence[Change]) -> list[Row]:
    return [{"ts": ts, "id": key, **(new or {})} for _, ts, key, _, new in effective(changes)]


def debezium(changes: Sequence[Change]) -> list[Row]:
    rows = plain_rows(changes, ("c", "u", "d"))
    return [{"_op": row.pop("op"), **row} for row in rows]


def with_preimages(op: str, names: tuple[str, str, str, str]) -> Callable[[Sequence[Change]], list[Row]]:
    insert, before, after, delete = names

    def rows(changes: Sequence[Change]) -> list[Row]:
        found = []
        for what, ts, key, old, new in effective(changes):
            at = {"ts": ts, "id": key}
            found += [{op: before, **at, **(old or {})}] if what == "update" else []
            word = {"insert": insert, "update": after, "delete": delete}[what]
            found.append({op: word, **at, **(new or old or {})})
        return found

    return rows


LOGS: dict[str, Callable[[Sequence[Change]], list[Row]]] = {
    "rows": plain_rows,
    "upsert": upserts,
    "debezium": debezium,
    "flink": with_preimages("row_kind", ("+I", "-U", "+U", "-D")),
    "spark": with_preimages("_change_type", ("insert", "update_preimage", "update_postimage", "delete")),
}


def replayed(changes: Sequence[Change], *, in_order: bool) -> Counter[tuple[Any, ...]]:
    """What a dict says: replay the log, by time if `in_order`, and note how long each row was there."""
    done = [(ts, key, new) for _, ts, key, _, new in effective(changes)]
    lives: list[tuple[Any, ...]] = []
    open_rows: dict[int, tuple[int, Row]] = {}
    for ts, key, new in sorted(done, key=lambda change: change[0]) if in_order else done:
        if key in open_rows:
            since, row = open_rows.pop(key)
            lives += [(since, ts, key, row)] if since < ts else []
        if new is not None:
            open_rows[key] = (ts, new)
    lives += [(since, INFINITY, key, row) for key, (since, row) in open_rows.items()]
    return Counter((le, re, key, str(sorted(row.items()))) for le, re, key, row in lives)


def seen(history: pa.Table) -> Counter[tuple[Any, ...]]:
    rows = as_ticks(history).to_pylist()
    return Counter((r["le"], r["re"], r["id"], str(sorted((name, r[name]) for name in ("name", "v")))) for r in rows)


def _drawn(rows: pa.Table) -> str:
    lines = [rows.column_names, *([_cell(value) for value in row.values()] for row in rows.to_pylist())]
    return "\n".join(" | ".join(cells) for cells in lines)


def _cell(value: Any) -> str:
    return "" if value is None else str(value)


def _written(name: str) -> Callable[[pa.Table, Path], str]:
    def write(rows: pa.Table, folder: Path) -> str:
        path = folder / f"log.{name}"
        if name == "csv":
            pa.csv.write_csv(rows, path)
        elif name == "parquet":
            pa.parquet.write_table(rows, path)
        else:
            texts = [{n: "NaN" if v != v else v for n, v in row.items()} for row in rows.to_pylist()]  # noqa: PLR0124
            path.write_text("".join(json.dumps(row) + "\n" for row in texts))
        return str(path)

    return write


#: What a log can be: the same rows as files, as frames and as a drawn table.
FORMS: dict[str, Callable[[pa.Table, Path], Any]] = {
    "rows": lambda rows, _: rows.to_pylist(),
    "drawn": lambda rows, _: _drawn(rows),
    "arrow": lambda rows, _: rows,
    "pandas": lambda rows, _: rows.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda rows, _: pl.from_arrow(rows),
    "csv": _written("csv"),
    "json": _written("json"),
    "parquet": _written("parquet"),
}
