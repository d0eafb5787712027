"""Sliding windows are computed from panes that do not overlap (rule 7.5).

A window of w tuples that slides by s < w processes each tuple several times. If the results of an aggregate can be
aggregated again, panes of gcd(w, s) tuples are computed first, and windows from the results of panes: the state of a
window of 40 000 tuples that slides by 10 000 is then 4 values, and not 40 000 tuples. An aggregate in native code does
both in one kernel (`Over.pane_code`); others become two operators here.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.expr import col
from headrace.optimizer.rewrite import rewrite
from headrace.plan.framed import frame_node
from headrace.plan.nodes import Fold, Node, Output, Over, Select
from headrace.plan.ordered import NUMBER, Frame
from headrace.plan.paned import pane_size, paned_frames
from headrace.plan.slid import again, numbered, part

__all__ = ["slide_over_panes"]


def slide_over_panes(outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    """`Over(x)` with a slide less than its window becomes an `Over` of the results of panes."""
    return rewrite(outputs, _in_panes)


def _in_panes(node: Node) -> Node:
    if isinstance(node, Fold):
        return _rows_in_panes(node)
    if not isinstance(node, Over) or node.policy.on_error != "fail" or node.pane_code is not None:
        return node
    frame, calls = node.window, node.aggregate.split[0]
    assert isinstance(frame, Frame)
    size = pane_size(frame, calls.values(), node.input.schema)
    parts = {str(call): (f"pane {i}", call) for i, call in enumerate(calls.values())}
    taken = {*node.with_keys.names, *dict(node.outputs)}
    if size == 1 or any(name in taken for name, _ in parts.values()):
        return node
    keys = tuple((name, col(name)) for name, _ in node.keys)
    pane_outputs = tuple((name, part(call)) for name, call in parts.values())
    pane, window = paned_frames(frame, size)
    panes = Over(node.input, node.keys, pane, pane_outputs, numbers=NUMBER not in node.input.schema, policy=node.policy)
    columns = {text: name for text, (name, _) in parts.items()}
    outputs = tuple((name, again(expr, columns)) for name, expr in node.outputs)
    windows = frame_node(panes, keys, window, outputs, node.policy)
    return Select(windows, tuple((name, col(name)) for name in node.schema.names))


def _rows_in_panes(node: Fold) -> Node:
    """The same for modules that return rows with as many columns as arguments: rows of panes are tuples of windows."""
    size = 1 if node.gives_value or not node.module.composes else pane_size(node.frame, (), node.input.schema)
    names = tuple(f"pane {i}" for i in range(len(node.names)))
    if size == 1 or node.policy.on_error != "fail" or any(name in node.schema for name in names):
        return node
    keys = tuple((name, col(name)) for name, _ in node.keys)
    pane, window = paned_frames(node.frame, size)
    panes = replace(node, input=numbered(node.input, node.keys), keys=keys, window=pane, names=names)
    mapping = tuple((field, col(name)) for field, name in zip(node.module.fields.names, names, strict=True))
    windows = replace(node, input=panes, keys=keys, window=window, mapping=mapping)
    return Select(windows, tuple((name, col(name)) for name in node.schema.names))
