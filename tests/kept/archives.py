"""The archives of kept checkpoints: which Headrace wrote them, and what the current one refuses by design."""

from __future__ import annotations

import tarfile
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["ARCHIVES", "KeptArchive"]

_NO_TRIPS = "belongs to another query"
_NO_OWNER = "is pickled and does not say which query saved it"
_OLD_UPSERT = "its state of upsert rows is not enough to continue"


@dataclass(frozen=True)
class KeptArchive:
    """Checkpoints of all queries, written by one state of the code."""

    name: str
    #: The version, and what is special about this one.
    version: str
    about: str
    #: Queries that the current version refuses, with the reason in the error.
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return Path(__file__).parent / f"{self.name}.tar.xz"

    def unpack(self, folder: Path) -> None:
        """Write the states and outputs to a folder."""
        with tarfile.open(self.path) as packed:
            packed.extractall(folder, filter="data")


_BEFORE_TRIPS = {"loop": _NO_TRIPS, "upsert": _OLD_UPSERT}
ARCHIVES = (
    KeptArchive(
        "first_store",
        "0.1.0",
        "the first with a segment store, written on Spark",
        _BEFORE_TRIPS | {"module": _NO_OWNER},
    ),
    KeptArchive("live_host", "0.1.0", "the first that was written in process", _BEFORE_TRIPS),
    KeptArchive("trips", "0.1.0", "format 2 of the store's files; loops run their trips inside a batch"),
    KeptArchive("dates", "0.1.0", "times that are dates are written as timestamps"),
    KeptArchive("0.1.0", "0.1.0", "the last without the version in headrace.json"),
    KeptArchive("0.2.0", "0.2.0", "the version in headrace.json and in epochs"),
)
