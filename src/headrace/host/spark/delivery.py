"""The driver's part of every batch, in two halves.

*Committing* is what must last: the files of the batch and its entry in the progress log. It needs no state of its own,
so that it can run wherever Spark calls it. *Hearing* is for the process that started the query: rows for its memory,
console and functions, and the numbers it shows.

With a classic session both happen in one process. A Connect server calls `foreachBatch` in a process of its own; there
a batch is committed and its messages are left in `<checkpoint>/relay`, where the process that started the query picks
them up, in order.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.host.spark.progress_log import ProgressLog
from headrace.host.spark.worker import feedback_directory
from headrace.io.commit import BatchDirectory
from headrace.io.ingress import COUNTERS, count_orphans
from headrace.io.sinks import FileSink, encode_cti
from headrace.progress import Progress
from headrace.stages.cut import Line
from headrace.stages.message import FEEDBACK, REPORTS, RESULT, STATISTICS, Message, unpack
from headrace.stages.stage import count_failed
from headrace.time import NEG_INFINITY

__all__ = ["Batch", "Delivery", "Relay", "progress_of_output"]

_META = b"headrace"


@dataclass(frozen=True, eq=False)
class Batch:
    """One committed batch: its messages, and what the progress log says of it."""

    number: int
    messages: list[Message]
    entry: dict[str, Any]
    seconds: float

    @property
    def statistics(self) -> list[dict[str, Any]]:
        return [m.extra for m in self.messages if m.edge == STATISTICS]


@dataclass(frozen=True, eq=False)
class Delivery:
    """Commits batches; a value that can be sent to another process."""

    line: Line
    #: The sink of every output that goes to files; None for the others.
    files: tuple[FileSink | None, ...]
    checkpoint: str

    def take(self, frame: DataFrame, number: int) -> tuple[pa.Table, Batch]:
        """Run a batch, exactly once, since every action on `frame` would run it again, and commit it."""
        started = time.monotonic()
        rows = frame.select("bucket", "edge", "chunk").toArrow()
        messages = _messages(rows)
        entry = self._commit(number, messages)
        return rows, Batch(number, messages, entry, time.monotonic() - started)

    def _commit(self, number: int, messages: list[Message]) -> dict[str, Any]:
        if self.line.loops:
            self._commit_feedback(number, messages)
        log = ProgressLog(self.checkpoint)
        before = log.read(number - 1)
        reports = [m.extra for m in messages if m.edge == REPORTS]
        statistics = [m.extra for m in messages if m.edge == STATISTICS]
        entry = {
            "sources": statistics[0]["sources"] if statistics else before.get("sources", {}),
            "outputs": [self._commit_output(i, number, messages, before) for i in range(len(self.line.outputs))],
            "batch_time": max((r["batch_time"] for r in reports if "batch_time" in r), default=0.0),
            "counts": self._counted(before.get("counts", {}), reports, statistics),
            "examples": self._examples(reports) | before.get("examples", {}),
            "circulating": any(m.extra["busy"] for m in messages if m.edge == FEEDBACK),
            "files": _added(before.get("files", {}), [report.get("files", {}) for report in reports]),
        }
        log.write(number, entry)
        return entry

    def _commit_feedback(self, number: int, messages: list[Message]) -> None:
        """Leave what goes round a loop where the next batch finds it. Without a file there is no batch."""
        place = BatchDirectory(feedback_directory(self.checkpoint))
        staged = [file for m in messages if m.edge == FEEDBACK for file in m.extra["staged"]]
        if staged:
            place.commit(number, staged)
        place.forget(number - 1)  # the batch before has been read by this one, which may have to be run again

    def _commit_output(self, output: int, number: int, messages: list[Message], before: dict[str, Any]) -> int:
        """Commit the files of one output, if it has any; gives its CTI."""
        last = int(before.get("outputs", [NEG_INFINITY] * len(self.line.outputs))[output])
        cti = progress_of_output(output, messages).cti
        sink = self.files[output]
        if sink is not None:
            staged = [m.extra["staged"] for m in messages if m.edge == RESULT - output and m.extra.get("staged")]
            extra = encode_cti(cti, self.line.outputs[output].schema, sink) if cti > last else {}
            if staged or extra:
                BatchDirectory(sink.path).commit(number, staged, extra)
        return max(cti, last)

    def _counted(
        self, before: dict[str, dict[str, int]], reports: list[dict[str, Any]], statistics: list[dict[str, Any]]
    ) -> dict[str, dict[str, int]]:
        """Totals per source and failing module, from the batch before and every task's report (the first bucket's
        hearing of it).
        """
        totals: dict[str, dict[str, int]] = {}
        for source in self.line.sources:  # several may read the same origin, each in its own way
            name = str(source.origin)
            total = totals.setdefault(name, dict(before.get(name) or dict.fromkeys(COUNTERS, 0)))
            for part in (part for report in reports for part in report.get(source.fingerprint, [])):
                for counter, value in part["counts"].items():
                    total[counter] += value
            count_orphans(total, source.fingerprint, statistics)
        totals |= {name: dict(total) for name, total in before.items() if "failed" in total}
        count_failed(totals, statistics)
        return totals

    def _examples(self, reports: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Of every source a row of the batch that was not used."""
        found: dict[str, dict[str, Any]] = {}
        for source in self.line.sources:
            rows = (part["example"] for report in reports for part in report.get(source.fingerprint, []))
            first = next((row for row in rows if row is not None), None)
            if first is not None:
                found.setdefault(str(source.origin), first)
        return found


