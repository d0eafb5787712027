"""Merging small batches of a directory into larger ones, so that output does not become thousands of tiny files.

A batch that is committed is a folder of *tier* 0. As soon as `compact` folders of a tier are the last ones, they are
merged into one of the next tier (`BatchDirectory.merge`), until files are large. So each row is written again a few
times at most. A merged folder has one file for each folder of values, sorted as the sink's files are, and one for the
CTIs of all its batches.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import SinkError
from headrace.io.commit import BatchDirectory, BatchFolder
from headrace.io.sinks import FileSink
from headrace.stages.encoding import encode, sorted_rows

__all__ = ["is_replaced", "merge_small_batches"]

#: Folders of more bytes than this are not merged any more.
LARGE = 128 << 20
_log = logging.getLogger("headrace")


def merge_small_batches(sink: FileSink, newest: int) -> None:
    """Merge the last folders of the sink's directory up to the batch `newest`, as long as there are enough of one tier.

    The rows are there already: if it fails, they stay in small files until the next batch.
    """
    if sink.compact is None:
        return
    place = BatchDirectory(sink.path)
    try:
        place.remove_replaced()
        while run := _due([folder for folder in place.folders() if folder.last <= newest], sink.compact):
            place.merge(run, _merged(run, sink))
    except (OSError, SinkError) as error:
        _log.warning("small files of %r stay as they are: %s", sink.path, error)


def is_replaced(sink: FileSink, batch: int) -> bool:
    """Whether a batch was merged with others."""
    folders = BatchDirectory(sink.path).folders()
    return any(folder.merged and folder.first <= batch <= folder.last for folder in folders)


def _due(folders: Sequence[BatchFolder], many: int) -> list[BatchFolder]:
    """The last folders of one tier, if there are so many of them and they are small."""
    if len(folders) < many:
        return []
    tier = _tier(folders[-1], many)
    run = list(takewhile(lambda folder: _tier(folder, many) == tier, reversed(folders)))[::-1]
    size = sum(file.stat().st_size for folder in run for file in folder.files())
    return run if len(run) >= many and size <= LARGE else []


def _tier(folder: BatchFolder, many: int) -> int:
    tier, size = 0, len(folder.batches)
    while size >= many:
        tier, size = tier + 1, size // many
    return tier


def _merged(folders: Sequence[BatchFolder], sink: FileSink) -> dict[str, bytes]:
    """The files of several folders as one for each folder of values, by their paths."""
    groups: dict[str, list[Path]] = {}
    for folder in folders:
        for file in folder.files():
            kind = "progress" if file.name.startswith("progress") else "part-00000"
            inside = file.relative_to(folder.path).parent / f"{kind}.{sink.format}"
            groups.setdefault(inside.as_posix(), []).append(file)
    return {name: _joined(files, sink) for name, files in groups.items()}


def _joined(files: Sequence[Path], sink: FileSink) -> bytes:
    if sink.format == "jsonl":
        return b"".join(file.read_bytes() for file in files)
    tables = [pq.ParquetFile(file, page_checksum_verification=True).read() for file in files]
    return encode(sorted_rows(pa.concat_tables(tables), sink), sink)
