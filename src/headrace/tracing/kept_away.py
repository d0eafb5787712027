"""The events that keep others away: what is missing among causes if, without all other events, new rows join in.

The causes of each step are enough for its operator alone. A plan may still have two operators that combine events: a
window that counts windows, a union of a stream with a clipped copy of it. Over the causes alone the lower one may then
give *stray* events, which the other events of the input kept away, and a stray one may change the answer. So the plan
is run over the causes, by its twins. If the answer is not there as often as before, the lowest operator with stray
events is asked why these were not there; the events that it names, and their causes, become causes of the answer. That
is repeated until the answer is there as often.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from headrace.errors import HeadraceError, TraceError
from headrace.operators.reference.lineage import Histories, WantedEvent, losses
from headrace.operators.reference.plan import TWINS, WHOLE_PLANS, reference_stream
from headrace.operators.reference.rows import Row, bag, row_identity
from headrace.optimizer.rewrite import rewrite
from headrace.plan.nodes import Admit, Merge, Node, Output, Source, Union
from headrace.tracing.record import TracedOperator
from headrace.tracing.why import Explainer, Why

__all__ = ["complete"]

#: The most causes over which the plan is run, and how often.
_MOST_CAUSES, _MOST_ROUNDS = 1_000, 20
_Keeper = tuple[TracedOperator, Row]


def complete(explainer: Explainer, why: Why) -> Why:
    """Add the events that keep others away to the causes of an event, if there are any."""
    below = _plan_of(explainer, why.root.operator)
    plans = _as_written(below)
    if not _may_have_strays(list(plans.values())):
        return why
    why = Why(replace(why.root, causes=list(why.root.causes)))  # other questions share the steps
    before = explainer.copies(why.root.operator, [why.root.row])
    for _ in range(_MOST_ROUNDS):
        leaves = _inputs_of(why)
        if sum(map(len, leaves.values())) > _MOST_CAUSES:
            break
        over_causes = _OverCauses(explainer, plans, leaves)
        try:
            rows = over_causes.rows(why.root.operator)
            if bag(rows)[row_identity(why.root.row)] == len(before) or not _add_keepers(why, over_causes, below):
                break
        except HeadraceError:  # a function or a sum fails for a stray event
            break
    return why


def _add_keepers(why: Why, over_causes: _OverCauses, below: Sequence[TracedOperator]) -> bool:
    """Add causes that keep stray events away; whether there are any."""
    operator, strays = over_causes.strays(below)
    leaves = _inputs_of(why)
    for way in (_by_loss, _instead, _beside):
        keepers = [keeper for stray in strays for keeper in way(over_causes.explainer, operator, stray)]
        over_causes.explainer.add(why, "keeps others away", keepers)
        if _inputs_of(why) != leaves:
            return True
    return False


def _plan_of(explainer: Explainer, operator: TracedOperator) -> list[TracedOperator]:
    """The operators that an operator depends on, and itself; inputs first."""
    numbers, waiting = set[int](), [operator.number]
    while waiting:
        number = waiting.pop()
        if number not in numbers:
            numbers.add(number)
            waiting += explainer.record.operator(number).inputs
    return [explainer.record.operator(number) for number in sorted(numbers)]


def _as_written(operators: Sequence[TracedOperator]) -> dict[int, Node]:
    """The plans of operators, whose aggregates are not divided, by the numbers of the operators."""

    def whole(node: Node) -> Node:
        return node.aggregate.with_inputs(*node.input.inputs) if isinstance(node, Merge) else node

    outputs = rewrite(tuple(Output(one.node, str(one.number)) for one in operators), whole)
    return {one.number: output.input for one, output in zip(operators, outputs, strict=True)}


def _may_have_strays(plans: Sequence[Node]) -> bool:
    """Whether an operator that combines events reads what another one gives; and whether all have twins."""
    combine = [node for node in plans if not node.linear and not isinstance(node, Admit)]
    together = [node for node in plans if isinstance(node, Union)]
    known = all(type(node) in TWINS or type(node) in WHOLE_PLANS for node in plans)
    return known and len(combine) + len(together) > 1 and bool(combine)


def _inputs_of(why: Why) -> dict[int, list[Row]]:
    """The input events among the causes, by the number of their operator."""
    found: dict[int, list[Row]] = {}
    for step in why.steps():
        if isinstance(step.operator.node, (Admit, Source)):
            found.setdefault(step.operator.number, []).append(step.row)
    return found


class _OverCauses:
    """What operators give over some input events alone, by their twins."""

    def __init__(self, explainer: Explainer, plans: Mapping[int, Node], leaves: Mapping[int, list[Row]]) -> None:
        self.explainer, self._plans, record = explainer, plans, explainer.record
        self._seen = {}
        for operator in record.operators:
            if isinstance(operator.node, Source) or (isinstance(operator.node, Admit) and operator.number in leaves):
                node = operator.node.input if isinstance(operator.node, Admit) else operator.node
                rows = explainer.copies(operator, leaves.get(operator.number, []))
                self._seen[node.fingerprint] = (rows, record.progress_of(operator, explainer.batch))
        self._rows: dict[int, list[Row]] = {}

    def rows(self, operator: TracedOperator) -> list[Row]:
        """The history of an operator."""
        if operator.number not in self._rows:
            self._rows[operator.number] = reference_stream(self._plans[operator.number], self._seen, ended=False)[0]
        return self._rows[operator.number]

    def strays(self, below: Sequence[TracedOperator]) -> tuple[TracedOperator, list[Row]]:
        """The lowest operator that gives events which are not there in the run, and these; none of the highest one."""
        for operator in below:
            rows = {row_identity(row): row for row in self.rows(operator)}
            there = bag(self.explainer.copies(operator, list(rows.values())))
            more = bag(self.rows(operator)) - there
            if more:
                return operator, [rows[identity] for identity in more]
        return below[-1], []


def _by_loss(explainer: Explainer, operator: TracedOperator, stray: Row) -> Iterator[_Keeper]:
    """What the operator itself says about an event that is not there."""
    wanted = WantedEvent(stray[2], le=stray[0], re=stray[1])
    try:
        found = losses(explainer.question(operator, wanted)).found
    except TraceError:
        return
    for loss in found:
        for cause in loss.events[1:]:
            yield explainer.record.operator(operator.inputs[cause.position]), cause.row
        for row in loss.instead:
            yield operator, row


def _instead(explainer: Explainer, operator: TracedOperator, stray: Row) -> Iterator[_Keeper]:
    """The events of the operator in the lifetime of the stray one."""
    own = Histories([lambda: explainer.changes(operator)], [])
    for row in own.find(0, over=(stray[0], stray[1])):
        yield operator, row


def _beside(explainer: Explainer, operator: TracedOperator, stray: Row) -> Iterator[_Keeper]:
    """The input events of the operator in the lifetime of the stray one."""
    for number in operator.inputs:
        yield from _instead(explainer, explainer.record.operator(number), stray)
