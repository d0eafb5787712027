"""The frames and window functions of standard SQL over streams of instants: `OVER (… ORDER BY ts …)`.

A frame in the order of the stream's own time is a frame of ESL; one of RANGE also has the rows that happen at the same
time. The functions become aggregates over frames, except `lag` and `lead`, which are a pattern of one row that looks
at rows before and behind it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.api.around import shifted_node
from headrace.api.stream import Stream
from headrace.expr.ordered_calls import OrderedCall
from headrace.plan.arrival import stamped
from headrace.plan.instants import has_points
from headrace.sql import syntax as s
from headrace.sql.bind.context import Context
from headrace.sql.bind.expressions import Expressions, inside
from headrace.sql.bind.following import seen_from_behind
from headrace.sql.bind.grouping import column_name
from headrace.sql.bind.relations import Item
from headrace.sql.bind.times import starts
from headrace.sql.bind.values import duration_of
from headrace.sql.printer import to_sql
from headrace.sql.syntax.rewrite import rewritten

if TYPE_CHECKING:
    from headrace.sql.bind.queries import Queries

__all__ = [
    "RANKS", "VALUES", "depth", "frame_between", "is_shift", "name_of", "nth_of", "shift_of", "shifted",
    "sliding_last", "with_frames",
]  # fmt: skip

_SHIFTS = ("lag", "lead")
#: The functions that place a row among the others, and those that give the value of one row of a frame.
RANKS = ("row_number", "rank", "dense_rank")
VALUES = ("first_value", "last_value", "nth_value")


def name_of(call: s.Call) -> str:
    """The name of a function, in lower case."""
    return ".".join(part.text for part in call.name).lower()


def is_shift(call: s.Call) -> bool:
    """Whether a call is lag or lead."""
    return call.over is not None and name_of(call) in _SHIFTS


def depth(call: s.Call) -> int:
    """How many calls with OVER stand in one another inside a call."""
    inner = [one for one in inside(call) if isinstance(one, s.Call) and one.over is not None and one is not call]
    return 1 + max(map(depth, inner)) if inner else 0


# --- frames ----------------------------------------------------------------------------------------------------------


def frame_between(context: Context, over: s.Over, unit: int) -> dict[str, Any]:
    """The arguments for `over` of a stream, of a frame with BETWEEN, or of RANGE UNBOUNDED PRECEDING."""
    start, end = over.between
    if end.kind != "current" or start.kind == "following":
        raise context.error(
            end if end.kind != "current" else start,
            "a frame over a stream ends with the current row, or behind it",
            given=to_sql(over),
            allowed="BETWEEN … PRECEDING AND CURRENT ROW, or AND … FOLLOWING",
            instead="lag(x, 2) for a row before",
        )
    if over.slide is not None or over.active:
        raise context.error(
            over,
            "SLIDE and ACTIVE EXPIRATION are for frames without BETWEEN",
            given=to_sql(over),
            allowed="one of them",
        )
    peers = {"peers": True} if over.frame == "range" and over.order else {}
    size = s.Number(0) if start.kind == "current" else start.size
    if size is None:
        return peers
    if over.frame == "range":
        assert isinstance(size, (s.Duration, s.Number))
        return {"range": duration_of(context, size, unit), **peers}
    if not isinstance(size, s.Number) or not isinstance(size.value, int):
        raise context.error(start, "ROWS counts rows", given=to_sql(size), allowed="a number")
    return {"rows": size.value}


def sliding_last(
    context: Context, frames: Mapping[s.Over, list[s.Call]], *, rows: bool
) -> list[tuple[s.Over, list[s.Call]]]:
    """A frame that slides leaves tuples out, which the others must have seen before, and what gives `rows`, too."""
    sliding = [over for over in frames if over.slide is not None]
    others = [over for over in frames if over.slide is None]
    within = [one for over in others for call in frames[over] for one in inside(call) if isinstance(one, s.Call)]
    if len(sliding) > 1 or any(one.over in sliding for one in within) or (sliding and rows):
        raise context.error(
            sliding[-1],
            "a sliding window skips tuples that another window of this SELECT needs",
            given=to_sql(sliding[-1]),
            allowed="one OVER with SLIDE in a SELECT, and not inside another OVER",
            instead="a sub-select with the one, and the other around it",
        )
    return [(over, frames[over]) for over in (*others, *sliding)]


def with_frames(queries: Queries, part: s.Select, item: Item, given: Container[s.Call]) -> s.Select:
    """The SELECT with the window functions of its list, except those `given`, as aggregates over frames."""
    for entry in part.entries:
        for one in inside(entry):
            if isinstance(one, s.Call) and one.over is not None and one not in given:
                _check_order(queries, one.over, item)
                _check_nested(queries.context, one)
    entries = []
    for entry in part.entries:
        value = rewritten(entry.value, lambda one: one if one in given else _aggregated(queries.context, one))
        value = rewritten(value, lambda one: one if one in given else seen_from_behind(queries.context, one))
        alias = entry.alias or s.Name(column_name(entry), quoted=True, at=entry.at)
        entries.append(entry if value is entry.value else replace(entry, value=value, alias=alias))
    return replace(part, entries=tuple(entries))


def _check_nested(context: Context, call: s.Call) -> None:
    """Check that lag and lead are not inside of a call with a frame, which is computed before them."""
    nested = [one for one in inside(call) if isinstance(one, s.Call) and is_shift(one) and one is not call]
    if nested:
        raise context.error(
            nested[0], "lag and lead stand outside of other windows", given=to_sql(call), instead="a sub-select"
        )


def _check_order(queries: Queries, over: s.Over, item: Item) -> None:
    """Check that the order, if there is one, is that of the stream's own time."""
    if not over.order:
        return
    key = over.order[0]
    if not has_points(item.stream.node):
        raise queries.context.error(
            key,
            "over rows that last, only built-in aggregates and window functions have an order",
            given=f"ORDER BY {to_sql(key)}",
            allowed="sum(x) OVER (PARTITION BY k ORDER BY y), lag(x) OVER (ORDER BY y), …",
            instead="FROM stream [NOW], whose rows are instants, for aggregates of other kinds",
        )
    expressions = queries.expressions(item)
    own = len(over.order) == 1 and not key.descending and starts(item, expressions.bind(key.value))
    if not own:
        raise queries.context.error(
            key,
            "over a stream, the rows of OVER are in the order of the stream's own time",
            given=f"ORDER BY {', '.join(map(to_sql, over.order))}",
            allowed="ORDER BY the column of the stream's time, or le",
            instead="ORDER BY le; for another order FROM stream [TUMBLING 10 s] ORDER BY … LIMIT k",
        )


