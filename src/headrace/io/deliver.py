"""Handing the batches of an output that has ended to its sink, in this process.

A directory gets the layout that Spark gives it: a folder per batch, and in it the file that says how far it came.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from headrace.changes import Changes
from headrace.errors import SinkError
from headrace.io.commit import BatchDirectory
from headrace.io.console import close, show_batch
from headrace.io.sinks import Call, Console, FileSink, Memory, Sink, encode, encode_cti
from headrace.progress import Progress
from headrace.schema import Schema
from headrace.time import NEG_INFINITY

__all__ = ["check_free", "deliver"]

Batches = Iterable[tuple[Changes, Progress]]


def check_free(sinks: Iterable[Sink]) -> None:
    """Raise unless every directory among the sinks is free, and named once: better before a query runs than after."""
    places: set[str] = set()
    for sink in sinks:
        if isinstance(sink, FileSink):
            place = BatchDirectory(sink.path)
            if place.taken or str(place.path) in places:
                raise SinkError(
                    f"{str(place.path)!r} holds the output of a query already",
                    given=sink.path,
                    allowed="a directory of its own for each output, and a new one for each run",
                    instead="another directory, or delete this one",
                )
            places.add(str(place.path))


def deliver(sink: Sink, name: str, schema: Schema, batches: Batches) -> None:
    """Hand over the batches of the output `name`, in order."""
    if isinstance(sink, FileSink):
        _write(sink, schema, batches)
        return
    for number, (changes, progress) in enumerate(batches):
        if isinstance(sink, Console):
            show_batch(sink, name, number, changes, progress)
        elif isinstance(sink, Memory):
            sink.add(changes, progress, number)
        elif isinstance(sink, Call):
            sink.function(number, changes, progress)
    if isinstance(sink, Console):
        close(sink)


def _write(sink: FileSink, schema: Schema, batches: Batches) -> None:
    directory, reached = BatchDirectory(sink.path), NEG_INFINITY
    directory.claim(uuid.uuid4().hex, begun=False)
    for number, (changes, progress) in enumerate(batches):
        staged = [directory.stage(number, f"part.{sink.format}", encode(changes, sink, number))] if len(changes) else []
        extra = encode_cti(progress.cti, schema, sink) if progress.cti > reached else {}
        if staged or extra:
            directory.commit(number, staged, extra)
        reached = max(reached, progress.cti)
