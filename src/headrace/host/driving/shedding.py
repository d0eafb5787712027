"""How many rows of each part of a batch a source that sheds may keep.

The parts are files and ranges of partitions, and their tasks do not wait for each other. So each part has its share of
the rows by its size, which is in the plan of the batch: an attempt with other tasks sheds the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from headrace.host.driving.plan import Plan
from headrace.io.adapter import ReadRange
from headrace.io.files import ListedFile
from headrace.io.shedding import Shedder
from headrace.optimizer.rewrite import rewrite_sources
from headrace.plan.nodes import Node, Output, Source, sources_of

__all__ = ["shedders_of", "using_every_row"]

Part = ListedFile | ReadRange


def shedders_of(plan: Plan, source: Source) -> Callable[[Part], Shedder | None]:
    """A function that makes the shedder of a part of the batch: None if the source sheds nothing."""
    if source.shedding is None:
        return lambda _: None
    parts: list[Part] = [*plan.files.get(source.fingerprint, ()), *plan.ranges.get(source.fingerprint, ())]
    shares = dict(zip(parts, _shares(source.shedding.above, [_size(part) for part in parts]), strict=True))
    return lambda part: Shedder(source, shares[part], _name(part))


def using_every_row(node: Node) -> Node:
    """The plan for a run over bounded inputs, which sheds nothing."""
    if all(source.shedding is None for source in sources_of(node)):
        return node
    (output,) = rewrite_sources((Output(node, "out"),), lambda source: replace(source, shedding=None))
    return output.input


def _size(part: Part) -> int:
    return part.size if isinstance(part, ListedFile) else part.end - part.start


def _name(part: Part) -> str:
    return part.path if isinstance(part, ListedFile) else f"{part.partition} {part.start}"


def _shares(rows: int, sizes: Sequence[int]) -> list[int]:
    """So many rows, divided among parts of these sizes."""
    total = max(1, sum(sizes))
    return [rows * end // total - rows * start // total for start, end in pairwise(accumulate(sizes, initial=0))]
