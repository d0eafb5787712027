"""Deliveries: the rows of a committed batch on their way to the sinks that are services.

Tasks have written the rows as blocks of the store, and the commit names them, in *parts*: one for each bucket that has
rows. So they can be delivered again after a crash, by any process, until the sink has recorded the batch. For physical
events the CTI of the batch is the last row of its only part; if there are several parts or none, it is a part of its
own, which is delivered after all others.

Few rows are delivered by the driver, which has them at hand or reads them from the store: that takes milliseconds. Many
rows are delivered by workers (`Executor.deliver`), and never visit the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from headrace.border import shown
from headrace.columnar import concat
from headrace.events import cti_row
from headrace.host.driving.plan import Job
from headrace.io.adapter import DeliveryId, patiently
from headrace.store.blocks import BlockReader
from headrace.store.log import Commit

__all__ = ["CTI_PART", "DeliveryPart", "deliver", "deliver_all", "deliveries_of", "for_workers"]

#: The part of a batch's CTI, after all rows.
CTI_PART = -1
_THREADS = 16


@dataclass(frozen=True)
class DeliveryPart:
    """One part of a batch: its blocks of rows, and whether the CTI follows them."""

    id: DeliveryId
    blocks: tuple[str, ...]
    nbytes: int
    cti: bool = False


def deliveries_of(job: Job, commit: Commit) -> list[DeliveryPart]:
    """The parts of a committed batch, in order: of every output its rows, then its CTI."""
    found = []
    for output in job.adapters:
        about = commit.record["outputs"][output]
        parts = [(part, tuple(blocks), nbytes) for part, blocks, nbytes in about["deliveries"]]
        alone = about["moved"] and len(parts) != 1
        if alone:
            parts.append((CTI_PART, (), 0))
        for part, blocks, nbytes in parts:
            cti = about["moved"] and (part == CTI_PART or not alone)
            found.append(DeliveryPart(DeliveryId(job.owner, output, part, commit.batch), blocks, nbytes, cti))
    return found


def for_workers(job: Job, deliveries: Sequence[DeliveryPart]) -> list[DeliveryPart]:
    """The parts that workers may deliver: all rows, but not to sinks of the driver's process."""
    return [one for one in deliveries if one.id.part != CTI_PART and not job.adapters[one.id.output].in_driver]


def deliver(job: Job, commit: Commit, delivery: DeliveryPart, stopped: Callable[[], bool] = lambda: False) -> None:
    """Deliver one part, and repeat that while the place does not answer."""
    output = delivery.id.output
    sink = job.adapters[output]
    reader = BlockReader(job.storage, commit)
    parts = [pa.ipc.open_stream(reader.block(name)).read_all() for name in delivery.blocks]
    if delivery.cti:
        row = cti_row(commit.record["outputs"][output]["cti"], job.line.outputs[output].schema)
        parts.append(shown(row, dates=sink.dates, time_columns=sink.time_columns))
    rows = concat(parts)
    patiently(lambda: sink.deliver(delivery.id, rows), str(sink), stopped)


def deliver_all(job: Job, commit: Commit, deliveries: Sequence[DeliveryPart], stopped: Callable[[], bool]) -> None:
    """Deliver parts in this process, several at a time; the CTIs last."""
    rows = [delivery for delivery in deliveries if delivery.id.part != CTI_PART]
    if len(rows) > 1:
        with ThreadPoolExecutor(min(len(rows), _THREADS), "headrace-deliver") as threads:
            for done in [threads.submit(deliver, job, commit, delivery, stopped) for delivery in rows]:
                done.result()
        rows = []
    for delivery in [*rows, *(delivery for delivery in deliveries if delivery.id.part == CTI_PART)]:
        deliver(job, commit, delivery, stopped)
