"""The rows of a Delta table, and the changes of its versions.

**Offsets.** A version is a *page* of offsets, one for each row. Page `2v + 1` has the changes of version `v`; page `2v`
has all rows of the table as of version `v`, its *snapshot*. A range that starts in a snapshot has its rows, and then
the changes of the versions after it. So ranges always have the same rows, whatever is committed meanwhile, and a large
snapshot or version is read in several batches. Files of a version never change; VACUUM removes those that only older
versions need, and then ranges that need them are an error.

**Rows or changes.** A table to which rows are only appended is read as its rows. With a `key`, or as a log of changes,
each change is a row with its `_change_type`: insert, update_preimage, update_postimage and delete where the version has
a change data feed; else inserts and deletes, by the difference of the files that the version removes and adds. A range
of rows refuses a version that deletes rows, unless `deletes="ignore"`.

`_commit_version` and `_commit_timestamp` are columns of both; changes happen at the time of their commit.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.adapters.delta.log import check_readable, files_of, version_of
from headrace.adapters.delta.place import TableFolder, delta_errors, table_path
from headrace.adapters.delta.reading import CHANGE_TYPE, changes_of, count_rows, rows_of_files
from headrace.errors import PlanError, SourceError, TimeError, UnknownColumn
from headrace.io.adapter import Offsets, SourceAdapter, TableLog
from headrace.io.decoded import DecodedBlock, decoded
from headrace.io.keyed_changes import ChangeEncodingName
from headrace.schema import Field, Schema, Type
from headrace.time import ticks

__all__ = ["ADDED", "DeltaSource", "read_table"]

_PARTITION = "versions"
_ROWS = 36  # bits of an offset for rows of a page
_VERSION, _TIME = "_commit_version", "_commit_timestamp"
#: The columns that the source adds.
ADDED = (Field(_VERSION, Type.LONG), Field(_TIME, Type.DATETIME))
_WORDS = ("snapshot", "earliest", "latest")
_INSERTED = ("insert", "update_postimage")


@dataclass(frozen=True)
class DeltaSource(SourceAdapter):
    """A Delta table, version by version.

    `columns` come from the table unless they are given (`DeltaSource.of`). `start` is where a query begins that has
    read nothing: with a snapshot of the table, with the earliest or the latest version, with the version of a number,
    or with the first one at a time. `changes` reads changes of the table with their `_change_type`, `key` those of the
    rows of a key. `deletes` says what becomes of a version that deletes rows, if the table is read as rows.
    """

    knows_columns: ClassVar[bool] = True
    paths: ClassVar[tuple[str, ...] | None] = ("path",)
    change_encoding: ClassVar[ChangeEncodingName] = "spark"
    path: str
    columns: Schema = field(default=Schema(()))
    key: tuple[str, ...] = ()
    start: int | str = "snapshot"
    deletes: Literal["raise", "ignore"] = "raise"
    changes: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", table_path(self.path))
        if self.deletes not in ("raise", "ignore"):
            raise PlanError("unknown value of deletes", given=self.deletes, allowed="raise, ignore")
        object.__setattr__(self, "start", _checked_start(self.start))
        if self.key:
            object.__setattr__(self, "changes", True)

    @classmethod
    def of(cls, path: str, columns: Schema | None = None, key: Sequence[str] = (), **rest: Any) -> DeltaSource:
        """The source, with columns from the table where they are not given."""
        return _completed(cls(path, columns or Schema(()), tuple(key), **rest))

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> DeltaSource:
        """The source, with columns as `of` has them."""
        return _completed(super().from_options(options))

    def with_commit_columns(self, names: Collection[str]) -> DeltaSource:
        """The source with those of the columns that it adds which are among these names."""
        more = tuple(column for column in ADDED if column.name in names and column.name not in self.columns)
        return replace(self, columns=Schema((*self.columns, *more)))

    def __str__(self) -> str:
        key = f" by {', '.join(self.key)}" if self.key else ""
        return f"delta {'changes' if self.changes else 'rows'}({TableFolder(self.path).name}{key})"

    @property
    def schema(self) -> Schema:
        """The table's columns; a log also has `_change_type`, `_commit_version` and `_commit_timestamp`."""
        more = (Field(CHANGE_TYPE, Type.STRING), *ADDED) if self.changes else ()
        return Schema((*self.columns, *(column for column in more if column.name not in self.columns)))

    @property
    def table_log(self) -> TableLog | None:
        own = Schema(tuple(column for column in self.columns if column not in ADDED))
        return TableLog(own, self.key, CHANGE_TYPE) if self.key else None

    def as_log(self, encoding: str) -> DeltaSource:
        if encoding != self.change_encoding:
            raise PlanError("changes of a Delta table have one encoding", given=encoding, allowed=self.change_encoding)
        return replace(self, changes=True)

    @property
    def _what(self) -> str:
        return f"the Delta table {TableFolder(self.path).name}"

    @property
    def _stored(self) -> Schema:
        """The columns that are read from files."""
        own = {CHANGE_TYPE, *(column.name for column in ADDED)}
        return Schema(tuple(column for column in self.columns if column.name not in own))

    # --- the driver's calls ------------------------------------------------------------------------------------------

    def offsets(self, positions: Mapping[str, int]) -> Mapping[str, Offsets]:
        """The end of the last version."""
        with delta_errors(SourceError, self._what, self.path):
            position = positions.get(_PARTITION)
            if position is not None:
                version = (position >> _ROWS) // 2
                last = _last_from(self.path, version)
                if last is not None:
                    first = _snapshot(max(0, version - 1))  # not asked for: what is before the position is read
                    return {_PARTITION: Offsets(first, max(position, _changes(last + 1)))}
            return {_PARTITION: self._reach(position)}

    def _reach(self, position: int | None) -> Offsets:
        found = TableFolder(self.path).versions()
        if found is None:
            raise SourceError(f"there is no Delta table at {TableFolder(self.path).shown!r}", given=self._what)
        first, last = found
        if position is not None and not first <= (position >> _ROWS) // 2 <= last + 1:
            raise SourceError(
                f"{self._what} has the versions {first} to {last}, and the query is at {(position >> _ROWS) // 2}: "
                "the table was replaced, or its log was removed after its time of retention",
                given=f"versions {first} to {last}",
                instead="a new checkpoint, which begins with the rows that the table has now",
            )
        return Offsets(_snapshot(first), _changes(last + 1))

    def begin(self, partition: str, available: Offsets) -> int:  # noqa: ARG002 - there is one partition
        """Where `start` says."""
        first, last = (available.first >> _ROWS) // 2, (available.end >> _ROWS) // 2 - 1
        if self.start == "snapshot":
            return _snapshot(last)
        if self.start == "earliest":
            return available.first
        if self.start == "latest":
            return available.end
        version = self.start if isinstance(self.start, int) else self._first_at(ticks(self.start), first, last)
        if not first <= version <= last + 1:
            raise SourceError(
                f"{self._what} has the versions {first} to {last}", given=f"start={version}",
                allowed=f"{first} to {last + 1}", instead="start='snapshot', or 'earliest'",
            )  # fmt: skip
        return _changes(version)

    def _first_at(self, time: int, first: int, last: int) -> int:
        """The first version that was committed at the time or later."""
        with delta_errors(SourceError, self._what, self.path):
            while last >= first and version_of(self.path, last).time >= time:
                last -= 1
        return last + 1

    def limit(self, partition: str, start: int, end: int, rows: int) -> int:  # noqa: ARG002 - there is one partition
        """The end of so many rows; a version that deletes or updates rows is not divided."""
        place, count = TableFolder(self.path), 0
        with delta_errors(SourceError, self._what, self.path):
            for page, skip in _pages(start, end):
                if page % 2 == 0:
                    files, divided = files_of(self.path, page // 2), True
                else:
                    version = version_of(self.path, page // 2)
                    files, divided = (*version.added, *version.removed, *version.feed), version.only_adds
                left = rows - count
                count += sum(count_rows(place, file) for file in files) - skip
                if count > rows and divided:
                    return min(end, (page << _ROWS) + skip + left)
                if count >= rows:
                    return min(end, _after(page))
        return end

    # --- the workers' call -------------------------------------------------------------------------------------------

    def read(
        self, partition: str, start: int, end: int, columns: Sequence[str]
    ) -> Generator[DecodedBlock, None, int | None]:
        """The rows of a range, version by version."""
        if partition != _PARTITION:
            raise SourceError("a Delta table has one partition", given=partition, allowed=_PARTITION)
        with delta_errors(SourceError, self._what, self.path):
            for page, skip in _pages(start, end):
                offset = (page << _ROWS) + skip
                time = version_of(self.path, page // 2).time
                for rows in self._page_rows(page, skip, columns):
                    kept = rows.slice(0, max(0, min(rows.num_rows, end - offset)))
                    if kept.num_rows:
                        yield self._block(kept, offset, page // 2, time, columns)
                    offset += rows.num_rows
                    if offset >= end:
                        break
        return None

    def _page_rows(self, page: int, skip: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        place, stored = TableFolder(self.path), self._stored
        needed = Schema(tuple(column for column in stored if column.name in columns))
        if page % 2 == 0:
            yield from rows_of_files(place, files_of(self.path, page // 2), needed, skip)
            return
        version = version_of(self.path, page // 2)
        if version.only_adds:
            yield from rows_of_files(place, version.added, needed, skip)
            return
        rows = changes_of(place, version, stored)  # all columns: rows that differ in any of them are different rows
        if not self.changes:
            inserted = pc.is_in(rows[CHANGE_TYPE], pa.array(_INSERTED))
            self._check_deletes(version.number, rows.num_rows - pc.sum(inserted).as_py() if rows.num_rows else 0)
            rows = rows.filter(inserted)
        yield rows.slice(skip)

    def _check_deletes(self, version: int, deleted: int) -> None:
        if deleted and self.deletes == "raise":
            raise SourceError(
                f"version {version} of {self._what} deletes or updates {deleted} rows, and it is read as rows that are "
                "only appended",
                given=f"version {version}", allowed="versions that add rows",
                instead="key=… for a table whose rows change, or deletes='ignore' to keep what was read",
            )  # fmt: skip

    def _block(self, rows: pa.Table, offset: int, version: int, time: int, columns: Sequence[str]) -> DecodedBlock:
        count = rows.num_rows
        if CHANGE_TYPE in columns and CHANGE_TYPE not in rows.column_names:
            rows = rows.append_column(CHANGE_TYPE, pa.repeat(pa.scalar("insert"), count))
        if _VERSION in columns:
            rows = rows.append_column(_VERSION, pa.repeat(pa.scalar(version, pa.int64()), count))
        if _TIME in columns:
            rows = rows.append_column(_TIME, pa.repeat(pa.scalar(time, pa.timestamp("us", "UTC")), count))
        offsets = np.arange(offset, offset + count)
        block = decoded(rows.select(list(columns)), offsets, self.schema)
        return replace(block, arrived=np.full(len(block.rows), time, np.int64))


def _snapshot(version: int) -> int:
    return (2 * version) << _ROWS


def _changes(version: int) -> int:
    return (2 * version + 1) << _ROWS


def _after(page: int) -> int:
    """The offset after a page: the changes of the next version."""
    return _changes(page // 2 + 1)


def _pages(start: int, end: int) -> Iterator[tuple[int, int]]:
    """The pages of a range, with the number of rows to skip in each."""
    while start < end:
        page = start >> _ROWS
        yield page, start - (page << _ROWS)
        start = _after(page)


def _last_from(path: str, version: int) -> int | None:
    """The last version, found from the one that comes next; None if the log has neither it nor the one before it."""
    place = TableFolder(path)
    if place.log_of(version) is None:
        return version - 1 if version > 0 and place.log_of(version - 1) is not None else None
    if place.log_of(version + 1) is None:
        return version
    found = place.versions()
    return None if found is None else found[1]


def _checked_start(start: Any) -> int | str:
    """A word, a version, or the text of a time."""
    try:
        if isinstance(start, datetime):
            start = start.replace(tzinfo=start.tzinfo or UTC).isoformat()
        if isinstance(start, str) and start not in _WORDS:
            ticks(start)
        if isinstance(start, str) or (type(start) is int and start >= 0):
            return start
    except TimeError:
        pass
    raise PlanError(
        "unknown start", given=start, allowed=f"{', '.join(_WORDS)}, the number of a version, or a time",
        instead="start=12, or start='2024-05-01T12:00:00Z'",
    )  # fmt: skip


def _completed(source: DeltaSource) -> DeltaSource:
    """The source with columns from the table where it has none."""
    place = TableFolder(source.path)
    with delta_errors(SourceError, f"the Delta table {place.name}", source.path):
        table = place.table()
        check_readable(place, table)
        arrow = pa.schema(table.schema().to_arrow())
    available = (*arrow.names, CHANGE_TYPE, *(column.name for column in ADDED))
    for name in (*source.columns.names, *source.key):
        if name not in available:
            raise UnknownColumn.of(name, available, f"the Delta table {place.name}")
    if len(source.columns):
        return source
    return replace(source, columns=Schema.of(arrow))


def read_table(path: str, version: int | None = None, columns: Schema | None = None) -> pa.Table:
    """The rows of a table as they are now, or as of a version."""
    place = TableFolder(table_path(path))
    with delta_errors(SourceError, f"the Delta table {place.name}", place.path):
        table = place.table(version)
        check_readable(place, table)
        wanted = columns or Schema.of(pa.schema(table.schema().to_arrow()))
        rows = list(rows_of_files(place, files_of(place.path, table.version()), wanted))
    return pa.concat_tables([wanted.arrow.empty_table(), *rows])
