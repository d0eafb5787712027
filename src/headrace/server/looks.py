"""A look at the queries of a server: the rows that they diverted, their state, their log, and their latest batches.

`SHOW DIVERTED | STATE | LOG | BATCHES | RATES [FOR query] [LIMIT n]`, and the routes and commands that are made of
these statements. Running or not, a query keeps its diverted rows and the sizes of its state in its checkpoint. Its
batches are those since the server was started.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.host.driving.past import PHASES, PastBatch, cti_and_lag
from headrace.host.losses import describe_losses
from headrace.host.saved.query import SavedQuery
from headrace.server.queries import ServedQuery
from headrace.sql import syntax as s
from headrace.sql.outcomes import Outcome

if TYPE_CHECKING:
    from headrace.server.core import HeadraceServer

__all__ = ["LOOKS", "LookedAt", "look"]

LOOKS = ("diverted", "state", "log", "batches", "rates")
_ROWS = 1_000
_TEXT, _NUMBER = pa.string(), pa.int64()
_DIVERTED = pa.schema(
    {"query": _TEXT, "at": _TEXT, "source": _TEXT, "reason": _TEXT, "file": _TEXT, "line": _NUMBER, "row": _TEXT}
)
_STATE = pa.schema({"query": _TEXT, "operator": _TEXT, "rows": _NUMBER, "bytes": _NUMBER, "held_by": _TEXT})
_LOG = pa.schema({"query": _TEXT, "at": pa.timestamp("us", "UTC"), "level": _TEXT, "message": _TEXT})
_REAL, _TIME = pa.float64(), pa.timestamp("us", "UTC")
_RATES = pa.schema(
    {
        "query": _TEXT, "at": _TIME, "batches": _NUMBER, "seconds": _REAL, "rows": _NUMBER, "accepted": _NUMBER,
        "diverted": _NUMBER, "dropped": _NUMBER, "changes": _NUMBER, "corrections": _NUMBER, "cti": _TEXT,
        "lag": _REAL, "state_rows": _NUMBER, "state_bytes": _NUMBER,
    }
)  # fmt: skip
_BATCHES = pa.schema(
    [*(pa.field("batch", _NUMBER) if field.name == "batches" else field for field in _RATES)]
    + [pa.field(phase, _REAL) for phase in PHASES] + [pa.field("sources", _TEXT)]
)  # fmt: skip


@dataclass(frozen=True)
class LookedAt(Outcome):
    """The rows of a look, and what a person should know too."""

    table: pa.Table
    notes: tuple[str, ...] = ()


def look(server: HeadraceServer, part: s.Show, queries: Sequence[ServedQuery]) -> LookedAt:
    """What a `SHOW` of this kind shows of these queries; without a name it is about all of them."""
    if part.what == "state":
        return LookedAt(part, _table(_STATE, [row for query in queries for row in _state(query)]))
    most = _ROWS if part.limit is None else part.limit
    if part.what == "log":
        name = None if part.name is None else queries[0].name
        lines: list[tuple[Any, ...]] = list(server.query_log.lines(name, most))
        losses = [(query.name, None, "losses", text) for query in queries for text in _losses(query)]
        return LookedAt(part, _table(_LOG, [*lines, *losses]))
    if part.what in ("batches", "rates"):
        return _past(part, queries, most)
    return _diverted(part, queries, most)


def _diverted(part: s.Show, queries: Sequence[ServedQuery], most: int) -> LookedAt:
    found, notes = [], []
    for query in queries:
        rows = list(islice(_newest(query.diverted), most))
        found += [(query.name, str(row["le"]), *(row[name] for name in _DIVERTED.names[2:])) for row in reversed(rows)]
        total = sum(counts.get("diverted", 0) for counts in _counts(query).values())
        if total > len(rows):
            notes.append(f"{query.name}: the newest {len(rows):,} of {total:,} diverted rows; LIMIT n shows others")
    return LookedAt(part, _table(_DIVERTED, found), tuple(notes))


def _past(part: s.Show, queries: Sequence[ServedQuery], most: int) -> LookedAt:
    """The newest batches of queries, or the newest seconds that had batches."""
    by_second = part.what == "rates"
    rows = []
    for query in queries:
        found = query.past(seconds=by_second)
        rows += [_past_row(query, one, by_second=by_second) for one in found[len(found) - min(len(found), most) :]]
    return LookedAt(part, _table(_RATES if by_second else _BATCHES, rows))


def _past_row(query: ServedQuery, one: PastBatch, *, by_second: bool) -> tuple[Any, ...]:
    ended = datetime.fromtimestamp(int(one.ended) if by_second else one.ended, UTC)
    fates = [one.fate(name) for name in ("rows", "accepted", "diverted", "dropped")]
    shared = [one.batches if by_second else one.number, round(one.seconds, 6), *fates, one.changes, one.removals]
    cti, lag = cti_and_lag(one.cti, one.ended, dates=query.dates)
    row = query.name, ended, *shared, str(cti), lag, *one.state_size
    return row if by_second else (*row, *(round(one.phases[phase], 6) for phase in PHASES), json.dumps(one.rows))


def _newest(folders: Sequence[Path]) -> Iterator[Mapping[str, Any]]:
    """Diverted rows, the newest batch first; a batch is a folder whose name has its number."""
    found = [file for folder in folders for file in folder.glob("batch-*/*.jsonl")]
    files = sorted(found, key=lambda file: (file.parent.name, str(file)), reverse=True)
    for file in files:
        lines = file.read_text(encoding="utf-8").splitlines()
        yield from (json.loads(line) for line in reversed(lines))


def _state(query: ServedQuery) -> list[tuple[Any, ...]]:
    operators = query.report.get("operators", []) or query.own(_saved(query).get("operators", []))
    return [
        (query.name, one["operator"], one.get("rows"), one.get("bytes"), str(one.get("held_by", "")))
        for one in operators
    ]


def _losses(query: ServedQuery) -> list[str]:
    """What the query has lost so far, a line for each source."""
    return describe_losses(_counts(query), query.report.get("examples", {})).splitlines()


def _counts(query: ServedQuery) -> Mapping[str, Mapping[str, int]]:
    counts: Mapping[str, Mapping[str, int]] = query.report.get("counts") or _saved(query).get("counts", {})
    return counts


def _saved(query: ServedQuery) -> Mapping[str, Any]:
    """The summary of the checkpoint; empty before there is one."""
    try:
        return SavedQuery(query.checkpoint).show()
    except HeadraceError:
        return {}


def _table(schema: pa.Schema, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table([pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)], schema)
