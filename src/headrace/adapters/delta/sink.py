"""The sink: answers as rows of a Delta table, each batch exactly once.

A delivery is one commit of the table, a version. It has the rows and a *transaction identifier* of the application: the
query, output and part as the name, the number of the batch as the version. The table keeps the last number of every
name, so a batch that is delivered again finds its number and does nothing. Two attempts at the same time write files
both; the second one to commit finds that the number has changed since it looked, fails, and looks again. A crash leaves
files that no version names, which VACUUM removes.

`final`, `events` and `changes` append a file. `upsert` merges rows by key: the files that have rows of these keys are
written again. Parts have different keys, but may need the same file, so merges of one process follow each other, and
one that finds its files changed by another process begins again.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, DeltaError, SchemaMismatchError

from headrace.adapters.delta.place import TableFolder, delta_errors, options_of, table_path
from headrace.errors import PlanError, SinkError, Unavailable
from headrace.io.adapter import DeliveryId, SinkAdapter
from headrace.io.sinks import columns_of_rows
from headrace.io.upserts import BATCH, OP
from headrace.schema import Schema

__all__ = ["DeltaSink"]

_ATTEMPTS = 10
_log = logging.getLogger("headrace")
#: How many of the last versions are searched for a batch that the checkpoint does not know.
_LOOKED_AT = 100
_merging: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


@dataclass(frozen=True)
class DeltaSink(SinkAdapter):
    """A Delta table, which is created if it is missing.

    `partition_by` names the columns by which files of a new table are divided into folders. `change_data_feed` lets a
    new table keep the changes of its rows, for readers of upserts. `compact` is the number of versions after which
    small files are made into larger ones.
    """

    path: str = ""
    partition_by: tuple[str, ...] = ()
    change_data_feed: bool = False
    compact: int | None = None
    paths: ClassVar[tuple[str, ...] | None] = ("path",)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """The sink, by default for final rows."""
        return super().from_options({"encoding": "final", **options})

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "path", table_path(self.path))
        object.__setattr__(self, "partition_by", tuple(self.partition_by))
        if self.compact is not None and (type(self.compact) is not int or self.compact < 2):
            raise PlanError("compact is a number of versions", given=self.compact, allowed="2 or more")

    def __str__(self) -> str:
        key = f" by {', '.join(self.key)}" if self.key else ""
        return f"delta({TableFolder(self.path).name}, {self.encoding}{key})"

    @property
    def written_place(self) -> str:
        return f"delta({TableFolder(self.path).shown})"

    @property
    def _what(self) -> str:
        return f"the Delta table {TableFolder(self.path).name}"

    # --- the table ---------------------------------------------------------------------------------------------------

    def open(self, query: str, output: int, columns: Schema, batch: int) -> None:
        """Create the table if it is missing, and check that rows with these columns fit into it."""
        wanted = self._rows(columns_of_rows(columns, self).empty_table(), 0).schema
        self._check_partitions(wanted)
        with delta_errors(SinkError, self._what, self.path):
            if not DeltaTable.is_deltatable(self.path, options_of(self.path)):
                self._create(wanted, batch)
            table = TableFolder(self.path).table()
            self._check_columns(table, wanted)
            self._check_batch(table, query, output, batch)

    def _create(self, wanted: pa.Schema, batch: int) -> None:
        if batch >= 0:
            raise SinkError(
                f"{self._what} was deleted, with the rows of batches up to {batch}",
                given=TableFolder(self.path).shown,
                instead="the table from before, or a new checkpoint, which reads everything",
            )
        feed = {"delta.enableChangeDataFeed": "true"} if self.change_data_feed else {}
        try:
            DeltaTable.create(
                self.path, _delta_schema(wanted, self._what), partition_by=list(self.partition_by),
                configuration=feed, storage_options=options_of(self.path),
            )  # fmt: skip
        except DeltaError:
            if not DeltaTable.is_deltatable(self.path, options_of(self.path)):  # else another process was faster
                raise

    def _check_partitions(self, wanted: pa.Schema) -> None:
        for name in self.partition_by:
            if name not in wanted.names:
                raise PlanError(
                    f"there is no column {name!r} to partition by", given=name, allowed=", ".join(wanted.names)
                )

    def _check_columns(self, table: DeltaTable, wanted: pa.Schema) -> None:
        found = {field.name: field for field in table.schema().fields}
        for field in _delta_schema(wanted, self._what).fields:
            if field.name not in found or found[field.name].type != field.type:
                has = f"has {found[field.name].type}" if field.name in found else "does not exist"
                raise SinkError(
                    f"column {field.name!r} of {self._what} {has}, and the rows have {field.type}",
                    given=", ".join(f"{name} {one.type}" for name, one in found.items()), allowed=str(field.type),
                    instead="another folder, which is created with the right columns, or time_columns= other names",
                )  # fmt: skip
        lacking = [name for name, field in found.items() if not field.nullable and name not in wanted.names]
        if lacking:
            raise SinkError(
                f"columns of {self._what} must not be null, and the rows have no values for them: {', '.join(lacking)}",
                given=", ".join(wanted.names), allowed=", ".join(found),
            )  # fmt: skip
        divided = table.metadata().partition_columns
        if self.partition_by and list(self.partition_by) != divided:
            raise SinkError(
                f"{self._what} exists, and its files are divided in another way",
                given=f"partition_by={', '.join(self.partition_by)}", allowed=", ".join(divided) or "(not divided)",
            )  # fmt: skip

    def _check_batch(self, table: DeltaTable, query: str, output: int, batch: int) -> None:
        """Raise if the table has a batch that the checkpoint does not know."""
        for about in table.history(_LOOKED_AT):
            if about.get("headraceOutput") == f"{query}/{output}":
                last = int(about["headraceBatch"])
                if last > batch:
                    raise SinkError(
                        f"{self._what} has the rows of batch {last} of this query, but its checkpoint ends with batch "
                        f"{batch}: one of them was restored from an older copy",
                        given=f"query {query}, output {output}",
                        instead="a copy of both from the same time, or a new checkpoint and another folder",
                    )
                return

    # --- the rows ----------------------------------------------------------------------------------------------------

    def deliver(self, delivery: DeliveryId, rows: pa.Table) -> None:
        """Write the rows and the number of the batch in one commit."""
        if not rows.num_rows:
            return
        rows = self._rows(rows, delivery.batch)
        with delta_errors(SinkError, self._what, self.path), self._turn():
            for attempt in range(_ATTEMPTS):
                table = TableFolder(self.path).table()
                recorded = table.transaction_version(_name(delivery))
                if recorded is not None and recorded >= delivery.batch:
                    return
                try:
                    self._write(table, rows, _properties(delivery))
                except CommitFailedError:  # another process has committed meanwhile
                    time.sleep(random.random() * 0.05 * attempt)  # noqa: S311 - not a secret
                except SchemaMismatchError as error:
                    raise SinkError(f"{self._what} has other columns than its rows: {error}") from error
                else:
                    self._compacted(table)
                    return
        raise Unavailable(f"{self._what} is changed by others all the time", given=f"{_ATTEMPTS} attempts")

    def _compacted(self, table: DeltaTable) -> None:
        """Make small files into larger ones, every so many versions.

        A commit of its own, which moves rows and changes none: readers see each row once, before it and after it. If it
        fails, or its process dies, the files stay small until the next one.
        """
        version = table.version()
        if self.compact is not None and version and version % self.compact == 0:
            try:
                table.optimize.compact()
            except (DeltaError, OSError) as error:
                _log.warning("small files of %s stay as they are: %s", self._what, error)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Merges into one table follow each other."""
        if not self.key:
            yield
            return
        with _merging[self.path]:
            yield

    def _rows(self, rows: pa.Table, batch: int) -> pa.Table:
        """The rows as the table has them: logs also have the number of their batch, upserts do not."""
        if self.encoding in ("events", "changes"):
            rows = rows.add_column(0, BATCH, pa.repeat(pa.scalar(batch, pa.int64()), rows.num_rows))
        elif self.encoding == "upsert":
            rows = rows.drop_columns([BATCH])
            if not rows.num_rows:
                rows = rows.drop_columns([OP])
        return rows

    def _write(self, table: DeltaTable, rows: pa.Table, properties: CommitProperties) -> None:
        if not self.key:
            # One chunk: `deltalake` writes chunks side by side, in any order, and rows of a log have theirs.
            write_deltalake(table, rows.combine_chunks(), mode="append", commit_properties=properties)
            return
        # Not `=`: a key that is null is a key as others are.
        same = " AND ".join(f"t.{_quoted(name)} IS NOT DISTINCT FROM s.{_quoted(name)}" for name in self.key)
        merge = table.merge(
            rows, same, source_alias="s", target_alias="t", streamed_exec=False, commit_properties=properties
        )
        merge = merge.when_matched_delete(f"s.{OP} = 'delete'")
        merge = merge.when_matched_update_all(f"s.{OP} = 'upsert'", except_cols=[OP])
        merge.when_not_matched_insert_all(f"s.{OP} = 'upsert'", except_cols=[OP]).execute()


def _name(delivery: DeliveryId) -> str:
    return f"headrace/{delivery.query}/{delivery.output}/{delivery.part}"


def _properties(delivery: DeliveryId) -> CommitProperties:
    about = {"headraceOutput": f"{delivery.query}/{delivery.output}", "headraceBatch": str(delivery.batch)}
    return CommitProperties(custom_metadata=about, app_transactions=[Transaction(_name(delivery), delivery.batch)])


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _delta_schema(wanted: pa.Schema, what: str) -> DeltaSchema:
    """The columns as Delta has them."""
    for field in wanted:
        try:
            DeltaSchema.from_arrow(pa.schema([field]))
        except Exception as error:  # of several kinds, none of them declared
            raise SinkError(
                f"{what} cannot have the column {field.name!r}: Delta has no type for {field.type}",
                given=str(field.type), instead=f"select(..., {field.name}=…) of another type",
            ) from error  # fmt: skip
    return DeltaSchema.from_arrow(wanted)
