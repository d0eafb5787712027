"""Finality is a property of each answer (rule 3.5), so what is final is decided where answers are made.

`Final` by itself waits for the output CTI, and that waits for the slowest group: one endless session would hold back
the finished sessions of all others. Windows and patterns whose CTI waits for what they remember know better: the answer
of a closed window is final. So `Final` moves down to them, through operators that look at each event alone and into
each part of a union, and becomes a part of them. Where it meets any other operator it stays, above all that it came
through.
"""

from __future__ import annotations

from headrace.optimizer.rewrite import rewrite
from headrace.plan.nodes import (
    Failures,
    Final,
    Node,
    Output,
    walk,
)

__all__ = ["final_by_answer"]


def final_by_answer(outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    """`Final(f(x))` becomes `f(x)` with windows in x that give their answers when they are closed."""
    moved = rewrite(outputs, lambda node: _final(node.input) if isinstance(node, Final) else node)
    readers: dict[str, list[Node]] = {}
    for node in walk(*moved):
        for child in node.inputs:
            readers.setdefault(child.fingerprint, []).append(node)

    def diverted(node: Node) -> Node:
        """The failures of windows that nobody else reads early are given with the final answers."""
        final = node.input.by_answer() if isinstance(node, Failures) else None
        if final is None or final.fingerprint not in readers:
            return node
        alone = all(reader == node for reader in readers.get(node.inputs[0].fingerprint, ()))
        return node.with_inputs(final) if alone else node

    return rewrite(moved, diverted)


def _final(node: Node) -> Node:
    """What is final of a stream, each answer as early as it can be."""
    above: list[Node] = []
    while node.by_event and len(node.inputs) == 1:
        above.append(node)
        node = node.inputs[0]
    if node.by_event and node.inputs:
        return node.with_inputs(*(_final(_through(part, above)) for part in node.inputs))
    if isinstance(node, Final):
        return _through(node, above)
    itself = node.by_answer()
    return Final(_through(node, above)) if itself is None else _through(itself, above)


def _through(node: Node, above: list[Node]) -> Node:
    for reader in reversed(above):
        node = reader.with_inputs(node)
    return node
