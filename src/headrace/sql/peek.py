"""Peeks: a query over tables alone, without windows, is a relation, and its answer is the rows that hold now.

Elsewhere an answer is a history: rows and when they hold. Users of databases expect rows, in the order that ORDER BY
gives, and so a peek has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.api.running import run_quietly
from headrace.api.stream import Stream
from headrace.host.result import Result
from headrace.plan.nodes import Node
from headrace.sql import syntax as s
from headrace.sql.bind.clauses import ORDERED
from headrace.sql.bind.grouping import column_name
from headrace.sql.bind.stored import so_far
from headrace.sql.printer import to_sql
from headrace.time import INFINITY

__all__ = ["Compute", "Computed", "Order", "computed", "current", "with_keys"]

#: Columns to sort by, whether each descends, and whether its NULLs are first.
Order = Sequence[tuple[str, bool, bool]]
#: The rows that hold now; those of the whole history; or these with their times.
Computed = Literal["now", "history", "so far"]
#: Computes a stream, as the session does that carries out a statement.
Compute = Callable[[Stream, Computed], pa.Table]


def computed(node: Node, how: Computed, options: Mapping[str, Any]) -> pa.Table:
    """The rows of an answer."""
    if how == "so far":
        return so_far(Stream(node), options)
    result = run_quietly({"rows": node}, **options).results["rows"]
    return current(result) if how == "now" else result.history().drop_columns(["le", "re"])


def current(result: Result, order: Order = ()) -> pa.Table:
    """The rows of an answer that hold now: those that nothing has ended, in an order."""
    history = result.history()
    now = np.asarray(history["re"]) == INFINITY
    rows = history.filter(pa.array(now)).drop_columns(["le", "re"])
    if order:
        keys = [
            (name, "descending" if down else "ascending", "at_start" if first else "at_end")
            for name, down, first in order
        ]
        rows = rows.take(pc.sort_indices(rows, sort_keys=keys))
    return rows.drop_columns([name for name in rows.column_names if name.startswith(ORDERED)])


def with_keys(query: s.Query) -> tuple[s.Query, Order]:
    """A query with the values of its ORDER BY as columns, and these columns; without LIMIT, it is not sorted itself."""
    body = query.body
    if not isinstance(body, s.Select) or not body.order:
        return query, ()
    entries, order = list(body.entries), list[tuple[str, bool, bool]]()
    positions = [key.value.value for key in body.order if isinstance(key.value, s.Number)]
    starred = any(isinstance(entry.value, s.Star) for entry in entries)
    if positions and (starred or not all(place in range(1, len(entries) + 1) for place in positions)):
        return query, ()  # the binder says what is wrong with them
    for key in body.order:
        name = _listed(body, key.value)
        if name is None:
            if body.distinct:
                return query, ()
            name = f"{ORDERED}{len(order)}"
            entries.append(s.Entry(key.value, s.Name(name, at=key.at), at=key.at))
        order.append((name, key.descending, key.nulls == "first"))
    rest = () if body.limit is None else body.order
    return replace(query, body=replace(body, entries=tuple(entries), order=rest)), order


def _listed(body: s.Select, key: s.Expression) -> str | None:
    """The column of a query's list that a key of ORDER BY means: by position, by name, or as it is written."""
    if isinstance(key, s.Number) and isinstance(key.value, int) and 0 < key.value <= len(body.entries):
        entry = body.entries[key.value - 1]
        return None if isinstance(entry.value, s.Star) else column_name(entry)
    for entry in body.entries:
        if isinstance(entry.value, s.Star):
            continue
        name = column_name(entry)
        if isinstance(key, s.Column) and key.stream is None and key.name.text.lower() == name.lower():
            return name
        if to_sql(entry.value) == to_sql(key):
            return name
    return None
