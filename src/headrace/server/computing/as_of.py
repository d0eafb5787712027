"""Plans for another process: their tables and streams are logs on disk, up to the offsets of now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import StoreError
from headrace.io.adapter import Offsets
from headrace.io.live_table import ChangingTable, LiveTableRead, log_columns
from headrace.io.origins import AdapterRead
from headrace.io.table_log import LoggedElsewhere, Places
from headrace.optimizer.rewrite import rewrite_sources
from headrace.plan.nodes import Node, Output, Source
from headrace.schema import Schema
from headrace.server.log_files import LogFolder
from headrace.server.published import ClientRows, DiskLog
from headrace.time import BEGINNING

__all__ = ["FolderLog", "TableAsOf", "as_of_now_on_disk"]


class FolderLog:
    """The log of a table up to an offset, in the files of a folder that another process writes."""

    promised = BEGINNING

    def __init__(self, folder: str, schema: Schema, end: int) -> None:
        self.folder, self.schema, self.end = folder, schema, end

    @cached_property
    def _files(self) -> LogFolder:
        found = LogFolder(Path(self.folder), self.schema)
        if found.base > self.end:  # rows before and after the offset were put together meanwhile
            raise StoreError("rows of a log are no longer kept", given=f"offset {self.end}")
        return found

    def __len__(self) -> int:
        return self.end

    def rows(self, start: int, end: int) -> tuple[Places, pa.Table]:
        """The rows from a number up to another that are there, and their numbers."""
        return self._files.rows(start, min(end, self.end))

    def append(self, rows: pa.Table, **about: int) -> None:
        raise NotImplementedError("it is only read")

    def promise(self, row: pa.Table, time: int) -> None:
        raise NotImplementedError("it is only read")

    @property
    def about(self) -> Mapping[str, int]:
        return {}

    def elsewhere(self, name: str) -> LoggedElsewhere:
        raise NotImplementedError("it is elsewhere already")


class TableAsOf(ChangingTable):
    """A table, or the answers of a query, as they are now."""

    def __init__(self, name: str, text: str, schema: Schema, folder: str, end: int, dates: bool, numbers: bool) -> None:
        super().__init__(name, schema, FolderLog(folder, log_columns(schema), end))
        self.numbers = numbers
        self._given: tuple[Any, ...] = (name, text, schema, folder, end, dates, numbers)
        self._text, self._dates = text, dates

    def __str__(self) -> str:
        return self._text

    @property
    def dates(self) -> bool:
        return self._dates

    def follow(self) -> int:
        return self.changes

    def __reduce__(self) -> tuple[Any, ...]:
        return TableAsOf, self._given


def as_of_now_on_disk(node: Node) -> Node:
    """The plan with its tables, and the streams that clients feed, as their files have them now."""
    tables: dict[int, TableAsOf] = {}

    def stored(source: Source) -> Source:
        adapter = source.origin.adapter if isinstance(source.origin, AdapterRead) else None
        if isinstance(adapter, LiveTableRead) and isinstance(log := adapter.table.row_log, DiskLog):
            table = adapter.table
            if id(table) not in tables:
                end = table.changes if adapter.until is None else adapter.until
                folder = str(log.log.folder)
                tables[id(table)] = TableAsOf(
                    table.name, str(table), table.schema, folder, end, table.dates, table.numbers
                )
            read = replace(adapter, table=tables[id(table)], until=None)
            return replace(source, origin=AdapterRead(read))
        if isinstance(adapter, ClientRows) and adapter.log is not None:
            kept = Offsets(adapter.log.first, adapter.log.end)
            return replace(source, origin=AdapterRead(replace(adapter, log=None, kept=kept)))
        return source

    (output,) = rewrite_sources((Output(node, "out"),), stored)
    return output.input
