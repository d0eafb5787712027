"""Run a stream for its timeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from headrace.api.options import PlotOptions, StreamPlotOptions
from headrace.api.running import run
from headrace.display.timeline import Timeline
from headrace.io.origins import Events, Files
from headrace.plan.nodes import Node, sources_of

__all__ = ["plot"]

_BATCHES = 200
_ROW_BYTES = 32  # of a row in a file, about


def plot(node: Node, by: str | Sequence[str], **options: Unpack[StreamPlotOptions]) -> Timeline:
    """The timeline of a stream; options that do not concern its look are those of its run."""
    settings: dict[str, Any] = dict(options)
    look = {name: settings.pop(name) for name in PlotOptions.__annotations__ if name in settings}
    Timeline.of(node.schema, (), by, **look)  # raises what is wrong with them before anything runs
    if settings.get("host", "local") == "local" and settings.get("checkpoint") is None:
        settings.setdefault("batch_rows", _batch_rows(node))
    return run({"out": node}, **settings).plot(by, **look)


def _batch_rows(node: Node) -> int | None:
    """The size of a batch that divides the input into about 200; None if the input has batches of its own."""
    rows = 0
    for source in sources_of(node):
        origin = source.origin
        if isinstance(origin, Files):
            rows = max(rows, sum(file.size for file in origin.files()) // _ROW_BYTES)
        elif isinstance(origin, Events) and not origin.sizes:
            rows = max(rows, origin.table.num_rows)
        else:
            return None
    return max(1, rows // _BATCHES)
