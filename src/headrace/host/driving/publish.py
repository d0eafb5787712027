"""Publishing outputs after a commit: parts to directories, rows to the sinks of this process.

The commit names the parts that workers have staged for a directory, so publishing can be repeated: an existing batch
stays as it is. The commit holds rows for a console, a memory or a function, and a marker says that they were delivered.
After a crash between the two they are delivered again: these sinks get every batch at least once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from headrace.changes import Changes
from headrace.errors import SinkError
from headrace.io.object_batches import batches_at
from headrace.io.sinks import FileSink, Nowhere, Sink
from headrace.pieces import Data, ipc_pieces
from headrace.plan.nodes import Output
from headrace.progress import Progress
from headrace.stages.egress import Departure, hand_over, publish_parts, task_sinks, write_part
from headrace.store.blocks import BlockReader
from headrace.store.log import Commit, number_of
from headrace.store.storage import Storage
from headrace.time import NEG_INFINITY

__all__ = ["Publisher"]

_MARKER = "published"


class Publisher:
    """Delivers the outputs of committed batches to their sinks."""

    def __init__(self, outputs: Sequence[Output], sinks: Sequence[Sink], storage: Storage) -> None:
        self._outputs, self._sinks, self._storage = outputs, sinks, storage
        #: Whether there are sinks in this process.
        self._here = None in task_sinks(sinks)

    # --- before the commit -------------------------------------------------------------------------------------------

    def record(
        self, batch: int, departures: Sequence[Departure], before: Sequence[Mapping[str, Any]]
    ) -> tuple[list[dict[str, Any]], dict[str, Data]]:
        """The entry of every output in the commit, and the blocks with rows for the sinks of this process."""
        entries: list[dict[str, Any]] = []
        blocks: dict[str, Data] = {}
        for number, (sink, departure) in enumerate(zip(self._sinks, departures, strict=True)):
            old = before[number] if before else {"cti": NEG_INFINITY, "batches": 0, "sum": 0}
            cti = max(departure.progress.cti, old["cti"])
            entry: dict[str, Any] = {"cti": cti, "high": departure.progress.high}
            if isinstance(sink, FileSink):
                parts = [m.extra["staged"] for m in departure.messages if m.extra.get("staged")]
                if any(m.table is not None for m in departure.messages):  # the driver writes this output
                    part = write_part(sink, departure.changes(), batch)
                    parts += [part] if part else []
                moved = sink.encoding == "events" and cti > old["cti"]
                # How many batches have files in the directory, and the sum of their numbers, for the check at a start.
                has_files = bool(parts or moved)
                entry |= {"path": sink.path, "parts": parts, "moved": moved, "batches": old["batches"] + has_files}
                entry["sum"] = old["sum"] + (batch if has_files else 0)
            elif not isinstance(sink, Nowhere):
                entry["rows"] = f"rows-{number}"
                blocks[entry["rows"]] = ipc_pieces(departure.changes().to_table())
            entries.append(entry)
        return entries, blocks

    # --- after it ----------------------------------------------------------------------------------------------------

    def publish(self, commit: Commit) -> None:
        """Deliver the outputs of a commit."""
        self._publish_files(commit)
        for number, (sink, about) in enumerate(zip(self._sinks, commit.record["outputs"], strict=True)):
            if "rows" in about:
                self._show(number, sink, commit, about)
        if self._here:
            self._storage.create(f"{_MARKER}/{commit.batch:012d}", b"", lasting=False)
            for key in self._storage.keys(_MARKER):
                if number_of(key) < commit.batch:
                    self._storage.remove(key)

    def _publish_files(self, commit: Commit) -> None:
        """Publish parts; existing batches stay as they are."""
        for number, (sink, about) in enumerate(zip(self._sinks, commit.record["outputs"], strict=True)):
            if isinstance(sink, FileSink):
                cti = about["cti"] if about["moved"] else None
                publish_parts(sink, self._outputs[number].schema, commit.batch, about["parts"], cti)

    def _show(self, number: int, sink: Sink, commit: Commit, about: Mapping[str, Any]) -> None:
        rows = pa.ipc.open_stream(BlockReader(self._storage, commit).block(about["rows"])).read_all()
        changes, progress = Changes.from_table(rows), Progress(about["cti"], about["high"])
        hand_over(sink, self._outputs[number].name, commit.batch, changes, progress)

    def resume(self, last: Commit | None) -> None:
        """At a start: check that every sink has the committed batches, and publish the last batch where it lacks."""
        for number, sink in enumerate(self._sinks):
            if isinstance(sink, FileSink):
                _check(sink, last.record["outputs"][number] if last is not None else {}, last)
        if last is not None and self._here and f"{_MARKER}/{last.batch:012d}" not in self._storage.keys(_MARKER):
            self.publish(last)
        elif last is not None:
            self._publish_files(last)


def _check(sink: FileSink, about: Mapping[str, Any], last: Commit | None) -> None:
    """Raise unless the directory has exactly the committed batches; only the last one may be missing."""
    committed, newest = batches_at(sink.path).committed(), last.batch if last is not None else -1
    if committed and committed[-1] > newest:
        raise SinkError(
            f"{sink.path!r} has batch {committed[-1]}, and the checkpoint knows "
            f"{f'none after {newest}' if last else 'of none'}: commits were lost",
            given=sink.path,
            instead="the checkpoint that belongs to the directory, or a new checkpoint and a new directory",
        )
    missing = about.get("batches", 0) - len(committed)
    lost = about.get("sum", 0) - sum(committed)
    unpublished = missing == 1 and lost == newest and bool(about["parts"] or about["moved"])
    if (missing, lost) == (0, 0) or unpublished:
        return
    which = f"batch {lost} is" if missing == 1 else f"{missing} of its {about['batches']} batches are"
    raise SinkError(
        f"{which} missing from {sink.path!r}",
        given=sink.path,
        instead="restore the directory, or start with a new checkpoint and a new directory",
    )
