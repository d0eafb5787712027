"""Events with answers about those around them: by any order at every instant, or in the order of a stream's time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial

from headrace.api.pattern import match_node
from headrace.api.ranking import Named, ranked_node, without_stamps
from headrace.errors import PlanError
from headrace.expr import AggregateCall, Expr, col, lit, split_aggregates
from headrace.expr.aggregates import computed
from headrace.expr.nodes import Case, Column
from headrace.expr.ordered_calls import OrderedCall
from headrace.modules import ModuleCall
from headrace.patterns import pattern
from headrace.patterns.references import next as behind
from headrace.patterns.references import prev as before
from headrace.plan.around import Around, Distance, Unit
from headrace.plan.framed import frame_node
from headrace.plan.nodes import Node, Select
from headrace.plan.operate import PLACES, Place
from headrace.plan.ordered import Frame
from headrace.plan.windows import WindowPolicy
from headrace.schema import STAMPS, Type
from headrace.time import INFINITY, duration

__all__ = ["Extent", "Order", "extent", "framed_node", "has_ordered", "shifted_node", "surrounded_node"]

_SHIFTS = {"lag": -1, "lead": 1}
_NTH = {"first_value": 1, "last_value": -1}
_ONE_DAY = duration("1 day")
_THERE = "_there"
#: How many events a frame of rows may look ahead.
_MOST_AHEAD = 20


@dataclass(frozen=True)
class Order:
    """The order of a ranking."""

    by: tuple[Expr, ...]
    descending: bool | tuple[bool, ...]


@dataclass(frozen=True)
class Extent:
    """A frame of an order, as `Around` has it."""

    unit: Unit = "rows"
    start: Distance = None
    end: Distance = 0


def extent(rows: object, range_: object, *, peers: bool, by: Sequence[Expr], below: Node) -> Extent:
    """The frame of `over(by=...)`: a number or a pair of numbers, of rows or of values of the order."""
    if rows is not None and range_ is not None:
        raise PlanError(
            "a frame is of rows or of a range", given=f"rows={rows!r}, range={range_!r}", allowed="one of them"
        )
    if rows is None and range_ is None:
        return Extent("range") if peers else Extent()
    unit: Unit = "range" if rows is None else "rows"
    given = range_ if rows is None else rows
    start, end = given if isinstance(given, tuple) and len(given) == 2 else (given, 0)
    sides = [None if side is None else _distance(side, unit, by, below) for side in (start, end)]
    if isinstance(given, list) or any(side is not None and side < 0 for side in sides):
        raise PlanError(
            "a frame goes so many before the event, or so many before and so many behind it",
            given=f"{unit}={given!r}",
            allowed="a number from 0 on, or a pair of them; None for all",
            instead=f"{unit}=(2, 1)",
        )
    return Extent(unit, None if sides[0] is None else -sides[0], sides[1])


def _distance(given: object, unit: Unit, by: Sequence[Expr], below: Node) -> int | float:
    kind = by[0].type(below.schema) if by and unit == "range" else Type.LONG
    if kind in (Type.DATETIME, Type.DATE):
        ticks = duration(given)  # type: ignore[arg-type]
        if kind is Type.DATETIME or ticks % _ONE_DAY == 0:
            return ticks if kind is Type.DATETIME else ticks // _ONE_DAY
    if type(given) is int or (isinstance(given, float) and kind.is_floating):
        return given
    allowed = "whole days" if kind is Type.DATE else "a number, as the order has them"
    raise PlanError(f"this is no size of a frame of {unit}", given=given, allowed=allowed)


# --- by any order ----------------------------------------------------------------------------------------------------


def surrounded_node(below: Node, keys: Named, order: Order, outputs: Mapping[str, tuple[Expr, Extent]]) -> Node:
    """At every instant, each event with its columns, and with answers about those around it in an order."""
    names = _names_free(below, keys, outputs)
    places: dict[str, Place | Around] = {}
    answers: dict[str, Expr] = {}
    for output, (expr, frame) in outputs.items():
        calls, whole = split_aggregates({output: computed(expr, below.schema)})
        found = {name: _placed(call, frame, places) for name, call in calls.items()}
        answers[output] = whole[output].transform(partial(_replaced, found))
    ranked = ranked_node(below, keys, _measured(order.by, below, places), order.descending, places)
    return Select(ranked, (*((name, Column(name)) for name in names), *answers.items()))


def _names_free(below: Node, keys: Named, outputs: Mapping[str, object]) -> list[str]:
    """The columns of events and of their keys; no answer may have the name of one."""
    own = [name for name in below.schema.names if name not in STAMPS]
    names = [*(name for name, _ in keys if name not in own), *own]
    taken = [name for name in outputs if name in names]
    if taken:
        raise PlanError(
            f"the stream has a column {taken[0]!r} already",
            given=", ".join(outputs),
            allowed=f"names but {', '.join(names)}",
            instead=f"aggregate({taken[0]}_over=...)",
        )
    return names


def _placed(call: AggregateCall, frame: Extent, places: dict[str, Place | Around]) -> Expr:
    """A call as an expression over columns of the ranking, to which they are added."""

    def column(place: Place | Around) -> Expr:
        name = next((known for known, one in places.items() if str(one) == str(place)), f"_seen{len(places)}")
        places[name] = place
        return Column(name)

    def around(value: Expr, nth: int | None) -> Expr:
        return column(Around(value, frame.unit, frame.start, frame.end, nth))

    if isinstance(call, ModuleCall):
        raise PlanError(
            "over(by=...) has built-in aggregates", given=str(call), allowed="hr.sum(...), hr.lag(...), hr.rank(), …"
        )
    if not isinstance(call, OrderedCall):
        return around(call, None)
    if call.function in PLACES:
        return column(call.function)
    assert call.argument is not None
    if call.function not in _SHIFTS:
        return around(call.argument, _NTH.get(call.function, call.number))
    away = _SHIFTS[call.function] * call.number
    value = column(Around(call.argument, "rows", away, away, 1))
    if call.default is None:
        return value
    absent = column(Around(AggregateCall("count"), "rows", away, away)) == lit(0)
    return Case(((absent, call.default),), value)


def _replaced(found: Mapping[str, Expr], expr: Expr) -> Expr:
    return found.get(expr.column, expr) if isinstance(expr, Column) else expr


def _measured(by: Sequence[Expr], below: Node, places: Mapping[str, Place | Around]) -> list[Expr]:
    """The order; times as numbers where a frame measures distances in them."""
    kind = by[0].type(below.schema)
    if not any(isinstance(one, Around) and one.measures for one in places.values()):
        return list(by)
    if kind is Type.DATETIME:
        return [by[0].cast("LONG")]
    return [by[0] - lit(date(1970, 1, 1))] if kind is Type.DATE else list(by)


# --- in the order of time --------------------------------------------------------------------------------------------


def has_ordered(outputs: Named) -> bool:
    """Whether an output is a function of an order."""
    return any(isinstance(call, OrderedCall) for call in split_aggregates(dict(outputs))[0].values())


def framed_node(node: Node, keys: Named, frame: Frame, outputs: Named, policy: WindowPolicy) -> Node:
    """Each tuple with aggregates over its frame, and with functions of its order; expressions may use its columns."""
    names = _names_free(node, keys, dict(outputs))
    node, keys = _with_keys(node, keys)
    calls, exprs = split_aggregates(dict(outputs))
    ordered = [call for call in calls.values() if isinstance(call, OrderedCall) and call.function in _SHIFTS]
    shifts = {f"_shift{i}": call for i, call in enumerate(ordered)}
    shift_names = {str(call): name for name, call in shifts.items()}
    found: dict[str, Expr] = {}
    framed: dict[Frame, dict[str, Expr]] = {}
    for name, call in calls.items():
        if str(call) in shift_names:
            found[name] = Column(shift_names[str(call)])
            continue
        own, expr = _framed_call(call, frame)
        column = f"_over{len(found)}"
        framed.setdefault(own, {})[column] = expr
        found[name] = Column(column)
    for own, wanted in framed.items():
        node = frame_node(node, keys, own, tuple(wanted.items()), policy)
    if shifts:
        node = shifted_node(node, keys, shifts)
    answers = {name: expr.transform(partial(_replaced, found)) for name, expr in exprs.items()}
    return Select(without_stamps(node), (*((name, Column(name)) for name in names), *answers.items()))


def _with_keys(node: Node, keys: Named) -> tuple[Node, Named]:
    """The tuples with their keys as columns, and the keys over these."""
    added = tuple((name, expr) for name, expr in keys if name not in node.schema)
    if added:
        node = Select(node, (*((name, Column(name)) for name in node.schema.names), *added))
    return node, tuple((name, Column(name)) for name, _ in keys)


def _framed_call(call: AggregateCall, frame: Frame) -> tuple[Frame, Expr]:
    """The frame of a call, and the call as an expression over aggregates."""
    if not isinstance(call, OrderedCall):
        return frame, call
    if call.function == "row_number":
        return Frame(), AggregateCall("count")
    if call.function not in _NTH:
        raise PlanError(
            f"{call.function} needs an order of its own",
            given=str(call),
            allowed="events that last, and over(by='price')",
            instead="row_number() for the order of time",
        )
    assert call.argument is not None
    function = call.function.removesuffix("_value")
    there = AggregateCall(function, call.argument.is_not_null())  # aggregates leave nulls out
    return frame, Case(((there, AggregateCall(function, call.argument)),), lit(None))


def check_ahead(ahead: Extent, outputs: Named) -> None:
    """Refuse frames of a stream that never end, and what cannot be computed in them."""
    if ahead.end is None:
        raise PlanError(
            "a stream has no last event: such an answer would never be final",
            given=f"{ahead.unit}=(…, None)",
            allowed="a number of events or a duration behind",
            instead="over(rows=(3, 3)), over(range=('10 s', '10 s'))",
        )
    calls = split_aggregates(dict(outputs))[0].values()
    wrong = [call for call in calls if isinstance(call, (ModuleCall, OrderedCall))]
    if wrong:
        raise PlanError(
            "a frame that ends behind its event has built-in aggregates",
            given=str(wrong[0]),
            allowed="hr.sum(...), hr.count(), …",
            instead="over(...) once more for the others",
        )


def lasting(ahead: Extent) -> int:
    """How long an event is in the frames of others, from the first of them on."""
    before, end = INFINITY if ahead.start is None else -int(ahead.start), int(ahead.end or 0)
    return INFINITY if before >= INFINITY - end - 1 else before + end + 1


def ahead_node(node: Node, keys: Named, ahead: Extent, outputs: Named, policy: WindowPolicy) -> Node:
    """Each tuple with aggregates of those from some before it to some behind it.

    The frame of a tuple up to the second behind it is that of more tuples before this second one; if there is only one
    behind, of that one, and so on.
    """
    check_ahead(ahead, outputs)
    names = _names_free(node, keys, dict(outputs))
    node, keys = _with_keys(node, keys)
    most = int(ahead.end or 0)
    if most == 0:
        plain = Frame(rows=None if ahead.start is None else -int(ahead.start))
        return without_stamps(frame_node(node, keys, plain, outputs, policy))
    if most > _MOST_AHEAD:
        raise PlanError(
            "each event behind is a frame of its own",
            given=f"rows=(…, {most})",
            allowed=f"at most {_MOST_AHEAD} events behind",
            instead="over(range=('10 s', '10 s')) for many events",
        )
    for number in range(most + 1):
        frame = Frame(rows=None if ahead.start is None else number - int(ahead.start))
        node = frame_node(node, keys, frame, tuple((f"_{number}_{name}", expr) for name, expr in outputs), policy)
    shifts = {f"_{number}_there": OrderedCall("lead", lit(1), number=number) for number in range(1, most + 1)}
    shifts |= {
        f"_ahead_{number}_{name}": OrderedCall("lead", col(f"_{number}_{name}"), number=number)
        for number in range(1, most + 1)
        for name, _ in outputs
    }
    found = shifted_node(node, keys, shifts)
    answers = {
        name: Case(
            tuple((col(f"_{n}_there").is_not_null(), col(f"_ahead_{n}_{name}")) for n in range(most, 0, -1)),
            col(f"_0_{name}"),
        )
        for name, _ in outputs
    }
    return Select(found, (*((name, Column(name)) for name in names), *answers.items()))


def shifted_node(node: Node, keys: Named, calls: Mapping[str, OrderedCall]) -> Node:
    """Every tuple with values of other tuples of its group: each is the match of a pattern of one tuple."""
    own = [name for name in node.schema.names if name not in STAMPS]
    values: dict[str, Expr] = {_THERE: lit(1)}
    looks: dict[str, Expr] = {}
    results: dict[str, Expr] = {}
    for name, call in calls.items():
        assert call.argument is not None
        values[f"{name}_of"] = call.argument
        look = before if call.function == "lag" else behind
        looks |= {name: look(f"A.{name}_of", call.number), f"{name}_there": look(f"A.{_THERE}", call.number)}
        absent = col(f"{name}_there").is_null()
        results[name] = col(name) if call.default is None else Case(((absent, call.default),), col(name))
    rows = Select(node, (*((name, Column(name)) for name in node.schema.names), *values.items()))
    measures = {name: col(f"A.{name}") for name in own} | looks
    groups = tuple((f"_key{i}", expr) for i, (_, expr) in enumerate(keys))
    match = without_stamps(match_node(rows, groups, pattern("A", skip="to next row"), "one", measures))
    return Select(match, (*((name, Column(name)) for name in own), *results.items()))
