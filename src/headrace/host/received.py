"""Hosts as bounded inputs: lines are received until servers close their connections, before a run begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from headrace.io.host_source import receive_all
from headrace.io.origins import HostRead
from headrace.io.temporary import TemporaryFolder
from headrace.optimizer.rewrite import rewrite_sources
from headrace.plan.nodes import Output, Source, sources_of

__all__ = ["hosts_of", "received", "spooled"]


def hosts_of(outputs: Sequence[Output]) -> list[HostRead]:
    """The hosts that a query reads from, each once."""
    origins = [source.origin for source in sources_of(*outputs)]
    return list(dict.fromkeys(origin for origin in origins if isinstance(origin, HostRead)))


def spooled(outputs: Sequence[Output], folder: Path) -> tuple[Output, ...]:
    """The query over the files of its hosts' spools; spools without a directory of their own are in `folder`."""

    def over_files(source: Source) -> Source:
        origin = source.origin
        return replace(source, origin=origin.files(folder)) if isinstance(origin, HostRead) else source

    return rewrite_sources(tuple(outputs), over_files)


@contextmanager
def received(outputs: Sequence[Output]) -> Iterator[tuple[Output, ...]]:
    """Receive the lines of all hosts; the query over their files."""
    hosts = hosts_of(outputs)
    if not hosts:
        yield tuple(outputs)
        return
    with TemporaryFolder() as folder:
        receive_all([(host, Path(host.files(Path(folder)).path)) for host in hosts])
        yield spooled(outputs, Path(folder))
