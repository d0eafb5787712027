"""Plans over tables that live (`io/live_table.py`): for runs to the end, and for queries that follow their changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headrace.errors import PlanError
from headrace.io.live_table import LiveTableRead
from headrace.io.origins import AdapterRead, Events
from headrace.optimizer.rewrite import rewrite_sources
from headrace.plan.nodes import Node, Output, Source, sources_of

__all__ = ["as_of_now", "followed", "table_reads", "until_now"]


def table_reads(*roots: Node) -> list[LiveTableRead]:
    """The tables that a plan reads, each once."""
    return [read for source in sources_of(*roots) if (read := _read_of(source)) is not None]


def _read_of(source: Source) -> LiveTableRead | None:
    adapter = source.origin.adapter if isinstance(source.origin, AdapterRead) else None
    return adapter if isinstance(adapter, LiveTableRead) else None


def as_of_now(node: Node) -> Node:
    """The plan for a run to the end: over the rows that its tables have now."""

    def known(source: Source, read: LiveTableRead) -> Source:
        return replace(source, origin=Events(read.table.so_far(read.until)), dated=read.table.dates)

    return _rewritten(node, known)


def until_now(node: Node) -> Node:
    """The plan whose runs to the end see its tables as they are now, whenever they happen."""

    def limited(source: Source, read: LiveTableRead) -> Source:
        return replace(source, origin=AdapterRead(replace(read, until=read.table.changes)))

    return _rewritten(node, limited)


def followed(node: Node, *, promises: bool = True) -> Node:
    """The plan for a started query: over tables as they change. Their times are shown as those of its other inputs.

    With `promises=False` the tables promise nothing, and statements have no time because of it.
    """
    sources = sources_of(node)
    others = [source.dates for source in sources if _read_of(source) is None]
    dated = any(others or (not read.table.numbers for read in table_reads(*sources)))

    def live(source: Source, read: LiveTableRead) -> Source:
        return replace(
            source, origin=AdapterRead(replace(read, until=None, promises=read.promises and promises)), dated=dated
        )

    return _rewritten(node, live)


def _rewritten(node: Node, change: Callable[[Source, LiveTableRead], Source]) -> Node:
    if not table_reads(node):
        return node
    _check_names(node)

    def changed(source: Source) -> Source:
        read = _read_of(source)
        return source if read is None else change(source, read)

    (output,) = rewrite_sources((Output(node, "out"),), changed)
    return output.input


def _check_names(root: Node) -> None:
    """Refuse two tables of one name: plans identify them by it."""
    seen: set[int] = set()
    tables: dict[str, object] = {}
    waiting = [root]
    while waiting:  # not by `walk`, which visits equal nodes once
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        waiting += node.inputs
        read = _read_of(node) if isinstance(node, Source) else None
        if read is not None and tables.setdefault(read.table.name, read.table) is not read.table:
            raise PlanError(
                "two tables of this query have the same name",
                given=read.table.name,
                allowed="a different name for each",
                instead="hr.table(..., name='other')",
            )
