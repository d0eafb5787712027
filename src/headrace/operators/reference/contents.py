"""The twin of the content of windows (rule 8.4)."""

from __future__ import annotations

from headrace.operators.reference.rows import Row
from headrace.operators.reference.windows import WindowSpan
from headrace.plan.nodes import Contents

__all__ = ["contents"]


def contents(node: Contents, members: list[Row], span: WindowSpan) -> list[Row]:
    """The events of one window, each for as long as it lasts."""
    start = {} if node.start is None else {node.start: span[0]}
    return [(*span, payload | start) for _, _, payload in members]
