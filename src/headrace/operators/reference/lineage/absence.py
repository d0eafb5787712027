"""Why an event is not there, of span operators, joins and their kin: single events, pairs, and events that meet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace.expr import Expr, col
from headrace.expr.nodes import Literal
from headrace.literals import sql_text
from headrace.operators.reference.join import join
from headrace.operators.reference.lineage.histories import Cause
from headrace.operators.reference.lineage.losses import (
    NEAR,
    Loss,
    LostEvents,
    Question,
    failed_conjuncts,
    lifetime_text,
    other_lifetimes,
)
from headrace.operators.reference.lineage.wanted import WantedEvent
from headrace.operators.reference.rows import Row, identity, row_identity, value_of
from headrace.operators.reference.span import SPAN
from headrace.plan.nodes import (
    AlterLifetime,
    CapDuration,
    Chop,
    Explode,
    Extend,
    Join,
    Node,
    PointAtEnd,
    PointAtStart,
    Select,
    SetDuration,
    Shift,
    TableJoin,
    Where,
)
from headrace.time import INFINITY, NEG_INFINITY, add_one, format_ticks

__all__ = [
    "lost_by_clip",
    "lost_by_coalesce",
    "lost_by_edges",
    "lost_by_event",
    "lost_by_final",
    "lost_by_join",
    "lost_by_parts",
]


def _same(node: Node) -> dict[str, Expr]:
    """The columns of an operator that are those of its input."""
    return {name: col(name) for name in node.inputs[0].schema.names if name in node.schema.names}


# --- single events ----------------------------------------------------------------------------------------------------


def lost_by_event(question: Question) -> LostEvents:
    """Each event alone decides what it gives: the events that could have given the wanted one, and did not."""
    node = question.node
    columns = dict(node.outputs) if isinstance(node, Select) else _same(node)
    below = _times_below(node, question.wanted.through(columns))
    found = [*_never(node, question.wanted)]
    elsewhere = []
    for row in question.candidates(below):
        outputs = SPAN[type(node)](node, [row])
        if question.fits(outputs):
            continue
        if outputs:
            elsewhere.append(Loss("elsewhere", "it became another event", [Cause(0, row, "event")], outputs[:1]))
        else:
            found.append(Loss(*_why_nothing(node, row), [Cause(0, row, "event")]))
    return LostEvents([*found, *([] if question.given else elsewhere[:NEAR])], [(0, below)])


def _times_below(node: Node, wanted: WantedEvent) -> WantedEvent:
    """The times of an event that could have given an event at the wanted times."""
    if isinstance(node, Shift):
        return wanted.moved(-node.by) if abs(node.by) != INFINITY else wanted.untimed()
    if isinstance(node, (AlterLifetime, PointAtEnd)):
        return _of_its_end(wanted) if isinstance(node, PointAtEnd) else wanted.untimed()
    if isinstance(node, Chop):
        return wanted.lasting(touching=True)
    if isinstance(node, (SetDuration, PointAtStart, Extend, CapDuration)):
        return _of_its_start(node, wanted)
    return wanted


def _of_its_end(wanted: WantedEvent) -> WantedEvent:
    """Of an event that ends where the wanted one starts."""
    plain = wanted.untimed()
    if wanted.le is not None:
        return replace(plain, re=wanted.le)
    return replace(plain, ends=wanted.starts or wanted.over)


def _of_its_start(node: Node, wanted: WantedEvent) -> WantedEvent:
    """Of an event that starts with the wanted one and ends at another time."""
    plain = replace(wanted.untimed(), le=wanted.le, starts=wanted.starts)
    if wanted.le is not None or wanted.starts is not None:
        return plain
    if isinstance(node, Extend):
        if wanted.re is not None and abs(node.by) != INFINITY and INFINITY not in (wanted.re, node.by):
            return replace(plain, re=add_one(wanted.re, -node.by))
        if wanted.over is not None and abs(node.by) != INFINITY:
            return replace(plain, over=(add_one(wanted.over[0], -max(node.by, 0)), wanted.over[1]))
    if isinstance(node, CapDuration):
        return replace(plain, over=wanted.over)
    if wanted.over is not None and isinstance(node, (SetDuration, PointAtStart)):
        lasts = node.duration if isinstance(node, SetDuration) else 1
        first = NEG_INFINITY if lasts == INFINITY else add_one(wanted.over[0], 1 - lasts)
        return replace(plain, starts=(first, wanted.over[1]))
    return plain


def _never(node: Node, wanted: WantedEvent) -> list[Loss]:
    """Columns that always have another value than the wanted one."""
    found = []
    for name, expr in node.outputs if isinstance(node, Select) else ():
        if name in wanted.equal and isinstance(expr, Literal):
            value = value_of(expr, {}, node.inputs[0].schema) if not expr.columns() else None
            if identity(value) != identity(wanted.equal[name]):
                found.append(Loss("other values", f"{name} is always {sql_text(value)}"))
    return found


def _why_nothing(node: Node, row: Row) -> tuple[str, str]:
    """The kind and the reason of the loss of an event that gives nothing."""
    if isinstance(node, Where):
        return "filtered", failed_conjuncts(node.predicate, row[2], node.input.schema)
    if isinstance(node, TableJoin):
        keys = ", ".join(f"{name} = {sql_text(row[2][own])}" for own, name in node.on)
        return "no partner", f"the table has no row with {keys}"
    if isinstance(node, Explode):
        return "no element", f"the list {node.column} is {'NULL' if row[2][node.column] is None else 'empty'}"
    if isinstance(node, PointAtEnd):
        return "endless", "it never ends"
    return "no lifetime", "nothing is left of its lifetime"


def lost_by_parts(question: Question) -> LostEvents:
    """The event passes as it is, from any of the inputs."""
    return LostEvents((), [(position, question.wanted) for position in range(len(question.node.inputs))])


def lost_by_final(question: Question) -> LostEvents:
    """Events that are there, and not yet final (rule 3.5)."""
    node, found = question.node, []
    settled, cti = node.input.properties.settled, question.inputs.progress[0].cti
    given = {row_identity(row) for row in question.given}
    for row in question.candidates(question.wanted):
        if row_identity(row) not in given:
            now, needed = (format_ticks(time, dates=node.dates) for time in (cti, row[0] if settled else row[1]))
            reason = f"it is not final: the CTI is {now}, and must pass {needed}"
            found.append(Loss("not final", reason, [Cause(0, row, "event")]))
    return LostEvents(found, [(0, question.wanted)])


# --- events that meet -------------------------------------------------------------------------------------------------


def lost_by_coalesce(question: Question) -> LostEvents:
    """Events of the payload that became one event with another lifetime."""
    wanted = question.wanted
    return LostEvents(other_lifetimes(question, wanted.lasting()), [(0, wanted.lasting(touching=True))])


def lost_by_clip(question: Question) -> LostEvents:
    """An event that ends earlier, or later, than wanted."""
    node, wanted = question.node, question.wanted
    whole = replace(wanted, re=None, over=wanted.over if wanted.re is None else (wanted.re - 1, wanted.re), ends=None)
    below = [(0, whole)]
    if wanted.re is not None:
        cut = wanted.untimed().through({a: col(b) for a, b in node.on})
        below.append((1, replace(cut, le=wanted.re)))
    return LostEvents(other_lifetimes(question, replace(whole, over=None)), below)


def lost_by_edges(question: Question) -> LostEvents:
    """A sample that another one replaced or that closes its signal, and the next sample, which ends it."""
    node, wanted = question.node, question.wanted
    shown = wanted.through(_same(node))
    if wanted.le is None and wanted.starts is None:
        end = wanted.over[1] if wanted.over is not None else INFINITY
        shown = replace(shown, starts=(NEG_INFINITY, end))
    sample = replace(shown, re=None, over=None, ends=None)
    below = [(0, sample)]
    if wanted.re is not None and wanted.re != INFINITY:
        below.append((0, replace(shown.untimed().only(*node.key), le=wanted.re)))
    elif wanted == wanted.untimed():  # any sample may be the next one
        below.append((0, shown.untimed().only(*node.key)))
    found = []
    for row in question.candidates(sample):
        if node.closes is not None and value_of(node.closes, row[2], node.input.schema) is True:
            found.append(Loss("closes", f"it ends the signal: {node.closes}", [Cause(0, row, "sample")]))
        elif not question.output.find(0, le=row[0], equal={name: row[2][name] for name in node.schema.names}):
            found.append(Loss("replaced", "another sample at its time replaced it", [Cause(0, row, "sample")]))
    return LostEvents([*found, *other_lifetimes(question, replace(wanted, re=None, ends=None))], below)


# --- joins ------------------------------------------------------------------------------------------------------------


def lost_by_join(question: Question) -> LostEvents:
    """Events without a partner, with the nearest misses; events with one, if they should have none."""
    node, wanted = question.node, question.wanted
    lasting, touching = wanted.lasting(), wanted.lasting(touching=True)
    rights = {new: old for old, new in node.right_columns.items()}
    of_left = {name: col(name) for name in node.left.schema.names}
    if node.kind == "inner" or any(
        wanted.equal.get(name) is not None for name in rights
    ):  # a pair: both keys are equal
        of_left |= {node.right_columns[b]: col(a) for a, b in node.on if b in node.right_columns}
    of_right = {new: col(old) for new, old in rights.items()} | {a: col(b) for a, b in node.on}
    if _is_unmatched(node, wanted):
        left = lasting.only(*node.left.schema.names)
        keys = left.untimed().through({a: col(b) for a, b in node.on})
        bounds = [replace(keys, re=wanted.le)] if wanted.le is not None else []
        bounds += [replace(keys, le=wanted.re)] if wanted.re is not None and wanted.re != INFINITY else []
        found = [loss for row in question.candidates(left) for loss in _matched(question, row)]
        found += other_lifetimes(question, lasting)
        return LostEvents(found, [(0, touching.only(*node.left.schema.names)), *((1, bound) for bound in bounds)])
    left, right = lasting.through(of_left), lasting.through(of_right)
    found = [loss for row in question.candidates(left) for loss in _alone(question, row, 0, right)]
    if not found and not question.given:
        found = [loss for row in question.candidates(right, 1) for loss in _alone(question, row, 1, left)]
    return LostEvents(found, [(0, touching.through(of_left)), (1, touching.through(of_right))])


def _is_unmatched(node: Join, wanted: WantedEvent) -> bool:
    """Whether a part without a match is wanted."""
    own = [wanted.equal[name] for name in node.right_columns.values() if name in wanted.equal]
    return node.kind == "anti" or (node.kind == "left" and bool(own) and all(value is None for value in own))


def _matched(question: Question, left: Row) -> list[Loss]:
    """The partners because of which a left event is not unmatched at the wanted times."""
    node: Join = question.node
    if question.fits(join(node, [left], _partners(question, left))):
        return []
    span = question.wanted.span or (left[0], left[1])
    near = [row for row in _partners(question, left) if row[0] < span[1] and row[1] > span[0]]
    if not near:
        return []
    times = ", ".join(lifetime_text(row, dates=node.dates) for row in near[:NEAR])
    partners = [Cause(1, row, "partner") for row in near]
    return [Loss("has a partner", f"it has a partner {times}", [Cause(0, left, "left"), *partners])]


def _partners(question: Question, left: Row) -> list[Row]:
    """The events of the other side with which an event of the left one is a pair."""
    node: Join = question.node
    keys = {b: left[2][a] for a, b in node.on}
    inner = replace(node, kind="inner")
    return [row for row in question.inputs.find(1, over=(left[0], left[1]), equal=keys) if join(inner, [left], [row])]


def _alone(question: Question, row: Row, side: int, other: WantedEvent) -> list[Loss]:
    """A loss, if an event of one side has no partner of the other that gives what is wanted."""
    node: Join = question.node
    inner = replace(node, kind="inner")
    keys = {b: row[2][a] for a, b in node.on} if side == 0 else {a: row[2][b] for a, b in node.on}

    def pairs(partner: Row) -> list[Row]:
        return join(inner, [row], [partner]) if side == 0 else join(inner, [partner], [row])

    same_key = question.inputs.find(1 - side, equal=keys)
    overlapping = [one for one in same_key if one[0] < row[1] and one[1] > row[0]]
    if any(question.fits(pairs(one)) for one in overlapping):
        return []
    return [_near_misses(question, row, side, (same_key, overlapping), other, pairs)]


def _near_misses(
    question: Question, row: Row, side: int, found: tuple[list[Row], list[Row]], other: WantedEvent, pairs: Any
) -> Loss:
    """Why an event has no partner: the events that nearly are."""
    node: Join = question.node
    same_key, overlapping = found
    event = Cause(side, row, "right" if side else "left")
    named = ", ".join(f"{a} = {sql_text(row[2][b if side else a])}" for a, b in node.on) or "no keys"
    if any(row[2][b if side else a] is None for a, b in node.on[node.groups :]):
        return Loss("no partner", f"its key is NULL, which equals nothing ({named})", [event])
    failing = [one for one in overlapping if not pairs(one)]
    if failing and node.where is not None:
        left, right = (failing[0], row) if side else (row, failing[0])
        payload = left[2] | {new: right[2][name] for name, new in node.right_columns.items()}
        reason = f"no partner fulfils the condition: {failed_conjuncts(node.where, payload, node.paired)}"
        return Loss("no partner", reason, [event, *(Cause(1 - side, one, "near") for one in failing[:NEAR])])
    if overlapping:
        reason = f"its partners with {named} do not give it"
        return Loss("other partner", reason, [event, *(Cause(1 - side, one, "partner") for one in overlapping[:NEAR])])
    if same_key:
        near = sorted(same_key, key=lambda one: max(one[0] - row[1], row[0] - one[1]))[:NEAR]
        times = " and ".join(lifetime_text(one, dates=node.dates) for one in near)
        reason = f"no event with {named} lasts while it does: the nearest is {times}"
        return Loss("no partner", reason, [event, *(Cause(1 - side, one, "near") for one in near)])
    others = question.inputs.find(1 - side, over=(row[0], row[1]))
    near = [one for one in others if other.untimed().fits(one, node.inputs[1 - side].schema)] or others
    reason = f"no event has {named}" + ("; others last while it does" if near else "")
    return Loss("no partner", reason, [event, *(Cause(1 - side, one, "near") for one in near[:NEAR])])
