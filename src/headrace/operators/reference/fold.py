"""The twin of folds (rules 7.3 to 7.5): each group from its first tuple on, one event after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from headrace.operators.reference.rows import Row, value_of
from headrace.plan.fold import Fold
from headrace.plan.ordered import Frame
from headrace.progress import Progress
from headrace.time import INFINITY

__all__ = ["fold"]

#: The tuple of an answer, its time, and its values.
Answer = tuple[int, int, tuple[Any, ...]]


def fold(
    node: Fold,
    groups: Sequence[tuple[dict[str, Any], list[Row]]],
    now: Progress,
    yields: Callable[[list[Row], int], bool],
) -> list[Row]:
    """The outputs at every tuple that yields and, with active expiration, when it leaves."""
    out = []
    seen = INFINITY if now.cti == INFINITY else max(now.cti, now.high)
    for keys, tuples in groups:
        for i, time, values in (_active if node.active else _passive)(node, tuples, seen):
            if not yields(tuples, i):
                continue
            le, re, payload = tuples[i]
            lifetime = (time, time + 1) if node.active else (le, re)
            columns = keys | payload | dict(zip(node.answers.names, values, strict=True))
            out.append((*lifetime, {name: columns[name] for name in node.schema.names}))
    return out


class _Steps:
    """A group's stepper; after a failure it returns nothing."""

    def __init__(self, node: Fold) -> None:
        self.node, self.folder = node, node.folder
        self.stepper, self.failed = self.folder.make(), False

    def call(self, function: Callable[..., list[Any]], *args: Any, **more: Any) -> list[tuple[Any, ...]]:
        if self.failed:
            return []
        try:
            returned = function(*args, **more)
        except Exception:
            if self.node.policy.on_error == "fail":
                raise
            returned, self.failed = [], True
        if self.node.gives_value and len(returned) > 1:
            returned, self.failed = [], True
        return [value if isinstance(value, tuple) else (value,) for value in returned]

    def expire(self, number: int, args: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Expire a tuple, unless the body has removed it."""
        if not self.folder.keeps_window:
            return self.call(self.stepper.expire, *args)
        inside = self.stepper.inwindow
        return self.call(self.stepper.expire) if inside and inside[0][-1] == number else []


def _arguments(node: Fold, row: Row) -> tuple[Any, ...]:
    schema = node.input.schema
    values = []
    for (_, expr), field in zip(node.mapping, node.module.fields, strict=True):
        values.append(value_of(expr.cast(field.type) if expr.type(schema) is not field.type else expr, row[2], schema))
    return tuple(values)


def _passive(node: Fold, tuples: list[Row], seen: int) -> Iterator[Answer]:  # noqa: ARG001 - as its sibling
    steps = _Steps(node)
    inside: list[int] = []
    for i, row in enumerate(tuples):
        for j in [j for j in inside if not _sees(node.frame, tuples, i, j)]:
            steps.expire(j, _arguments(node, tuples[j]))
        inside = [j for j in inside if _sees(node.frame, tuples, i, j)] + [i]
        returned = steps.call(steps.stepper.arrive, *_arguments(node, row), mark=i)
        if node.gives_value and not returned and not steps.failed:
            returned = [(None,)]
        for values in returned:
            yield i, row[0], values


def _sees(frame: Frame, tuples: list[Row], i: int, j: int) -> bool:
    """Whether a tuple sees an earlier one."""
    if frame.rows is not None:
        return i - j <= frame.rows
    return frame.range is None or tuples[j][0] >= tuples[i][0] - frame.range


def _active(node: Fold, tuples: list[Row], seen: int) -> Iterator[Answer]:
    steps = _Steps(node)
    length = node.frame.range
    assert length is not None
    arrivals = [(row[0], 0, i) for i, row in enumerate(tuples)]
    departures = [(row[0] + length, 1, i) for i, row in enumerate(tuples) if row[0] + length <= seen]
    for time, leaving, i in sorted(arrivals + departures):
        args = _arguments(node, tuples[i])
        returned = steps.expire(i, args) if leaving else steps.call(steps.stepper.arrive, *args, mark=i)
        for values in returned:
            yield i, time, values
