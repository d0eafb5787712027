"""Where a table is: a local folder, or a prefix of an object store; and the errors of `deltalake` as those of Headrace.

Credentials of object stores come from the environment, under the names of the vendors' own tools, as for all files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from headrace.errors import HeadraceError, PlanError, SinkError, SourceError, Unavailable, without_secrets
from headrace.io.files import local_path, open_file
from headrace.io.object_files import find_objects

__all__ = ["TableFolder", "delta_errors", "is_remote", "options_of", "table_path"]

_LOG = "_delta_log"
_VERSION = re.compile(r"(\d{20})\.json")
#: How often and how long calls to an object store are repeated by `deltalake` itself.
_RETRIED = {"max_retries": "6", "retry_timeout": "30s"}
#: Errors of a store that does not answer, or answers that it cannot now.
_AWAY = re.compile(
    r"error sending request|connection (refused|reset|closed)|timed? ?out|dns error|status code: (408|425|429|5\d\d)|"
    r"status: (408|425|429|5\d\d)|retr(y|ies) exceeded|after \d+ retries",
    re.IGNORECASE,
)


def table_path(path: str) -> str:
    """The path of a table as every process can use it: absolute, or a URL."""
    if not path:
        raise PlanError("a Delta table is a folder", given=repr(path), instead="'lake/trades', or 's3://bucket/trades'")
    local = local_path(path)
    return path.rstrip("/") if local is None else str(Path(local).absolute())


def is_remote(path: str) -> bool:
    """Whether a table is on an object store."""
    return local_path(path) is None


def options_of(path: str) -> dict[str, str] | None:
    """The options of a store that `deltalake` gets beside the environment's."""
    return dict(_RETRIED) if is_remote(path) else None


class TableFolder:
    """The folder of a table."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.shown = without_secrets(path)
        self.name = PurePosixPath(path).name

    def table(self, version: int | None = None) -> DeltaTable:
        """The table as it is now, or as of a version."""
        return DeltaTable(self.path, version=version, storage_options=options_of(self.path))

    def url(self, name: str) -> str:
        """The path of a file of the table; the log may name files of other tables by their whole URLs."""
        return name if "://" in name or name.startswith("/") else f"{self.path}/{name}"

    def open(self, name: str) -> Any:
        """A file of the table, with random access."""
        return open_file(self.url(name))

    def log_of(self, version: int) -> bytes | None:
        """The actions of a version, as JSON; None if there is no such version, or its log was removed."""
        try:
            with open_file(f"{self.path}/{_LOG}/{version:020d}.json") as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def versions(self) -> tuple[int, int] | None:
        """The first and the last version in the log; None if there is no table."""
        if is_remote(self.path):
            names = [url.rpartition("/")[2] for _, url, _ in find_objects(f"{self.path}/{_LOG}/")]
        else:
            folder = Path(self.path) / _LOG
            names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
        found = [int(match[1]) for match in map(_VERSION.fullmatch, names) if match]
        return (min(found), max(found)) if found else None


@contextmanager
def delta_errors(kind: type[SourceError | SinkError], what: str, path: str) -> Iterator[None]:
    """Raise errors of `deltalake` and of files as `kind`, or as `Unavailable` if the store may answer later."""
    shown = without_secrets(path)
    try:
        yield
    except HeadraceError as error:
        if is_remote(path) and not isinstance(error, (kind, Unavailable, PlanError)):
            raise _translated(kind, what, shown, error) from error
        raise
    except TableNotFoundError as error:
        raise kind(f"there is no Delta table at {shown!r}", given=shown, instead="the folder of a table") from error
    except (DeltaError, OSError) as error:
        raise _translated(kind, what, shown, error) from error


def _translated(
    kind: type[SourceError | SinkError], what: str, shown: str, error: Exception
) -> SourceError | SinkError | Unavailable:
    text = without_secrets(str(error)).strip()
    if _AWAY.search(text):
        return Unavailable(f"{what}: the store does not answer: {' '.join(text.split())[:200]}", given=shown)
    return kind(f"{what}: {text}", given=shown)
