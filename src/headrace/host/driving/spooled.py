"""Sources that only Spark can read, as the plan of a checkpoint has them: over files that Spark writes."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from headrace.io.formats import Format
from headrace.io.origins import Files, FrameRead
from headrace.io.reading import read_columns
from headrace.plan.nodes import Source
from headrace.schema import Schema

__all__ = ["frame_files", "spooled_source"]


def frame_files(origin: FrameRead, place: str) -> Files:
    """The files of a checkpoint with the rows of a batch data frame."""
    folder = f"{place}/events/{hashlib.sha256(str(origin).encode()).hexdigest()[:16]}"
    return Files(folder, Format("arrow"), label=str(origin))


def spooled_source(source: Source, folder: Path) -> Source:
    """A source of Spark, over the files that a feeder writes."""
    fields = tuple(source.columns[name] for name in read_columns(source))
    origin = Files(str(folder), Format("arrow"), label=str(source.origin))
    return replace(source, origin=origin, columns=Schema(fields))
