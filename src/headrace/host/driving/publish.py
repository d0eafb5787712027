"""What leaves after a commit: parts to directories, rows to the sinks of this process.

The commit names the parts that workers have staged for a directory, so publishing them can be repeated: what is there
already stays as it is. Rows for a console, a memory or a function are kept in the commit, until a marker says that
they were handed over. A crash between the two hands them over again: these sinks get every batch at least once.
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
    """Hands the outputs of committed batches to their sinks."""

    def __init__(self, outputs: Sequence[Output], sinks: Sequence[Sink], storage: Storage) -> None:
        self._outputs, self._sinks, self._storage = outputs, sinks, storage
        #: Whether there are sinks in this process.
        self._here = None in task_sinks(sinks)

    # --- before the commit -------------------------------------------------------------------------------------------

    def record(
        self, batch: int, departures: Sequence[Departure], before: Sequence[Mapping[str, Any]]
    ) -> tuple[list[dict[str, Any]], dict[str, Data]]:
        """What the commit says of every output, and the blocks with rows for the sinks of this process."""
        found: list[dict[str, Any]] = []
        blocks: dict[str, Data] = {}
        for number, (sink, departure) in enumerate(zip(self._sinks, departures, strict=True)):
            old = before[number] if before else {"cti": NEG_INFINITY, "batches": 0, "sum": 0}
            cti = max(departure.progress.cti, old["cti"])
            about: dict[str, Any] = {"cti": cti, "high": departure.progress.high}
            if isinstance(sink, FileSink):
                parts = [m.extra["staged"] for m in departure.messages if m.extra.get("staged")]
                if any(m.table is not None for m in departure.messages):  # tasks have left them to the driver
                    part = write_part(sink, departure.changes(), batch)
                    parts += [part] if part else []
                moved = sink.encoding == "events" and cti > old["cti"]
                # How many batches the directory has got files of, and their sum: both are checked at the next start.
                got = bool(parts or moved)
                about |= {"path": sink.path, "parts": parts, "moved": moved, "batches": old["batches"] + got}
                about["sum"] = old["sum"] + (batch if got else 0)
            elif not isinstance(sink, Nowhere):
                about["rows"] = f"rows-{number}"
                blocks[about["rows"]] = ipc_pieces(departure.changes().to_table())
            found.append(about)
        return found, blocks

    # --- after it ----------------------------------------------------------------------------------------------------

    def publish(self, commit: Commit) -> None:
        """Hand over what a commit names."""
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
        """What is there already stays as it is."""
        for number, (sink, about) in enumerate(zip(self._sinks, commit.record["outputs"], strict=True)):
            if isinstance(sink, FileSink):
                cti = about["cti"] if about["moved"] else None
                publish_parts(sink, self._outputs[number].schema, commit.batch, about["parts"], cti)

    def _show(self, number: int, sink: Sink, commit: Commit, about: Mapping[str, Any]) -> None:
        rows = pa.ipc.open_stream(BlockReader(self._storage, commit).block(about["rows"])).read_all()
        changes, progress = Changes.from_table(rows), Progress(about["cti"], about["high"])
        hand_over(sink, self._outputs[number].name, commit.batch, changes, progress)

    def resume(self, last: Commit | None) -> None:
        """At a start: check that every sink has what was committed, and publish what it lacks of the last batch."""
        for number, sink in enumerate(self._sinks):
            if isinstance(sink, FileSink):
                _check(sink, last.record["outputs"][number] if last is not None else {}, last)
        if last is not None and self._here and f"{_MARKER}/{last.batch:012d}" not in self._storage.keys(_MARKER):
            self.publish(last)
        elif last is not None:
            self._publish_files(last)


def _check(sink: FileSink, about: Mapping[str, Any], last: Commit | None) -> None:
    """Every batch that was committed must be in the directory, but for the last one, and no other."""
    found, newest = batches_at(sink.path).committed(), last.batch if last is not None else -1
    if found and found[-1] > newest:
        raise SinkError(
            f"{sink.path!r} has batch {found[-1]}, and the checkpoint knows "
            f"{f'none after {newest}' if last else 'of none'}: commits were lost",
            given=sink.path,
            instead="the checkpoint that belongs to the directory, or a new checkpoint and a new directory",
        )
    missing = about.get("batches", 0) - len(found)
    lost = about.get("sum", 0) - sum(found)
    unpublished = missing == 1 and lost == newest and bool(about["parts"] or about["moved"])
    if (missing, lost) == (0, 0) or unpublished:
        return
    which = f"batch {lost} is" if missing == 1 else f"{missing} of its {about['batches']} batches are"
    raise SinkError(
        f"{which} missing from {sink.path!r}",
        given=sink.path,
        instead="restore the directory, or start with a new checkpoint and a new directory",
    )
