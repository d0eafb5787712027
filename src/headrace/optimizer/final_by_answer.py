"""Finality is a property of each answer (rule 3.5), so what is final is decided where answers are made.

`Final` by itself waits for the output CTI, and that waits for the slowest group: one endless session would hold back
the finished sessions of all others. Windows and patterns whose CTI waits for what they remember know better: the answer
of a closed window is final. So `Final` moves down to them, through operators that look at each event alone and into
each part of a union, and becomes a part of them. Where it meets any other operator it stays, above all that it came
through.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.optimizer.rewrite import rewrite
from headrace.plan.nodes import (
    CapDuration,
    Extend,
    Failures,
    Final,
    GroupApply,
    Match,
    Node,
    Output,
    PerWindow,
    PointAtEnd,
    PointAtStart,
    Select,
    SetDuration,
    Shift,
    TableJoin,
    Union,
    Where,
    walk,
)
from headrace.plan.ordered import Frame

__all__ = ["final_by_answer"]

#: What looks at each event alone: of a final event it makes a final one.
_EACH_ALONE = (
    CapDuration, Extend, GroupApply, PointAtEnd, PointAtStart, Select, SetDuration, Shift, TableJoin, Where,
)  # fmt: skip


def final_by_answer(outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    """`Final(f(x))` becomes `f(x)` with windows in x that give their answers when they are closed."""
    moved = rewrite(outputs, lambda node: _final(node.input) if isinstance(node, Final) else node)
    readers: dict[str, list[Node]] = {}
    for node in walk(*moved):
        for child in node.inputs:
            readers.setdefault(child.fingerprint, []).append(node)

    def diverted(node: Node) -> Node:
        """The failures of windows that nobody else reads early are given with the final answers."""
        if not isinstance(node, Failures) or not _by_answer(node.input):
            return node
        final, alone = _itself(node.input), all(r == node for r in readers.get(node.input.fingerprint, ()))
        return Failures(final) if alone and final.fingerprint in readers else node

    return rewrite(moved, diverted)


def _final(node: Node) -> Node:
    """What is final of a stream, each answer as early as it can be."""
    above: list[Node] = []
    while isinstance(node, _EACH_ALONE):
        above.append(node)
        node = node.inputs[0]
    if isinstance(node, Union):
        return node.with_inputs(*(_final(_through(part, above)) for part in node.parts))
    if isinstance(node, Final):
        return _through(node, above)
    return _through(_itself(node), above) if _by_answer(node) else Final(_through(node, above))


def _through(node: Node, above: list[Node]) -> Node:
    for reader in reversed(above):
        node = reader.with_inputs(node)
    return node


def _by_answer(node: Node) -> bool:
    """Whether answers may be final that the output CTI has not passed: it waits for what is remembered.

    Of frames it waits for the open slot alone, which is the same for all groups.
    """
    if isinstance(node, PerWindow) and isinstance(node.window, Frame):
        return False
    return isinstance(node, (Match, PerWindow)) and node.waits


def _itself(node: Node) -> Node:
    assert isinstance(node, (Match, PerWindow))
    return replace(node, final=True)
