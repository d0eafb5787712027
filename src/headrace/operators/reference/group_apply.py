"""The twin of `group_by(...).apply`: every group by itself, its plan run over its rows alone."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from headrace.operators.reference.rows import Row, identity, value_of
from headrace.plan.nodes import GroupApply
from headrace.progress import Progress

__all__ = ["group_apply"]

Rows = Sequence[Row]


def group_apply(
    node: GroupApply, rows: Rows, run: Callable[[Rows], tuple[list[Row], Progress]]
) -> tuple[list[Row], Progress]:
    """The results of `run` for the rows of each group, with its keys; the promise is the least of theirs."""
    groups: dict[Hashable, list[Row]] = {}
    below = node.group.schema
    for row in rows:
        key = tuple(identity(value_of(expr, row[2], below)) for _, expr in node.keys)
        groups.setdefault(key, []).append(row)
    outputs: list[Row] = []
    promises = [run([])[1]]  # the promise of a group that may still come
    for group in groups.values():
        key_values = {name: value_of(expr, group[0][2], below) for name, expr in node.keys}
        answers, promise = run(group)
        outputs += [
            (le, re, key_values | {n: v for n, v in payload.items() if n not in key_values})
            for le, re, payload in answers
        ]
        promises.append(promise)
    return outputs, Progress(min(p.cti for p in promises), max(p.high for p in promises))
