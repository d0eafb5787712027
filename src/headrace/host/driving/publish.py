"""Publishing outputs after a commit: parts to directories, rows to the sinks of this process.

The commit names the parts that workers have staged for a directory, so publishing can be repeated: an existing batch
stays as it is. The commit holds rows for a console, a memory or a function, and a marker says that they were delivered.
After a crash between the two they are delivered again: these sinks get every batch at least once.

Sinks that are services get their rows after the commit, too (`delivery.py`), and know which batches they have. That
takes a while, so it happens in a thread beside the next batch; the next commit waits for it. So at most the last
committed batch is not delivered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any

import pyarrow as pa

from headrace.changes import Changes
from headrace.errors import CheckpointError, SinkError
from headrace.host.driving.changed import DIVERTED
from headrace.host.driving.keeping import OutputKeeper
from headrace.host.driving.plan import Executor
from headrace.io.adapter import SinkAdapter, patiently
from headrace.io.object_batches import batches_at
from headrace.io.sinks import FileSink, Nowhere, Sink, rows_of
from headrace.io.upserts import ENDED
from headrace.pieces import Data, ipc_pieces
from headrace.plan.nodes import Output
from headrace.progress import Progress
from headrace.schema import Schema
from headrace.stages.egress import Departure, hand_over, publish_parts, task_sinks, write_parts
from headrace.store.blocks import BlockReader, WrittenBlocks
from headrace.store.log import Commit, number_of
from headrace.store.storage import Storage
from headrace.time import NEG_INFINITY

__all__ = ["Publisher", "check_published", "is_published", "mark_published", "nothing_more", "open_service"]

_MARKER = "published"
#: How long the last delivery may take when a query is stopped, in seconds; then it is left to the next start.
_LAST_DELIVERY = 2.0


class Publisher:
    """Delivers the outputs of committed batches to their sinks."""

    def __init__(
        self, outputs: Sequence[Output], sinks: Sequence[Sink], storage: Storage, executor: Executor | None = None
    ) -> None:
        self._outputs, self._sinks, self._storage, self._executor = outputs, sinks, storage, executor
        self._services = any(isinstance(sink, SinkAdapter) for sink in sinks)
        #: Whether there are sinks that do not show which batches they have.
        self._marks = self._services or None in task_sinks(sinks)
        self._threads = ThreadPoolExecutor(1, "headrace-publish") if self._services else None
        self._delivering: Future[None] | None = None
        self.keeper = OutputKeeper(sinks)

    # --- before the commit -------------------------------------------------------------------------------------------

    def record(
        self, batch: int, departures: Sequence[Departure], before: Sequence[Mapping[str, Any]]
    ) -> tuple[list[dict[str, Any]], dict[str, Data], list[WrittenBlocks]]:
        """The entry of every output in the commit, the blocks with rows for the sinks of this process, and those that
        tasks have written for services.
        """
        entries: list[dict[str, Any]] = []
        blocks: dict[str, Data] = {}
        written: list[WrittenBlocks] = []
        for number, (sink, departure) in enumerate(zip(self._sinks, departures, strict=True)):
            old = before[number] if before else {"cti": NEG_INFINITY, "batches": 0, "sum": 0}
            cti = max(departure.progress.cti, old["cti"])
            entry: dict[str, Any] = {"cti": cti, "high": departure.progress.high}
            if isinstance(sink, FileSink):
                parts = [part for m in departure.messages for part in m.extra.get("staged", ())]
                if any(m.table is not None for m in departure.messages):  # the driver writes this output
                    parts += write_parts(sink, departure.changes(), batch)
                moved = sink.encoding == "events" and cti > old["cti"]
                # How many batches have files in the directory, and the sum of their numbers, for the check at a start.
                has_files = bool(parts or moved)
                entry |= {"path": sink.path, "parts": parts, "moved": moved, "batches": old["batches"] + has_files}
                entry["sum"] = old["sum"] + (batch if has_files else 0)
                entry |= self.keeper.entry(sink)
            elif isinstance(sink, SinkAdapter):
                entry["moved"] = sink.encoding == "events" and cti > old["cti"]
                entry["deliveries"], own = self._deliveries(number, sink, departure, batch, blocks)
                written += own
            elif not isinstance(sink, Nowhere):
                entry["rows"] = f"rows-{number}"
                blocks[entry["rows"]] = ipc_pieces(departure.changes().to_table())
            entries.append(entry)
        return entries, blocks, written

    def _deliveries(
        self, number: int, sink: SinkAdapter, departure: Departure, batch: int, blocks: dict[str, Data]
    ) -> tuple[list[list[Any]], list[WrittenBlocks]]:
        """The parts of an output: bucket, blocks and bytes; and where tasks have written them."""
        staged = [m for m in departure.messages if m.extra.get("block")]
        parts: dict[int, list[Any]] = {}
        for message in staged:
            part = parts.setdefault(message.bucket, [message.bucket, [], 0])
            part[1].append(message.extra["block"])
            part[2] += message.extra["bytes"]
        if any(m.table is not None for m in departure.messages):  # the driver writes this output
            rows = rows_of(departure.changes(), sink, batch)
            if rows.num_rows:
                blocks[f"rows-{number}"] = ipc_pieces(rows)
                parts[0] = [0, [f"rows-{number}"], rows.nbytes]
        written = [WrittenBlocks.from_json(message.extra["written"]) for message in staged]
        return [parts[bucket] for bucket in sorted(parts)], written

    # --- after it ----------------------------------------------------------------------------------------------------

    def publish(self, commit: Commit) -> None:
        """Deliver the outputs of a commit."""
        self._publish_files(commit)
        for number, (sink, about) in enumerate(zip(self._sinks, commit.record["outputs"], strict=True)):
            if "rows" in about:
                self._show(number, sink, commit, about)
        if self._threads is not None:
            self._delivering = self._threads.submit(self._deliver, commit)
        else:
            self._mark(commit)

    def _deliver(self, commit: Commit) -> None:
        assert self._executor is not None
        self._executor.deliver(commit)
        self._mark(commit)

    def settle(self) -> None:
        """Wait until the services have the last batch; raise if it could not be delivered."""
        if self._delivering is not None:
            delivering, self._delivering = self._delivering, None
            delivering.result()

    def close(self) -> None:
        """End the thread, and release what sinks hold in this process."""
        if self._threads is not None and self._executor is not None:
            if self._delivering is not None and wait([self._delivering], _LAST_DELIVERY).not_done:
                self._executor.interrupt()
            self._threads.shutdown()
        for sink in self._sinks:
            if isinstance(sink, SinkAdapter):
                sink.close()

    def _mark(self, commit: Commit) -> None:
        """Record that the outputs of a commit were delivered."""
        if self._marks:
            mark_published(self._storage, commit.batch)
            for key in self._storage.keys(_MARKER):
                if number_of(key) < commit.batch:
                    self._storage.remove(key)

    def _publish_files(self, commit: Commit) -> None:
        """Publish parts; existing batches stay as they are."""
        for number, (sink, about) in enumerate(zip(self._sinks, commit.record["outputs"], strict=True)):
            if isinstance(sink, FileSink):
                cti = about["cti"] if about["moved"] else None
                publish_parts(sink, self._outputs[number].schema, commit.batch, about["parts"], cti)
        self.keeper.look(commit.batch)

    def _show(self, number: int, sink: Sink, commit: Commit, about: Mapping[str, Any]) -> None:
        rows = pa.ipc.open_stream(BlockReader(self._storage, commit).block(about["rows"])).read_all()
        changes, progress = Changes.from_table(rows), Progress(about["cti"], about["high"])
        hand_over(sink, self._outputs[number].name, commit.batch, changes, progress)

    def resume(self, last: Commit | None, owner: str = "") -> None:
        """At a start: check that every sink has the committed batches, and publish the last batch where it lacks."""
        for number, sink in enumerate(self._sinks):
            if isinstance(sink, FileSink):
                _check(sink, last.record["outputs"][number] if last is not None else {}, last)
        for number, sink in enumerate(self._sinks):
            if isinstance(sink, SinkAdapter):
                open_service(sink, owner, number, self._outputs[number], -1 if last is None else last.batch)
        if last is not None and self._marks and not is_published(self._storage, last.batch):
            self.publish(last)
            self.settle()
        elif last is not None:
            self._publish_files(last)


def open_service(sink: SinkAdapter, owner: str, number: int, output: Output, batch: int) -> None:
    """Let a service create what it lacks for an output, and check the columns; repeated while it does not answer."""
    columns = Schema(tuple(field for field in output.schema if field.name != ENDED))
    patiently(partial(sink.open, owner, number, columns, batch), str(sink))


def mark_published(storage: Storage, batch: int) -> None:
    """Record that a batch was delivered."""
    storage.create(f"{_MARKER}/{batch:012d}", b"", lasting=False)


def is_published(storage: Storage, batch: int) -> bool:
    """Whether a batch is known to be delivered."""
    return f"{_MARKER}/{batch:012d}" in storage.keys(_MARKER)


def nothing_more(output: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of an output in a batch without output."""
    kept = {name: value for name, value in output.items() if name != "rows"}
    nothing = {"parts": [], "deliveries": [], "moved": False}
    return kept | {name: value for name, value in nothing.items() if name in output}


