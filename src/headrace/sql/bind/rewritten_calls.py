"""What is a combination of other parts of the tree, before it is bound: `ntile`, `var_pop`, `GROUP BY ALL`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headrace.sql import syntax as s
from headrace.sql.bind.context import Context
from headrace.sql.bind.expressions import has_aggregate, inside
from headrace.sql.printer import to_sql
from headrace.sql.syntax.rewrite import rewritten

__all__ = ["with_groups", "with_plain_calls"]


# --- calls -----------------------------------------------------------------------------------------------------------


def with_plain_calls(context: Context, part: s.Select, own: Mapping[str, Any]) -> s.Select:
    """A SELECT whose calls of `ntile`, `percent_rank`, `cume_dist`, `var_pop` and `stddev_pop` are made of others."""

    def plain(one: s.Part) -> s.Part | None:
        if isinstance(one, (s.Subquery, s.Query)):
            return one
        name = one.name[0].text.lower() if isinstance(one, s.Call) and len(one.name) == 1 else ""
        if name not in _CALLS or name in own:
            return None
        assert isinstance(one, s.Call)
        inner = replace(one, arguments=tuple(rewritten(each, plain) for each in one.arguments))
        return _CALLS[name](context, inner)

    def named(entry: s.Entry) -> s.Entry:
        value = rewritten(entry.value, plain)
        alias = entry.alias or s.Name(to_sql(entry.value), quoted=True, at=entry.at)
        return entry if value is entry.value else replace(entry, value=value, alias=alias)

    entries = tuple(map(named, part.entries))
    clauses = {name: value for name in ("having", "qualify") if (value := getattr(part, name)) is not None}
    changed = {name: rewritten(value, plain) for name, value in clauses.items()}
    order = tuple(replace(key, value=rewritten(key.value, plain)) for key in part.order)
    return replace(part, entries=entries, order=order, **changed)


def _call(name: str, *arguments: s.Expression, like: s.Call, over: s.Over | None = None) -> s.Call:
    return s.Call((s.Name(name),), arguments, over=over or like.over, filter=like.filter, at=like.at)


def _binary(operator: str, left: s.Expression, right: s.Expression) -> s.Binary:
    return s.Binary(operator, left, right, at=left.at)


def _window(context: Context, call: s.Call, arguments: int) -> s.Over:
    if call.over is None or len(call.arguments) != arguments or (not call.over.order and call.over.base is None):
        name = call.name[0].text
        raise context.error(
            call,
            f"{name} places a row among others, in an order",
            given=to_sql(call),
            instead=f"{name}({'4' * arguments}) OVER (PARTITION BY … ORDER BY …)",
        )
    return call.over


def _partition(call: s.Call) -> s.Call:
    """The number of the rows of a partition."""
    assert call.over is not None
    whole = s.Over(call.over.partition, whole=True, at=call.over.at)
    return s.Call((s.Name("count"),), (s.Star(),), over=whole, at=call.at)


def _ntile(context: Context, call: s.Call) -> s.Expression:
    """The number of a row's share, of `n` shares that differ by one row at most, the larger ones first."""
    _window(context, call, 1)
    (shares,) = call.arguments
    number, rows, one = _call("row_number", like=call), _partition(call), s.Number(1, at=call.at)
    size = s.Call((s.Name("floor_divide"),), (rows, shares), at=call.at)
    larger = _binary("%", rows, shares)
    within = _binary("*", larger, _binary("+", size, one))

    def place(before: s.Expression, share: s.Expression) -> s.Expression:
        return s.Call((s.Name("floor_divide"),), (_binary("-", _binary("-", number, one), before), share), at=call.at)

    first = _binary("+", place(s.Number(0, at=call.at), _binary("+", size, one)), one)
    later = _binary("+", _binary("+", larger, place(within, size)), one)
    return s.Case(((_binary("<=", number, within), first),), later, at=call.at)


def _percent_rank(context: Context, call: s.Call) -> s.Expression:
    _window(context, call, 0)
    one, rows = s.Number(1, at=call.at), _partition(call)
    share = _binary("/", _binary("-", _call("rank", like=call), one), _binary("-", rows, one))
    return s.Case(((_binary("=", rows, one), s.Number(0.0, at=call.at)),), share, at=call.at)


def _cume_dist(context: Context, call: s.Call) -> s.Expression:
    over = _window(context, call, 0)
    bounds = (s.FrameBound("preceding", at=over.at), s.FrameBound("current", at=over.at))
    frame = replace(over, frame="range", size=None, between=bounds)
    return _binary("/", _call("count", s.Star(), like=call, over=frame), _partition(call))


def _population(context: Context, call: s.Call) -> s.Expression:
    """The variance of all values, not of a sample of them."""
    if len(call.arguments) != 1:
        raise context.error(call, "this takes one argument", given=to_sql(call), instead="var_pop(column)")
    rows, one = _call("count", *call.arguments, like=call), s.Number(1, at=call.at)
    sample = _call("var_samp", *call.arguments, like=call)
    found = _binary("/", _binary("*", sample, _binary("-", rows, one)), rows)
    return s.Case(((_binary("=", rows, one), s.Number(0.0, at=call.at)),), found, at=call.at)


def _deviation(context: Context, call: s.Call) -> s.Expression:
    return s.Call((s.Name("sqrt"),), (_population(context, call),), at=call.at)


_CALLS = {
    "ntile": _ntile,
    "percent_rank": _percent_rank,
    "cume_dist": _cume_dist,
    "var_pop": _population,
    "stddev_pop": _deviation,
}


# --- groups ----------------------------------------------------------------------------------------------------------


def with_groups(context: Context, part: s.Select, own: Mapping[str, Any]) -> s.Select:
    """A SELECT whose `GROUP BY ALL` names the entries of its list without aggregates."""
    key = part.group[0].value if len(part.group) == 1 else None
    if not isinstance(key, s.Column) or key.stream is not None or key.name.quoted or key.name.text.lower() != "all":
        return part
    for entry in part.entries:
        if isinstance(entry.value, s.Star):
            raise context.error(entry, "GROUP BY ALL needs a list without *", instead="the columns by their names")
    plain = [entry for entry in part.entries if not has_aggregate(entry, own)]
    kept = [entry for entry in plain if not any(isinstance(one, s.Over) for one in inside(entry))]
    return replace(part, group=tuple(s.Entry(entry.value, at=entry.at) for entry in kept))
