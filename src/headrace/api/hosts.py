"""Lines that a TCP server sends, as a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from headrace.api.inputs import Names, by_arrival, name_pairs, refuse_lists, stream_of
from headrace.api.stream import Stream
from headrace.errors import PlanError
from headrace.io.formats import Format
from headrace.io.origins import HostRead
from headrace.io.records import MAX_LINE
from headrace.plan.policies import BadRowPolicy, Lifetime, ProgressPolicy
from headrace.schema import Schema, SchemaLike

__all__ = ["read_host"]


def read_host(
    host: str, port: int, schema: SchemaLike, *, delimiter: str = ",", format: Literal["csv", "json"] = "csv",
    lifetime: Lifetime | None = None, progress: ProgressPolicy | None = None, spool: str | None = None,
    buffer_rows: int = 100_000, limit: int | None = None, bad_rows: BadRowPolicy = "divert",
    rename: Names | None = None, max_line: int = MAX_LINE,
) -> Stream:  # fmt: skip
    """Lines that a TCP server sends, as a stream: each line is a row, of CSV without a header or of JSON.

    Lines are stored in files of the directory `spool`, by default in the query's checkpoint, and read from there. By
    default rows are points at their arrival. On Spark a broken connection is opened again, and when `buffer_rows` lines
    wait for the query, so does the server. In process all lines are received first, until the server closes the
    connection. After `limit` lines nothing more is read. `rename` renames members of JSON objects.
    """
    columns = Schema.of(schema).renamed(rename or {})
    _check_host(host, port, format, (buffer_rows, 1 if limit is None else limit))
    how = Format("csv", delimiter, header=False) if format == "csv" else Format("json", rename=name_pairs(rename))
    how = replace(how, max_line=max_line)
    refuse_lists(columns, how)
    origin = HostRead(host, int(port), how, str(spool or ""), int(buffer_rows), limit)
    return stream_of(origin, columns, by_arrival() if lifetime is None else lifetime, progress, bad_rows)


def _check_host(host: Any, port: Any, format: str, counts: Sequence[Any]) -> None:
    if not isinstance(host, str) or not host.strip():
        raise PlanError("a host has a name", given=host, allowed="a name or an address", instead="'localhost'")
    if type(port) is not int or not 0 < port < 65_536:
        raise PlanError("this is not a port", given=port, allowed="a number from 1 to 65535", instead="9999")
    if format not in ("csv", "json"):
        raise PlanError("a host sends lines", given=format, allowed="csv, json", instead="format='csv'")
    for count in counts:
        if type(count) is not int or count < 1:
            raise PlanError("buffer_rows and limit are counts", given=count, allowed="whole numbers from 1 on")
