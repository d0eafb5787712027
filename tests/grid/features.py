"""The rows of the grid: queries, each with one feature that state, input or output depends on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.grid.inputs import PAYLOAD, events, write_files

import headrace as hr

__all__ = ["Feature", "operators"]

Query = Callable[[hr.Stream, hr.Stream], hr.Stream]
Pairs = list[tuple[hr.Stream, Any]]


@dataclass(frozen=True)
class Feature:
    """A query over the input in a folder, and its sinks there."""

    name: str
    family: str
    #: Write the whole input below a folder.
    write: Callable[[Path], None]
    #: The streams with their sinks; built anew for each start, as another process does.
    pairs: Callable[[Path], Pairs]
    #: What the feature lacks, by the word by which disruptions ask (`needs=`), with the reason.
    lacks: Mapping[str, str] = field(default_factory=dict)
    #: After how many batches a cell begins.
    begun: int = 3
    buckets: int = 2
    #: More options of its starts.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: The services that it needs: `broker`, `database`, `objects`.
    services: tuple[str, ...] = ()
    #: Whether it reads or writes through an adapter.
    adapters: bool = False
    #: Whether each cell begins with input and outputs of its own, because what a service holds cannot be copied back.
    anew: bool = False
    #: Write more input, when the query has read the first batch.
    later: Callable[[Path], None] | None = None
    #: Where on an object store its files are, and its checkpoint, if these are not in the folder.
    home: Callable[[Path], str] | None = None
    checkpoint: Callable[[Path], str] | None = None
    #: The rows of a sink, if it is none of this machine's files.
    rows: Callable[[Path, hr.Stream, Any], list[dict[str, Any]]] | None = None


def write_two(folder: Path) -> None:
    """The input of most queries: two streams of physical events."""
    write_files(folder / "in" / "a", events(1))
    write_files(folder / "in" / "b", events(2))


def two_streams(folder: Path) -> tuple[hr.Stream, hr.Stream]:
    """The streams of `write_two`."""
    rest: dict[str, Any] = {"format": "json", "progress": hr.explicit(), "bad_rows": "raise"}
    return (
        hr.read_events(str(folder / "in" / "a"), PAYLOAD, **rest),
        hr.read_events(str(folder / "in" / "b"), PAYLOAD, **rest),
    )


def operators(family: str, queries: Mapping[str, Query], **about: Any) -> list[Feature]:
    """Features that differ in the query, into files of physical events."""

    def feature(name: str, query: Query) -> Feature:
        def pairs(folder: Path) -> Pairs:
            return [(query(*two_streams(folder)), hr.files(str(folder / "out" / "events")))]

        return Feature(name, family, write_two, pairs, **about)

    return [feature(name, query) for name, query in queries.items()]
