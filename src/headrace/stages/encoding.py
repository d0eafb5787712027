"""The files of a sink: rows as bytes, in the order that the sink wants."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.io.encode import physical_to_jsonl, rows_to_jsonl
from headrace.io.sinks import FileSink

__all__ = ["encode", "sorted_rows"]


def encode(table: pa.Table, sink: FileSink) -> bytes:
    """The rows of a file, in the sink's format."""
    if sink.format == "jsonl":
        return physical_to_jsonl(table) if sink.encoding == "events" else rows_to_jsonl(table)
    file = io.BytesIO()
    pq.write_table(table, file, write_page_checksum=True)
    return file.getvalue()


def sorted_rows(rows: pa.Table, sink: FileSink) -> pa.Table:
    """The rows in the order of the columns that the sink names."""
    return rows.sort_by([(name, "ascending") for name in sink.sort_by]) if sink.sort_by else rows