def check_published(storage: Storage, last: Commit) -> None:
    """`CheckpointError` unless the sinks have the last batch."""
    missing = []
    for output in last.record["outputs"]:
        if "deliveries" in output or "rows" in output:
            if not is_published(storage, last.batch):
                missing.append("a service" if "deliveries" in output else "a sink of the query's process")
        elif output.get("parts") or output.get("moved"):
            there = any(last.batch in batches_at(path).committed() for path in _paths(storage, output["path"]))
            missing += [] if there else [output["path"]]
    if missing:
        raise CheckpointError(
            f"the last batch has not reached {', '.join(dict.fromkeys(missing))}",
            given=f"batch {last.batch}",
            instead="start the query with the checkpoint once, stop it, and try again; if the place was removed, "
            "restore it, or begin with a new checkpoint and new sinks",
        )


def _paths(storage: Storage, path: str) -> Iterator[str]:
    """Where an output may be: diverted rows are in the checkpoint, which may have been moved since the last batch."""
    yield path
    folder, _, name = path.rpartition("/")
    if folder.endswith(f"/{DIVERTED}"):
        yield f"{storage.place.rpartition('/')[0]}/{DIVERTED}/{name}"


def _check(sink: FileSink, about: Mapping[str, Any], last: Commit | None) -> None:
    """Raise unless the directory has exactly the committed batches; only the last one may be missing."""
    place, newest = batches_at(sink.path), last.batch if last is not None else -1
    committed, removed = place.committed(), place.removed()
    if committed and committed[-1] > newest:
        raise SinkError(
            f"{sink.path!r} has batch {committed[-1]}, and the checkpoint knows "
            f"{f'none after {newest}' if last else 'of none'}: commits were lost",
            given=sink.path,
            instead="the checkpoint that belongs to the directory, or a new checkpoint and a new directory",
        )
    missing = about.get("batches", 0) - len(committed) - removed.batches
    lost = about.get("sum", 0) - sum(committed) - removed.sum
    unpublished = missing == 1 and lost == newest and bool(about["parts"] or about["moved"])
    if (missing, lost) == (0, 0) or unpublished:
        return
    if missing <= 0:
        raise SinkError(
            f"{sink.path!r} has other batches than the query has written, such as those of an earlier query",
            given=f"{len(committed)} batches",
            allowed=f"{len(committed) + missing} batches, of this query",
            instead="the directory that the query wrote to last, or upgrade='backfill', which corrects what is there",
        )
    which = f"batch {lost} is" if missing == 1 else f"{missing} of its {about['batches']} batches are"
    raise SinkError(
        f"{which} missing from {sink.path!r}",
        given=sink.path,
        instead="restore the directory, or start with a new checkpoint and a new directory",
    )
