"""Traces of a server's queries: what every operator did, over the server's own logs, or in batches that ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.api.running import outputs_of
from headrace.display.words import counted
from headrace.errors import CheckpointError, LimitError, TraceError
from headrace.host.driving.shedding import using_every_row
from headrace.host.live_tables import followed
from headrace.host.saved.replay import BatchRange, Replay
from headrace.io.live_table import LiveTableRead
from headrace.io.origins import AdapterRead, Events, Files
from headrace.plan.nodes import Node, sources_of
from headrace.server.computing.as_of import as_of_now_on_disk
from headrace.server.computing.watch import StatementWatch
from headrace.server.published import ClientRows
from headrace.tracing.record import TraceRecord, record_driven, record_replay
from headrace.tracing.recording import Check
from headrace.tracing.traced import TracedRun

if TYPE_CHECKING:
    from headrace.server.core import HeadraceServer
    from headrace.server.queries import ServedQuery

__all__ = ["MOST_TRACED_CHANGES", "MOST_TRACED_ROWS", "trace_query"]

#: Rows that a trace reads at most, and changes that it keeps at most, in the memory of the server.
MOST_TRACED_ROWS, MOST_TRACED_CHANGES = 200_000, 2_000_000


def trace_query(
    server: HeadraceServer, name: str, batches: tuple[int, int] | None = None, *, state: bool = False,
    batch_rows: int | None = None,
) -> TracedRun:  # fmt: skip
    """The trace of a query, a published stream or a materialized view of a server, by its name.

    Without `batches` the query is run again, as it is written, over everything that its streams, tables and files have
    now; `batch_rows` bounds the rows of a batch, but files are read whole, and the input does not end. With `batches`,
    such as `(120, 140)`, the trace has these batches as they ran, from the state before them, with the operators that
    ran. `state=True` also keeps what operators remembered after each batch. The running query is not touched. The role
    of a reader is enough: a trace changes nothing.

    `TraceError` if there is no such query, or what it read is no longer kept; `LimitError` if it is too much to keep,
    or takes longer than a statement may.
    """
    query = _query_of(server, name)
    check = _bounded(StatementWatch(server.limits))
    if batches is not None:
        return TracedRun(_ran(server, query, BatchRange(*batches), state=state, check=check))
    outputs = outputs_of({"out": _over_logs(query)})
    return TracedRun(record_driven(outputs, batch_rows=batch_rows, state=state, check=check))


def _query_of(server: HeadraceServer, name: str) -> ServedQuery:
    served = server.objects.get(name.lower())
    if served is None or served.query is None:
        names = sorted(one.query.name for one in list(server.objects.values()) if one.query is not None)
        raise TraceError("there is no such query", given=name, allowed=", ".join(names) or "none: there are no queries")
    return served.query


def _over_logs(query: ServedQuery) -> Node:
    """The plan over the rows that its streams, tables and files have now."""
    _check_whole(query)
    node = as_of_now_on_disk(using_every_row(followed(query.node)))
    rows = 0
    for source in sources_of(node):
        adapter = source.origin.adapter if isinstance(source.origin, AdapterRead) else None
        if isinstance(adapter, (ClientRows, LiveTableRead)):
            rows += sum(found.end - found.first for found in adapter.offsets({}).values())
        elif isinstance(source.origin, Events):  # the one row of a total over nothing, or VALUES
            rows += source.origin.table.num_rows
        elif not isinstance(source.origin, Files):
            raise TraceError(
                "a trace of everything reads streams and tables of the server, files, and rows of the query itself",
                given=str(source.origin),
                instead="batches=(first, last), or a published stream of it, CREATE STREAM raw AS SELECT …",
            )
    _check_rows(rows)  # before anything is read; rows of files are counted as they are read
    return node


def _check_whole(query: ServedQuery) -> None:
    """Raise if a stream has lost its beginning: answers over the rest would not be those of the query."""
    if any(log.kept for log in query.logs):
        raise TraceError(
            "a stream that this query reads no longer has its first rows, which the query has used",
            given=query.name,
            allowed="batches whose state is kept",
            instead="batches=(first, last)",
        )


def _bounded(watch: StatementWatch) -> Check:
    """Ends a trace that takes too long, reads too much or keeps too much."""

    def check(rows: int, changes: int) -> None:
        watch.check()
        _check_rows(rows)
        if changes > MOST_TRACED_CHANGES:
            raise LimitError(
                "a trace of this query has more changes than it may keep",
                given=counted(changes, "change"),
                allowed=f"{MOST_TRACED_CHANGES:,}",
                instead="batches=(first, last), few of them",
            )

    return check


def _check_rows(rows: int) -> None:
    if rows > MOST_TRACED_ROWS:
        raise LimitError(
            "a trace of this query would read more rows than it may keep",
            given=counted(rows, "row"),
            allowed=f"{MOST_TRACED_ROWS:,}",
            instead="batches=(first, last), few of them",
        )


def _ran(server: HeadraceServer, query: ServedQuery, batches: BatchRange, *, state: bool, check: Check) -> TraceRecord:
    """Batches that ran, of the checkpoint that the query shares with those that run with it."""
    members = server.runs.sharing(query)
    pairs = [(followed(member.node), member.sink) for member in members]
    try:
        replay = Replay(query.checkpoint, pairs, batches, apart=query.shares)
        _check_rows(replay.rows)
        return record_replay(replay, state=state, output=members.index(query), check=check)
    except CheckpointError as error:
        raise TraceError(
            f"these batches cannot be run again; queries may have joined query {query.name}, or left it, since: "
            f"{error.message}",
            given=f"batches {batches}",
            allowed="batches since then",
            instead=f"ALTER QUERY {query.name} SET record = '1 h': it runs alone, and keeps its batches",
        ) from error
