"""The state of every operator, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.changes import LE, RE, WEIGHT, Changes
from headrace.columnar import concat
from headrace.host.saved.folder import SavedCheckpoint
from headrace.stages.pickled import PICKLED
from headrace.store.blocks import BlockReader
from headrace.trace import HASH, TIME, saved_runs, stored_segments

__all__ = ["OperatorState", "state_of"]

#: Internal columns with their public names; they are the last columns.
_BUCKET = "__bucket"
_OURS = {TIME: "forgotten_at", _BUCKET: "bucket"}


@dataclass(frozen=True, eq=False)
class OperatorState:
    """The state of an operator, in all its buckets.

    `tables` has the living rows of each of its traces, `numbers` the numbers that it keeps beside them, one for each
    bucket. Traces in `pickled` contain pickled Python values, which are not loaded.
    """

    operator: str
    tables: Mapping[str, pa.Table]
    numbers: Mapping[str, Sequence[int]]
    pickled: tuple[str, ...] = ()


def state_of(folder: SavedCheckpoint) -> dict[str, OperatorState]:
    """The states of operators after the last batch, by their descriptions; equal descriptions get numbers."""
    about = folder.about().get("operators", {})
    found: dict[str, OperatorState] = {}
    with folder.last() as commit:
        reader = BlockReader(folder.storage, commit)
        for fingerprint, buckets in commit.record["state"].items():
            declaration = about.get(fingerprint, {"operator": fingerprint, "columns": {}})
            state = _operator(declaration, buckets, reader)
            if state.tables or state.numbers:
                found[_unused(state.operator, found)] = state
    return found


def _unused(name: str, taken: Mapping[str, Any]) -> str:
    numbered = [f"{name} #{number}" for number in range(2, len(taken) + 2)]
    return next(text for text in [name, *numbered] if text not in taken)


def _operator(declaration: Mapping[str, Any], buckets: Mapping[str, Any], reader: BlockReader) -> OperatorState:
    states = [buckets[str(bucket)] for bucket in range(len(buckets))]
    names = list(dict.fromkeys(name for state in states for name in state["traces"]))
    tables = {name: _table(name, states, declaration["columns"], reader) for name in names}
    numbers = {name: [state["scalars"][name] for state in states] for name in states[0]["scalars"]}
    pickled = tuple(name for name in names if any(PICKLED in state["traces"].get(name, ()) for state in states))
    return OperatorState(declaration["operator"], tables, numbers, pickled)


def _table(
    trace: str, states: Sequence[Mapping[str, Any]], columns: Mapping[str, str], reader: BlockReader
) -> pa.Table:
    """The living rows of a trace in all buckets; rows that cancel are left out."""
    parts = []
    for bucket, state in enumerate(states):
        runs = living(state["traces"].get(trace, {"segments": [], "floor": 0}), reader)
        tables = [rows for run in runs for rows in run]
        if tables:
            rows = concat(tables).drop_columns([HASH])
            if {LE, RE, WEIGHT} <= set(rows.column_names):
                rows = Changes.from_table(rows).consolidate().to_table()
            parts.append(rows.append_column(_BUCKET, pa.array(np.full(rows.num_rows, bucket, np.int64))))
    return _renamed(concat(parts), columns) if parts else pa.table({})


def living(trace: Mapping[str, Any], reader: BlockReader) -> Iterator[Iterator[pa.Table]]:
    """The living rows of a saved trace, with their hashes and times, run by run, oldest first."""
    for run in saved_runs(trace, stored_segments([trace], reader.block)):
        yield (part.table(trace["floor"]) for part in run)


def _renamed(table: pa.Table, columns: Mapping[str, str]) -> pa.Table:
    """A table with public names; a key that is also a column appears once."""
    found: dict[str, Any] = {}
    for name in [*(name for name in table.column_names if name not in _OURS), *_OURS]:
        shown = _shown(name, columns)
        if shown not in found:
            found[shown] = table.column(name)
        elif not found[shown].equals(table.column(name)):
            found[name] = table.column(name)
    return pa.table(found)


def _shown(name: str, columns: Mapping[str, str]) -> str:
    if name in columns or name in _OURS:
        return columns.get(name) or _OURS[name]
    prefix = next((column for column in columns if column.endswith(".") and name.startswith(column)), None)
    return columns[prefix] + name.removeprefix(prefix) if prefix is not None else name.removeprefix("__")