def _aggregated(context: Context, one: s.Part) -> s.Part | None:
    """A window function as an expression over aggregates; None for other parts."""
    if not isinstance(one, s.Call) or one.over is None:
        return None
    name = name_of(one)
    if name in RANKS:
        return _rank(context, one, name)
    if name in VALUES and one.over.order:
        return _value(context, one, name)
    return None


def _rank(context: Context, call: s.Call, name: str) -> s.Expression:
    if call.arguments:
        raise context.error(call, f"{name} has no arguments", given=to_sql(call), instead=f"{name}() OVER (…)")
    assert call.over is not None
    at = call.at
    rows = s.Over(call.over.partition, at=at)
    count = s.Call((s.Name("count", at=at),), (s.Star(at=at),), over=rows, at=at)
    if name == "row_number":
        return count
    ordered = replace(rows, frame="range", order=call.over.order or (s.OrderKey(s.Column(s.Name("le"))),))
    current = s.FrameBound("current", at=at)
    so_far = replace(ordered, between=(s.FrameBound("preceding", at=at), current))
    if name == "rank":
        together = replace(count, over=replace(ordered, between=(current, current)))
        earlier = s.Binary("-", replace(count, over=so_far), together, at=at)
        return s.Binary("+", earlier, s.Number(1, at=at), at=at)
    first_of_time = replace(count, over=replace(rows, frame="range", size=s.Number(0, at=at)))
    begins = s.Binary("=", first_of_time, s.Number(1, at=at), at=at)
    one = s.Case(((begins, s.Number(1, at=at)),), s.Number(0, at=at), at=at)
    return s.Call((s.Name("sum", at=at),), (one,), over=so_far, at=at)


