"""The log of a table: which files a version adds and removes, and when it was committed.

A version is a file of JSON lines, each an action. `add` and `remove` name files of rows; those with `dataChange: false`
only move rows (OPTIMIZE), and are left out. `cdc` names files of the change data feed: where a version has them, they
are its changes, and the files that it adds and removes are not read. `metaData` may change columns, `protocol` what a
reader must understand.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from headrace.adapters.delta.place import TableFolder
from headrace.errors import SourceError

__all__ = ["DataFile", "TableVersion", "check_readable", "files_of", "version_of"]

_MILLISECOND = 1000
#: What readers must understand, and this one does: either it makes no difference to reading files, or it is refused
#: where it is used.
_UNDERSTOOD = {
    "columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview", "v2Checkpoint",
    "vacuumProtocolCheck",
}  # fmt: skip
_MAPPING = "delta.columnMapping.mode"


@dataclass(frozen=True)
class DataFile:
    """A file of rows: its path, the values of partition columns, and the number of rows if the log has it."""

    path: str
    values: tuple[tuple[str, Any], ...] = ()
    rows: int | None = None


@dataclass(frozen=True)
class TableVersion:
    """The changes of one version; `time` is that of its commit, in ticks."""

    number: int
    time: int
    added: tuple[DataFile, ...] = ()
    removed: tuple[DataFile, ...] = ()
    #: Files of the change data feed, which are then all changes.
    feed: tuple[DataFile, ...] = ()

    @property
    def only_adds(self) -> bool:
        """Whether its changes are the rows of the files that it adds."""
        return not self.removed and not self.feed


def version_of(path: str, number: int) -> TableVersion:
    """A version of the table; `SourceError` if its log was removed."""
    place = TableFolder(path)
    text = place.log_of(number)
    if text is None:
        raise SourceError(
            f"version {number} is not in the log of {place.shown!r}: it was removed after its time of retention",
            given=f"version {number}",
            instead="a new checkpoint, which begins with the rows that the table has now",
        )
    actions = [json.loads(line) for line in text.splitlines() if line.strip()]
    return _version(place, number, actions)


def _version(place: TableFolder, number: int, actions: list[dict[str, Any]]) -> TableVersion:
    found: dict[str, list[DataFile]] = {"add": [], "remove": [], "cdc": []}
    info: dict[str, Any] = {}
    times = [0]
    for action in actions:
        (kind, about), *_ = action.items()
        if kind == "commitInfo":
            info = about
        elif kind == "metaData":
            _check_columns(place, about.get("configuration") or {}, number)
        elif kind == "protocol":
            _check_features(place, about.get("readerFeatures") or ())
        elif kind in found and (kind == "cdc" or about.get("dataChange", True)):
            times.append(about.get("modificationTime") or about.get("deletionTimestamp") or 0)
            found[kind].append(_data_file(place, number, about))
    time = info.get("inCommitTimestamp") or info.get("timestamp") or max(times)
    return TableVersion(number, int(time) * _MILLISECOND, *(tuple(found[kind]) for kind in ("add", "remove", "cdc")))


def _data_file(place: TableFolder, number: int, about: Mapping[str, Any]) -> DataFile:
    if about.get("deletionVector"):
        raise _deletion_vectors(place, f"version {number}")
    stats = json.loads(about.get("stats") or "{}")
    return DataFile(
        unquote(about["path"]), tuple((about.get("partitionValues") or {}).items()), stats.get("numRecords")
    )


def files_of(path: str, number: int) -> tuple[DataFile, ...]:
    """All files of the table as of a version, those that were written first first."""
    place = TableFolder(path)
    table = place.table(number)
    if pa.table(table.deletion_vectors()).num_rows:
        raise _deletion_vectors(place, f"version {number}")
    rows = pa.table(table.get_add_actions()).to_pylist()
    times = Counter(row["modification_time"] for row in rows)
    tied = {unquote(row["path"]) for row in rows if times[row["modification_time"]] > 1}
    version = _versions_of_files(place, number, tied)
    rows.sort(key=lambda row: (row["modification_time"], version.get(unquote(row["path"]), 0), row["path"]))
    return tuple(
        DataFile(unquote(row["path"]), tuple((row.get("partition") or {}).items()), row["num_records"]) for row in rows
    )


def _versions_of_files(place: TableFolder, number: int, paths: set[str]) -> dict[str, int]:
    """The versions that added files, as far as the log reaches: several versions may be written in a millisecond."""
    found: dict[str, int] = {}
    while len(found) < len(paths) and number >= 0 and (text := place.log_of(number)) is not None:
        actions = [json.loads(line) for line in text.splitlines() if line.strip()]
        added = {unquote(action["add"]["path"]) for action in actions if "add" in action}
        found.update((path, number) for path in added & paths - found.keys())
        number -= 1
    return found


def check_readable(place: TableFolder, table: DeltaTable) -> None:
    """Raise if the table uses features with which its files cannot be read as they are."""
    _check_features(place, table.protocol().reader_features or ())
    _check_columns(place, table.metadata().configuration, table.version())


def _check_features(place: TableFolder, features: Any) -> None:
    unknown = sorted(set(features) - _UNDERSTOOD)
    if unknown:
        raise SourceError(
            f"readers of {place.shown!r} must understand {', '.join(unknown)}, which Headrace does not",
            given=", ".join(unknown), allowed=", ".join(sorted(_UNDERSTOOD)),
        )  # fmt: skip


def _check_columns(place: TableFolder, configuration: Mapping[str, str | None], number: int) -> None:
    mode = configuration.get(_MAPPING) or "none"
    if mode != "none":
        raise SourceError(
            f"the files of {place.shown!r} have other names of columns than the table, since version {number}",
            given=f"{_MAPPING} = {mode}", allowed=f"{_MAPPING} = none",
            instead="a copy of the table without column mapping",
        )  # fmt: skip


def _deletion_vectors(place: TableFolder, which: str) -> SourceError:
    return SourceError(
        f"{which} of {place.shown!r} marks rows of files as deleted (deletion vectors), which Headrace does not read",
        given="deletionVector", allowed="files whose rows all count",
        instead="ALTER TABLE … SET TBLPROPERTIES (delta.enableDeletionVectors = false); REORG TABLE … APPLY (PURGE)",
    )  # fmt: skip
