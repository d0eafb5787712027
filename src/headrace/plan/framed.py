"""Aggregates over what precedes each tuple: which nodes they become (rules 7.4 and 7.5).

Built-in aggregates, and modules of which each frame is computed anew, are an `Over`. A module that goes from tuple to
tuple is a `Fold` behind it. An output that is an expression over several of them is selected in the end.

Under a slide such a module goes through all tuples, and the results of all but yield tuples are left out then. Tumbles,
and windows that are made of panes, are an `Over`: there it runs over each frame by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.errors import PlanError
from headrace.expr import AggregateCall, Expr, col, split_aggregates
from headrace.modules import ModuleCall
from headrace.plan.base import Node
from headrace.plan.fold import Fold, kind_of
from headrace.plan.ordered import NUMBER, Frame
from headrace.plan.over import Over
from headrace.plan.slid import numbered, pane_size, unnumbered, yielding
from headrace.plan.span import Select
from headrace.plan.windows import PLAIN_POLICY, WindowPolicy

__all__ = ["frame_node"]

Named = tuple[tuple[str, Expr], ...]


def frame_node(
    node: Node, keys: Named, frame: Frame, outputs: Named, policy: WindowPolicy = PLAIN_POLICY, *, active: bool = False
) -> Node:
    """Tuples with aggregates over their frames; with `active`, what modules return when tuples come and leave."""
    calls, over = split_aggregates(dict(outputs))
    folds = {name: call for name, call in calls.items() if active or _goes(call, frame)}
    if not folds or frame.tumbles or pane_size(frame, calls.values(), node.schema) > 1:
        return Over(node, keys, frame, outputs, policy=policy)
    if active:
        _check_active(folds, frame)
    elif NUMBER not in node.schema and len(calls) > 1:
        # Equal tuples have their own results, which meet those of the next node again: they keep their places.
        own = tuple((key, col(key)) for key, _ in keys)
        every = frame_node(numbered(node, keys), own, replace(frame, slide=None), outputs, policy)
        return unnumbered(every if frame.slide is None else yielding(every, own, frame.slide))
    names = _names(calls, outputs)
    rest = tuple((names[name], call) for name, call in calls.items() if name not in folds)
    made = Over(node, keys, frame, rest, policy=policy) if rest else node
    for name, call in folds.items():
        assert isinstance(call, ModuleCall)
        mapping = tuple(call.mapping.items())
        own = keys if made is node else tuple((key, col(key)) for key, _ in keys)
        made = Fold(made, own, frame, call.module, mapping, (names[name],), active=active, policy=policy)
    passed = [name for name in made.schema.names if name not in names.values()]
    wanted = [*passed, *(name for name, _ in outputs)]
    if list(made.schema.names) == wanted and all(str(over[name]) == str(col(c)) for name, c in _plain(names, outputs)):
        return made
    renamed = {name: expr.transform(lambda e: _renamed(e, names)) for name, expr in over.items()}
    return Select(made, (*((name, col(name)) for name in passed), *renamed.items()))


def _goes(call: AggregateCall, frame: Frame) -> bool:
    """Whether it goes from tuple to tuple in such a frame."""
    if not isinstance(call, ModuleCall) or frame.tumbles:  # each slot is computed once, without what it skips
        return False
    return call.module.folder(kind_of(frame)) is not None


def _names(calls: dict[str, AggregateCall], outputs: Named) -> dict[str, str]:
    """What the calls are called: as the output that is nothing else, or by a number."""
    plain = {str(expr): name for name, expr in reversed(outputs) if isinstance(expr, AggregateCall)}
    return {name: plain.get(str(call), f"_over{i}") for i, (name, call) in enumerate(calls.items())}


def _plain(names: dict[str, str], outputs: Named) -> Sequence[tuple[str, str]]:
    inner = {outer: name for name, outer in names.items()}
    return [(name, inner.get(name, "")) for name, _ in outputs]


def _renamed(expr: Expr, names: dict[str, str]) -> Expr:
    name = getattr(expr, "column", None)
    return col(names[name]) if name in names else expr


def _check_active(calls: dict[str, AggregateCall], frame: Frame) -> None:
    if frame.slide is not None:
        raise PlanError(
            "a frame slides, or tuples leave it by time alone",
            given=str(frame),
            allowed="SLIDE or ACTIVE EXPIRATION, not both",
            instead="two queries",
        )
    if len(calls) > 1:
        raise PlanError(
            "what is returned when tuples leave is a stream of one aggregate",
            given=", ".join(map(str, calls.values())),
            allowed="one aggregate with ACTIVE EXPIRATION",
            instead="two queries, and UNION",
        )
    for call in calls.values():
        if not isinstance(call, ModuleCall):
            raise PlanError(
                f"{call} has nothing to return when a tuple leaves",
                given=str(call),
                allowed="aggregates written in SQL, modules in Python",
                instead=f"{call.function} over [RANGE d], whose answers change when a tuple leaves",
            )