def _added(before: dict[str, int], more: list[dict[str, int]]) -> dict[str, int]:
    """How many files each source has taken, of those that are known by their number."""
    total = Counter(before)
    for part in more:
        total.update(part)
    return dict(total)


def progress_of_output(output: int, messages: list[Message]) -> Progress:
    """How far an output came with a batch: all buckets taken together."""
    return Progress.together(
        [m.progress for m in messages if m.edge == RESULT - output and m.progress is not None] or [Progress()]
    )


def _messages(rows: pa.Table) -> list[Message]:
    return [unpack(row["bucket"], row["edge"], row["chunk"]) for row in rows.to_pylist()]


class Relay:
    """The way of batches from a Connect server's process to the one that started the query: a file each."""

    def __init__(self, checkpoint: str) -> None:
        self._folder = Path(checkpoint, "relay")

    def clear(self) -> None:
        """Forget what an earlier process did not pick up: its memory is gone too."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)

    def sender(self, delivery: Delivery) -> Callable[[DataFrame, int], None]:
        """The function for `foreachBatch` on the server."""

        def take(frame: DataFrame, number: int) -> None:
            rows, batch = delivery.take(frame, number)
            self._send(rows, batch)

        return take

    def _send(self, rows: pa.Table, batch: Batch) -> None:
        target = self._folder / f"{batch.number:012d}.arrow"
        draft = target.with_suffix(f".{os.getpid()}.tmp")
        meta = json.dumps({"entry": batch.entry, "seconds": batch.seconds}).encode()
        with (
            pa.OSFile(str(draft), "wb") as file,
            pa.ipc.new_stream(file, rows.schema.with_metadata({_META: meta})) as out,
        ):
            out.write_table(rows.replace_schema_metadata({_META: meta}))
        draft.replace(target)

    def receive(self) -> Iterator[Batch]:
        """The batches that have come, each once."""
        for path in sorted(self._folder.glob("*.arrow")):
            with pa.OSFile(str(path), "rb") as file:
                rows = pa.ipc.open_stream(file).read_all()
            meta = json.loads(rows.schema.metadata[_META])
            path.unlink()
            yield Batch(int(path.stem), _messages(rows), meta["entry"], meta["seconds"])
