"""The nodes of aggregates over the frame of each tuple (rules 7.4 and 7.5).

Built-in aggregates, and modules that compute each frame anew, become an `Over`. A module that goes from tuple to tuple
becomes a `Fold` after it. A final `Select` computes outputs that are expressions over several of them.

With a slide, such a module goes through all tuples, and only the results of yield tuples are kept. Tumbling frames, and
windows made of panes, become an `Over`: there a module computes each frame by itself.
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
from headrace.plan.paned import pane_size
from headrace.plan.slid import numbered, unnumbered, yielding
from headrace.plan.span import Select
from headrace.plan.windows import PLAIN_POLICY, WindowPolicy

__all__ = ["frame_node"]

Named = tuple[tuple[str, Expr], ...]


def frame_node(
    node: Node, keys: Named, frame: Frame, outputs: Named, policy: WindowPolicy = PLAIN_POLICY, *, active: bool = False
) -> Node:
    """Tuples with aggregates over their frames; with `active`, the results of modules when tuples enter and leave."""
    calls, exprs = split_aggregates(dict(outputs))
    folds = {name: call for name, call in calls.items() if active or _is_fold(call, frame)}
    if not folds or frame.tumbles or pane_size(frame, calls.values(), node.schema) > 1:
        return Over(node, keys, frame, outputs, policy=policy)
    if active:
        _check_active(folds, frame)
    elif NUMBER not in node.schema and len(calls) > 1:
        # Equal tuples may have different results: numbers keep them in order from node to node.
        own = tuple((key, col(key)) for key, _ in keys)
        all_tuples = frame_node(numbered(node, keys), own, replace(frame, slide=None), outputs, policy)
        return unnumbered(all_tuples if frame.slide is None else yielding(all_tuples, own, frame.slide))
    names = _names(calls, outputs)
    rest = tuple((names[name], call) for name, call in calls.items() if name not in folds)
    result = Over(node, keys, frame, rest, policy=policy) if rest else node
    for name, call in folds.items():
        assert isinstance(call, ModuleCall)
        mapping = tuple(call.mapping.items())
        own = keys if result is node else tuple((key, col(key)) for key, _ in keys)
        result = Fold(result, own, frame, call.module, mapping, (names[name],), active=active, policy=policy)
    passed = [name for name in result.schema.names if name not in names.values()]
    wanted = [*passed, *(name for name, _ in outputs)]
    if list(result.schema.names) == wanted and all(
        str(exprs[name]) == str(col(c)) for name, c in _plain(names, outputs)
    ):
        return result
    renamed = {name: expr.transform(lambda e: _renamed(e, names)) for name, expr in exprs.items()}
    return Select(result, (*((name, col(name)) for name in passed), *renamed.items()))


def _is_fold(call: AggregateCall, frame: Frame) -> bool:
    """Whether a module goes from tuple to tuple in this frame."""
    # With a slide each slot is computed once, without what it skips; with peers a frame does not end with its tuple.
    if not isinstance(call, ModuleCall) or frame.tumbles or frame.peers:
        return False
    return call.module.folder(kind_of(frame)) is not None


def _names(calls: dict[str, AggregateCall], outputs: Named) -> dict[str, str]:
    """The names of the calls: that of an output that is only this call, or a number."""
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
            "with active expiration a query has one aggregate",
            given=", ".join(map(str, calls.values())),
            allowed="one aggregate with ACTIVE EXPIRATION",
            instead="two queries, and UNION",
        )
    for call in calls.values():
        if not isinstance(call, ModuleCall):
            raise PlanError(
                f"{call} returns nothing when a tuple leaves",
                given=str(call),
                allowed="aggregates written in SQL, modules in Python",
                instead=f"{call.function} over [RANGE d], whose answers change when a tuple leaves",
            )
