"""A look at the queries of a server: the rows that they diverted, their state, their log.

`SHOW DIVERTED | STATE | LOG [FOR query] [LIMIT n]`, and the routes and commands that are made of these statements.
Running or not, a query keeps its diverted rows and the sizes of its state in its checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.host.losses import describe_losses
from headrace.host.saved.query import SavedQuery
from headrace.server.queries import ServedQuery
from headrace.sql import syntax as s
from headrace.sql.outcomes import Outcome

if TYPE_CHECKING:
    from headrace.server.core import HeadraceServer

__all__ = ["LOOKS", "LookedAt", "look"]

LOOKS = ("diverted", "state", "log")
_ROWS = 1_000
_TEXT, _NUMBER = pa.string(), pa.int64()
_DIVERTED = pa.schema(
    {"query": _TEXT, "at": _TEXT, "source": _TEXT, "reason": _TEXT, "file": _TEXT, "line": _NUMBER, "row": _TEXT}
)
_STATE = pa.schema({"query": _TEXT, "operator": _TEXT, "rows": _NUMBER, "bytes": _NUMBER, "held_by": _TEXT})
_LOG = pa.schema({"query": _TEXT, "at": pa.timestamp("us", "UTC"), "level": _TEXT, "message": _TEXT})


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
    return _diverted(part, queries, most)


def _diverted(part: s.Show, queries: Sequence[ServedQuery], most: int) -> LookedAt:
    found, notes = [], []
    for query in queries:
        rows = list(islice(_newest(query.checkpoint / "diverted"), most))
        found += [(query.name, str(row["le"]), *(row[name] for name in _DIVERTED.names[2:])) for row in reversed(rows)]
        total = sum(counts.get("diverted", 0) for counts in _counts(query).values())
        if total > len(rows):
            notes.append(f"{query.name}: the newest {len(rows):,} of {total:,} diverted rows; LIMIT n shows others")
    return LookedAt(part, _table(_DIVERTED, found), tuple(notes))


def _newest(folder: Path) -> Iterator[Mapping[str, Any]]:
    """Diverted rows, the newest batch first; a batch is a folder whose name has its number."""
    files = sorted(folder.glob("*/batch-*/*.jsonl"), key=lambda file: (file.parent.name, str(file)), reverse=True)
    for file in files:
        lines = file.read_text(encoding="utf-8").splitlines()
        yield from (json.loads(line) for line in reversed(lines))


def _state(query: ServedQuery) -> list[tuple[Any, ...]]:
    operators = [] if query.running is None else query.running.report.get("operators", [])
    operators = operators or _saved(query).get("operators", [])
    return [
        (query.name, one["operator"], one.get("rows"), one.get("bytes"), str(one.get("held_by", "")))
        for one in operators
    ]


def _losses(query: ServedQuery) -> list[str]:
    """What the query has lost so far, a line for each source."""
    examples = {} if query.running is None else query.running.examples
    return describe_losses(_counts(query), examples).splitlines()


def _counts(query: ServedQuery) -> Mapping[str, Mapping[str, int]]:
    return query.running.counts if query.running is not None else _saved(query).get("counts", {})


def _saved(query: ServedQuery) -> Mapping[str, Any]:
    """The summary of the checkpoint; empty before there is one."""
    try:
        return SavedQuery(query.checkpoint).show()
    except HeadraceError:
        return {}


def _table(schema: pa.Schema, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table([pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)], schema)
