"""The causes of what a loop derives: round by round, back to the seed and the streams from outside."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import TypeAlias

from headrace.changes import Changes
from headrace.errors import TraceError
from headrace.operators.reference.lineage.histories import Cause, Histories, Stem, rows_of_changes
from headrace.operators.reference.plan import reference_stream
from headrace.operators.reference.recurse import rounds
from headrace.operators.reference.rows import Row, row_identity, table_of
from headrace.plan.nodes import GroupApply, LoopInput, Node, Recurse, walk
from headrace.progress import Progress
from headrace.time import INFINITY

__all__ = ["of_loop"]

#: The most events of a loop's inputs: its rounds are run by the twin.
_MOST = 3_000
StemOf: TypeAlias = Callable[[Node, Row, Histories], Stem]


def of_loop(node: Recurse, row: Row, inputs: Histories, stem_of: StemOf) -> Stem:
    """The events of seed and outside from which a row is derived, through as many rounds as it takes."""
    stem = _Derivation(node, inputs, stem_of).of(row)
    kept = [inputs.copies(i, [c.row for c in stem.causes if c.position == i]) for i in range(len(node.inputs))]
    again = Histories(
        [partial(_changes, child, r) for child, r in zip(node.inputs, kept, strict=True)], inputs.progress
    )
    enough = row_identity(row) in map(row_identity, _Derivation(node, again, stem_of).rounds[-1])
    return stem if enough else Stem([])


class _Derivation:
    """The rounds of a loop, and the way back through them."""

    def __init__(self, node: Recurse, inputs: Histories, stem_of: StemOf) -> None:
        self.node, self.stem_of = node, stem_of
        self.body = _for_all_groups(node.body)
        if any(isinstance(inner, Recurse) for inner in walk(self.body)):
            raise TraceError("the causes of a loop with a loop in it are not known", given=node.describe())
        self.given = [rows_of_changes(inputs.changes(i)) for i in range(len(node.inputs))]
        if (size := sum(map(len, self.given))) > _MOST:
            raise TraceError(
                "this loop is too large to explain",
                given=f"{node.describe()}, with {size:,} input events",
                allowed=f"{_MOST:,} events",
                instead="a trace over less input",
            )
        self.now = Progress(INFINITY, max(p.high for p in inputs.progress))
        self.rounds = rounds(node, self.given[0], self._body)
        self._seen: dict[tuple[str, int, Hashable], list[Cause]] = {}

    def _fed(self, result: list[Row]) -> dict[str, tuple[list[Row], Progress]]:
        return {port.fingerprint: (rows, self.now) for port, rows in self._ports(result)}

    def _ports(self, result: list[Row]) -> list[tuple[LoopInput, list[Row]]]:
        return list(zip(self.node.ports, [result, *self.given[1:]], strict=True))

    def _body(self, result: list[Row]) -> list[Row]:
        return reference_stream(self.body, self._fed(result))[0]

    def of(self, row: Row) -> Stem:
        """From the result."""
        missing = [n for n, result in enumerate(self.rounds) if row_identity(row) not in map(row_identity, result)]
        depth = missing[-1] + 1 if missing else 0
        return Stem(self._in_result(row, depth), f"derived in round {depth}")

    def _in_result(self, row: Row, depth: int) -> list[Cause]:
        """The causes of a row of the result after so many rounds: it may have come before."""
        here = row_identity(row)
        while depth > 1 and here in map(row_identity, self.rounds[depth - 1]):
            depth -= 1
        key = ("", depth, here)
        if key not in self._seen:
            self._seen[key] = []
            distinct = self.node.distinct
            causes = [Cause(0, part, "seed") for part in self.given[0] if _is_part(part, row, distinct=distinct)]
            for part in self._body(self.rounds[depth - 1]):
                if _is_part(part, row, distinct=distinct):
                    causes += self._in_body(self.body, part, depth - 1)
            self._seen[key] = causes
        return self._seen[key]

    def _in_body(self, node: Node, row: Row, depth: int) -> list[Cause]:
        """The causes of a row of an operator of the body, with the result after so many rounds."""
        for position, (port, _) in enumerate(self._ports([])):
            if port == node:
                return [Cause(position, row, "outside")] if position else self._in_result(row, depth)
        key = (node.fingerprint, depth, row_identity(row))
        if key not in self._seen:
            fed = self._fed(self.rounds[depth])
            streams = [reference_stream(child, fed) for child in node.inputs]
            changes = [_changes(child, rows) for child, (rows, _) in zip(node.inputs, streams, strict=True)]
            histories = Histories([lambda c=c: c for c in changes], [now for _, now in streams])  # type: ignore[misc]
            below = [(node.inputs[c.position], c.row) for c in self.stem_of(node, row, histories).causes]
            self._seen[key] = [cause for child, part in below for cause in self._in_body(child, part, depth)]
        return self._seen[key]


def _for_all_groups(node: Node) -> Node:
    """A plan with what `apply` computes for all groups at once in the place of what it computes for each."""
    inputs = [_for_all_groups(child) for child in node.inputs]
    if isinstance(node, GroupApply):
        return inputs[0]
    return node.with_inputs(*inputs) if inputs else node


def _is_part(part: Row, row: Row, *, distinct: bool) -> bool:
    """Whether an event is a row of the result, or became part of it, where payloads are there once."""
    if not distinct:
        return row_identity(part) == row_identity(row)
    same = row_identity((0, 0, part[2])) == row_identity((0, 0, row[2]))
    return same and row[0] <= part[0] and part[1] <= row[1]


def _changes(node: Node, rows: list[Row]) -> Changes:
    table = table_of(rows, node.schema)
    le, re = (table.column(name).to_numpy() for name in ("le", "re"))
    return Changes.inserts(le, re, table.drop_columns(["le", "re"]))
