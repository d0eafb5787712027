"""Egress: from the changes of a query to the rows of its sinks, the same for every host.

1. *Pair.* Every output has its sink. `prepared` adds the operators that a sink needs, `check_places` and `claim` make
   sure that a directory belongs to one output of one query.
2. *Finality.* Those operators decide which rows may leave: `Final` holds back rows until they are final, upsert rows
   are the latest of each key. So a sink never waits.
3. *Encode.* `rows_of` returns the rows of a batch in the sink's encoding, `divided` those of each folder.
4. *Deliver.* The rows of an output come from several buckets; `departures` brings them together. For a directory, each
   task with rows writes parts (`write_parts`), and the driver publishes the parts (`publish_parts`). A console, a
   memory and a function are in the driver's process and get the complete batch (`hand_over`).

A query with a checkpoint delivers a batch after its commit (`host/driving/publish.py`); a run in process delivers all
batches at its end (`deliver`). A directory is the same for both: a folder for each batch, with a file for the batch's
CTI.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headrace.border import shown
from headrace.changes import WEIGHT, Changes
from headrace.columnar import to_numpy
from headrace.errors import SinkError
from headrace.events import cti_row
from headrace.expr import col, lit
from headrace.io import console
from headrace.io.adapter import SinkAdapter
from headrace.io.hive import divided
from headrace.io.object_batches import batches_at
from headrace.io.sinks import BatchFunction, Console, FileSink, FunctionSink, Memory, Nowhere, Sink, rows_of
from headrace.io.upserts import ENDED, check_columns, latest_of
from headrace.plan.nodes import EdgeLifetimes, Final, Node, Output, PointAtEnd, PointAtStart, Select, Union
from headrace.progress import Progress
from headrace.schema import Schema
from headrace.stages.cut import Line
from headrace.stages.encoding import encode, sorted_rows
from headrace.stages.merging import is_replaced, merge_small_batches
from headrace.stages.message import RESULT, Message
from headrace.stages.stage import intake_progress
from headrace.time import NEG_INFINITY

__all__ = [
    "Departure",
    "TaskSink",
    "check_places",
    "claim",
    "close",
    "deliver",
    "departures",
    "hand_over",
    "prepared",
    "publish_parts",
    "removals_counted",
    "show_losses",
    "task_sinks",
    "together",
    "write_parts",
]

#: Sinks that get their rows from the tasks; the others are in the driver's process.
TaskSink = FileSink | Nowhere | SinkAdapter


# --- pair ------------------------------------------------------------------------------------------------------------


def prepared(node: Node, sink: Sink | None) -> Node:
    """The stream with the operators that a sink needs; unchanged without a sink."""
    if isinstance(sink, FileSink):
        sink.check_columns(node.schema)
    if sink is None or sink.encoding in ("events", "changes"):
        return node
    if sink.encoding == "final":
        return Final(node)
    check_columns(node.schema, sink.key)
    if not isinstance(sink, SinkAdapter):
        return EdgeLifetimes(PointAtStart(node), sink.key, latest=True)
    if sink.ended == "keep":
        return EdgeLifetimes(PointAtStart(node), sink.key, latest=True, kept=True)
    return EdgeLifetimes(_starts_and_ends(node), sink.key, closes=col(ENDED), latest=True, kept=True)


def _starts_and_ends(node: Node) -> Node:
    """A sample at the start of every event, and one at its end, which `ENDED` marks."""
    columns = tuple((name, col(name)) for name in node.schema.names)
    starts = Select(PointAtStart(node), (*columns, (ENDED, lit(False))))
    return Union((starts, Select(PointAtEnd(node), (*columns, (ENDED, lit(True))))))


def task_sinks(sinks: Iterable[Sink], *, trips: bool = False) -> tuple[TaskSink | None, ...]:
    """The sink of every output that tasks write; None for outputs that the driver writes.

    With `trips`, a batch may have several trips, and a task sees one. Upsert rows need the result of the batch for a
    key: then the driver writes them.
    """
    return tuple(s if isinstance(s, TaskSink) and not (trips and s.encoding == "upsert") else None for s in sinks)


def check_places(sinks: Iterable[Sink], *, new: bool) -> None:
    """Raise unless every directory is writable, is used once, and with `new` is free: before anything runs."""
    places = set()
    for sink in sinks:
        if isinstance(sink, FileSink):
            place = batches_at(sink.path)
            place.check_writable()
            again = place.place in places
            if again or (new and place.taken):
                why = "is the directory of two outputs" if again else "holds the output of a query already"
                raise SinkError(
                    f"{sink.path!r} {why}",
                    given=sink.path,
                    allowed="a directory of its own for each output" + (", and a new one for each run" if new else ""),
                    instead="another directory" + ("" if again else ", or delete this one"),
                )
            places.add(place.place)


def claim(sinks: Iterable[Sink], owner: str, begun: Iterable[bool]) -> None:
    """Claim the directories among the sinks for one query; `begun` says which of them it has written before."""
    for sink, written in zip(sinks, begun, strict=True):
        if isinstance(sink, FileSink):
            batches_at(sink.path).claim(owner, begun=written)


# --- deliver ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Departure:
    """The results of one output in a batch: the messages of its buckets, trip by trip, and its progress."""

    output: Output
    trips: Sequence[Sequence[Message]]
    progress: Progress

    @property
    def messages(self) -> list[Message]:
        return [message for trip in self.trips for message in trip]

    @property
    def size(self) -> tuple[int, int]:
        """The number of changes, and how many of them are removals; tasks that write rows themselves have counted."""
        own = [removals_counted(m.table) for m in self.messages if m.table is not None]
        sizes = [*own, *(m.extra["size"] for m in self.messages if "size" in m.extra)]
        return sum(changes for changes, _ in sizes), sum(removed for _, removed in sizes)

    def changes(self) -> Changes:
        """The rows of all buckets."""
        parts = [[Changes.from_table(m.table) for m in trip if m.table is not None] for trip in self.trips]
        return together(self.output, [Changes.concat([Changes.empty(self.output.schema), *part]) for part in parts])


def removals_counted(table: pa.Table) -> tuple[int, int]:
    """The number of changes of a message, and how many of them are removals."""
    return table.num_rows, int((to_numpy(table.column(WEIGHT)) < 0).sum())


def departures(line: Line, trips: Sequence[Iterable[Message]], sources: Mapping[str, Progress]) -> list[Departure]:
    """The results of every output, from the last messages of every trip of a batch.

    The progress of an output is the least of its buckets'; without a stage, it follows from its sources.
    """
    by_output = [[list[Message]() for _ in trips] for _ in line.outputs]
    for place, messages in enumerate(trips):
        for message in messages:
            if 0 <= RESULT - message.edge < len(by_output):
                by_output[RESULT - message.edge][place].append(message)
    at_intake = intake_progress(line, sources)
    found = []
    for output, messages_of_trips in zip(line.outputs, by_output, strict=True):
        sent = [m.progress for m in messages_of_trips[-1] if m.progress is not None]
        progress = Progress.together(sent or [at_intake[output.fingerprint]])
        found.append(Departure(output, messages_of_trips, progress))
    return found


def together(output: Output, trips: Sequence[Changes]) -> Changes:
    """The changes of an output in a batch, from those of each of its trips."""
    if len(trips) == 1:
        return trips[0]
    if isinstance(output.input, EdgeLifetimes) and output.input.latest:
        return latest_of(trips, output.input.key)
    return Changes.concat(trips).consolidate()


def write_parts(sink: FileSink | Nowhere, changes: Changes, batch: int) -> list[str]:
    """Stage rows for their batch, a file for each of its folders; return their places."""
    if isinstance(sink, Nowhere):
        return []
    rows, place = sorted_rows(rows_of(changes, sink, batch), sink), batches_at(sink.path)
    files = ((folder, encode(piece, sink)) for folder, piece in divided(rows, sink.partition_by))
    return [place.stage(batch, f"part.{sink.format}", data, folder) for folder, data in files if data]


def publish_parts(sink: FileSink, schema: Schema, batch: int, parts: Sequence[str], cti: int | None) -> None:
    """Publish parts as the batch of a directory, with the CTI if it moved; an existing batch stays as it is.

    Only physical events include CTIs. Small batches are merged, if the sink says so.
    """
    extra = {}
    if cti is not None and sink.encoding == "events":
        row = shown(cti_row(cti, schema), dates=sink.dates, time_columns=sink.time_columns)
        extra[f"progress.{sink.format}"] = encode(row, sink)
    if (parts or extra) and not (sink.compact and is_replaced(sink, batch)):
        batches_at(sink.path).commit(batch, parts, extra)
    merge_small_batches(sink, batch)


def hand_over(sink: Sink, name: str, batch: int, changes: Changes, progress: Progress) -> None:
    """Give a batch of the output `name` to a sink of this process."""
    if isinstance(sink, Console):
        console.show_batch(sink, name, batch, changes, progress)
    elif isinstance(sink, Memory):
        sink.add(changes, progress, batch)
    elif isinstance(sink, BatchFunction):
        sink.call(changes, batch)
    elif isinstance(sink, FunctionSink):
        sink.function(batch, changes, progress)


def deliver(sink: Sink, name: str, schema: Schema, batches: Iterable[tuple[Changes, Progress]]) -> None:
    """Deliver all batches of the output `name`, after its end, in order; the sink is that of its stream."""
    claim([sink], uuid.uuid4().hex, [False])
    reached = NEG_INFINITY
    for number, (changes, progress) in enumerate(batches):
        if isinstance(sink, FileSink):
            parts = write_parts(sink, changes, number) if len(changes) else []
            moved = progress.cti if progress.cti > reached else None
            publish_parts(sink, schema, number, parts, moved)
            reached = max(reached, progress.cti)
        else:
            hand_over(sink, name, number, changes, progress)
    close([sink])


def show_losses(sinks: Iterable[Sink], losses: str) -> None:
    """Show the losses where a console shows the answers."""
    if any(isinstance(sink, Console) for sink in sinks):
        console.show_losses(losses)


def close(sinks: Iterable[Sink]) -> None:
    """Close the sinks of a query that has ended."""
    for sink in sinks:
        if isinstance(sink, Console):
            console.close(sink)