def _value(context: Context, call: s.Call, name: str) -> s.Expression:
    """The first, last or nth value of a frame, which may be NULL."""
    assert call.over is not None
    at, over, arguments = call.at, call.over, call.arguments
    nth = nth_of(context, call)
    where = None
    if name == "nth_value":
        if over.frame != "unbounded" and (not over.between or over.between[0].size is not None):
            raise context.error(
                call,
                "nth_value counts from the first row of the stream or group",
                given=to_sql(call),
                allowed="a frame that begins with UNBOUNDED PRECEDING",
                instead="lag(x, n), which counts back from the current row",
            )
        number = s.Call((s.Name("count", at=at),), (s.Star(at=at),), over=s.Over(over.partition, at=at), at=at)
        where = s.Binary("=", number, s.Number(nth, at=at), at=at)
    function = (s.Name("last" if name == "last_value" else "first", at=at),)
    value = s.Call(function, arguments[:1], over=over, filter=where, at=at)
    there = s.Call(function, (s.IsNull(arguments[0], negated=True, at=at),), over=over, filter=where, at=at)
    return s.Case(((there, value),), at=at)


def nth_of(context: Context, call: s.Call) -> int:
    """Which row of its frame first_value, last_value or nth_value is about: from 1 on, or -1 for the last."""
    name, arguments = name_of(call), call.arguments
    nth = arguments[1] if name == "nth_value" and len(arguments) == 2 else None
    counts = isinstance(nth, s.Number) and isinstance(nth.value, int) and nth.value > 0
    if len(arguments) != (2 if name == "nth_value" else 1) or (nth is not None and not counts):
        form = "nth_value(x, 2)" if name == "nth_value" else f"{name}(x)"
        raise context.error(call, f"{name} takes other arguments", given=to_sql(call), instead=f"{form} OVER (…)")
    if nth is None:
        return -1 if name == "last_value" else 1
    assert isinstance(nth, s.Number)
    return int(nth.value)


# --- lag and lead ----------------------------------------------------------------------------------------------------


def shifted(queries: Queries, part: s.Select, item: Item, given: dict[s.Call, str]) -> tuple[Item, dict[s.Call, str]]:
    """Add the results of lag and lead as columns."""
    groups: dict[tuple[s.Expression, ...], dict[s.Call, str]] = {}
    for entry in part.entries:
        for one in inside(entry):
            if isinstance(one, s.Call) and one.over is not None and is_shift(one) and one not in given:
                names = groups.setdefault(one.over.partition, {})
                names.setdefault(one, f"_sql_shift{sum(map(len, groups.values()))}")
    for partition, names in groups.items():
        item = replace(item, stream=_shifted(queries, partition, names, item, given))
        given = given | names
    return item, given


def _shifted(
    queries: Queries,
    partition: tuple[s.Expression, ...],
    names: dict[s.Call, str],
    item: Item,
    given: dict[s.Call, str],
) -> Stream:
    """Every row with values of other rows of its group."""
    expressions = queries.expressions(item, given=given)
    keys = {f"_sql_key{number}": expressions.bind(key) for number, key in enumerate(partition)}
    calls = {name: shift_of(queries.context, expressions, call) for call, name in names.items()}
    with queries.context.at(next(iter(names))):
        return Stream(shifted_node(stamped(item.stream.node), item.stream.group_by(**keys).keys, calls))


def shift_of(context: Context, expressions: Expressions, call: s.Call) -> OrderedCall:
    """A call of lag or lead, over the columns of a stream."""
    value, steps, default = _shift_arguments(context, call)
    absent = None if default is None else expressions.bind(default)
    return OrderedCall(name_of(call), expressions.bind(value), number=steps, default=absent)


def _shift_arguments(context: Context, call: s.Call) -> tuple[s.Expression, int, s.Expression | None]:
    """The value, the number of rows, and the value where there is no such row."""
    steps = call.arguments[1] if len(call.arguments) > 1 else s.Number(1)
    counts = isinstance(steps, s.Number) and isinstance(steps.value, int) and steps.value > 0
    if not 1 <= len(call.arguments) <= 3 or not counts or call.filter is not None or call.distinct:
        name = name_of(call)
        raise context.error(
            call,
            f"{name} takes a value, a number of rows, and a default",
            given=to_sql(call),
            instead=f"{name}(x), {name}(x, 2), {name}(x, 2, 0)",
        )
    assert isinstance(steps, s.Number)
    return call.arguments[0], int(steps.value), call.arguments[2] if len(call.arguments) > 2 else None
