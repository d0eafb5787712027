"""Finality is a property of each answer (rule 3.5), so it is decided where answers are computed.

`Final` alone waits for the output CTI, which waits for the slowest group: one endless session would hold back the
finished sessions of all others. Windows and patterns whose CTI depends on their state know more: the answer of a closed
window is final. So `Final` moves down to them, through operators that process each event alone and into each part of a
union, and becomes a part of them. At any other operator it stays where it was.
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
        """Failures come with the final answers if no other operator reads the windows early."""
        final = node.input.by_answer() if isinstance(node, Failures) else None
        if final is None or final.fingerprint not in readers:
            return node
        alone = all(reader == node for reader in readers.get(node.inputs[0].fingerprint, ()))
        return node.with_inputs(final) if alone else node

    return rewrite(moved, diverted)


def _final(node: Node) -> Node:
    """The final events of a stream, each as early as possible."""
    above: list[Node] = []
    while node.by_event and len(node.inputs) == 1:
        above.append(node)
        node = node.inputs[0]
    if node.by_event and node.inputs:
        return node.with_inputs(*(_final(_through(part, above)) for part in node.inputs))
    if isinstance(node, Final):
        return _through(node, above)
    final = node.by_answer()
    return Final(_through(node, above)) if final is None else _through(final, above)


def _through(node: Node, above: list[Node]) -> Node:
    for reader in reversed(above):
        node = reader.with_inputs(node)
    return node
