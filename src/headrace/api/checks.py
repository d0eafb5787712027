"""Checks of arguments: every error says what was given, what is allowed and what to write instead."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import numpy as np

from headrace.errors import ExpressionError, ModuleError, PlanError, nearest
from headrace.expr import AggregateCall, Expr, When, col, has_aggregates, split_aggregates
from headrace.expr.in_order import resolved_orders
from headrace.expr.ordered_calls import OrderedCall
from headrace.io.sinks import Sink
from headrace.modules import Aggregate as ModuleAggregate
from headrace.modules import Operator
from headrace.plan.instants import BOTH_INSTANTS, has_points
from headrace.plan.nodes import Node
from headrace.plan.policies import ProgressPolicy
from headrace.plan.windows import WindowKind
from headrace.schema import Schema

__all__ = [
    "HasNode", "aggregate_name", "checked_aggregate", "checked_expr", "checked_function", "checked_operator",
    "checked_options", "checked_pairs", "checked_sinks", "checked_streams", "checked_window", "column_or_expr",
    "columns_or_exprs", "named_aggregates", "named_exprs", "node_of", "options_of", "refuse_instants",
    "row_expr",
]  # fmt: skip

_POSITIVE = ("buckets", "threads", "batch_rows", "files_per_batch", "rows_per_batch", "max_trips")


class HasNode(Protocol):
    """Anything with a plan, such as a stream."""

    @property
    def node(self) -> Node: ...


def _shown(value: Any) -> Any:
    """`value` for the `given` of an error, where None would mean that there is nothing to show."""
    return "None" if value is None else value


# --- expressions ----------------------------------------------------------------------------------------------------


def checked_expr(value: Any, where: str, instead: str) -> Expr:
    """`value`, which must be an expression; `where` says what needs it."""
    if isinstance(value, Expr):
        return row_expr(value, where)
    if isinstance(value, When):
        instead = "when(...).then(...).otherwise(...)"
    allowed = "col(...), and expressions that use it"
    raise ExpressionError(f"{where} needs an expression", given=_shown(value), allowed=allowed, instead=instead)


def row_expr(expr: Expr, where: str) -> Expr:
    """`expr`, which must have a value for every row: aggregates have none."""
    if where != "aggregate" and has_aggregates(expr):
        ordered = any(isinstance(call, OrderedCall) for call in split_aggregates({"a": expr})[0].values())
        raise ExpressionError(
            f"{where} looks at one event at a time, and this is about many",
            given=expr,
            allowed="expressions without aggregates",
            instead=f"{'over' if ordered else 'window'}(...).aggregate(a={expr}), then {where} over the column a",
        )
    return expr


def column_or_expr(value: Any, where: str, instead: str) -> Expr:
    """A column by name, or an expression."""
    if isinstance(value, str):
        return col(value)
    if isinstance(value, Expr):
        return row_expr(value, where)
    raise ExpressionError(
        f"{where} needs columns",
        given=_shown(value),
        allowed="names of columns, expressions",
        instead=_starred(value, instead),
    )


def columns_or_exprs(values: Any, where: str, instead: str) -> list[Expr]:
    """Columns by name, or expressions: one, or several in a list."""
    items = values if isinstance(values, (list, tuple)) else [values]
    return [column_or_expr(value, where, instead) for value in items]


def named_exprs(named: Mapping[str, Any], where: str, instead: str) -> list[tuple[str, Expr]]:
    """The columns or expressions of keyword arguments, by name."""
    return [(name, column_or_expr(value, where, instead)) for name, value in named.items()]


def checked_aggregate(value: Any, name: str = "n") -> Expr:
    """`value`, which must be an aggregate or an expression of aggregates; `name` is the name of its column."""
    if isinstance(value, ModuleAggregate):
        return value.of()
    if isinstance(value, type) and issubclass(value, ModuleAggregate):
        raise ExpressionError(
            "aggregate needs a module, not its class",
            given=value.__name__,
            allowed="an instance of it",
            instead=f"aggregate({name}={value.__name__}(...).of('column'))",
        )
    if isinstance(value, Operator):
        raise ExpressionError(
            "aggregate takes aggregates; this is an operator", given=value, instead=f"operate({value}, 'column')"
        )
    example = f"hr.max({value!r})" if isinstance(value, str) else "hr.count()"
    return checked_expr(value, "aggregate", f"aggregate({name}={example})")


def aggregate_name(call: Expr) -> str:
    """The default name of an aggregate's column."""
    if isinstance(call, AggregateCall):
        numbers = [parameter for parameter in call.parameters if not isinstance(parameter, str)]
        parts = [call.function, *([] if call.argument is None else [call.argument]), *numbers]
        return "_".join(map(str, parts))
    return call.name


def named_aggregates(calls: Iterable[Any], named: Mapping[str, Any], schema: Schema) -> tuple[tuple[str, Expr], ...]:
    """Aggregates over columns of `schema`, by the names of their own columns."""
    found = [(aggregate_name(call), call) for call in map(checked_aggregate, calls)]
    found += [(name, checked_aggregate(call, name)) for name, call in named.items()]
    return tuple((name, resolved_orders(call, schema)) for name, call in found)


def checked_operator(module: Any) -> Operator:
    """`module`, which must be a user's operator."""
    if isinstance(module, Operator):
        return module
    if isinstance(module, type) and issubclass(module, Operator):
        instead = f"operate({module.__name__}(), ...)"
    else:
        instead = "aggregate(name=Module().of('column')) for aggregates"
    allowed = "an instance of a subclass of hr.Operator or hr.IncrementalOperator"
    raise ModuleError("operate takes an operator", given=_shown(module), allowed=allowed, instead=instead)


def checked_window(window: Any) -> WindowKind:
    """`window`, which must be a window."""
    if isinstance(window, WindowKind):
        return window
    allowed = (
        "tumbling(...), hopping(...), snapshot(), count_by_start(...), count_by_end(...), session(...), sliding(...)"
    )
    instead = f"{window.__name__}(...)" if callable(window) else "window(hr.tumbling('10 s'))"
    raise PlanError("this is not a window", given=_shown(window), allowed=allowed, instead=instead)


def _starred(value: Any, instead: str) -> str:
    """The call to write for arguments in a list: with a star."""
    return f"{instead.partition('(')[0]}(*{value!r})" if isinstance(value, (list, tuple)) else instead


# --- streams and sinks ----------------------------------------------------------------------------------------------


def node_of(stream: Any, instead: str = "a stream, such as hr.read_csv(...) or hr.events(...)") -> Node:
    """The plan of a stream."""
    node = stream if isinstance(stream, Node) else getattr(stream, "node", None)
    if isinstance(node, Node):
        return node
    raise PlanError("this is not a stream", given=_shown(stream), allowed="a stream", instead=instead)


def checked_progress(progress: Any) -> ProgressPolicy:
    """`progress`, which must be a policy."""
    if isinstance(progress, ProgressPolicy):
        return progress
    delay = progress if isinstance(progress, str) else "10 s"
    raise PlanError(
        "this is no progress of an input",
        given=progress,
        allowed="hr.advance(...), hr.ordered(...), hr.heartbeat(...), hr.explicit(...)",
        instead=f"progress=hr.advance({delay!r})",
    )


def checked_streams(streams: Any) -> dict[str, Node]:
    """The plans of named streams, at least one."""
    if not isinstance(streams, Mapping) or not streams:
        raise PlanError(
            "a run needs named streams",
            given=_shown(streams),
            allowed="a dict of streams",
            instead="hr.run({'out': stream})",
        )
    return {str(name): node_of(stream) for name, stream in streams.items()}


def checked_function(value: Any, where: str, instead: str) -> Callable[..., Any]:
    """`value`, which must be a function; `where` says what needs it."""
    if callable(value):
        return value  # type: ignore[no-any-return]
    raise PlanError(f"{where} needs a function", given=_shown(value), allowed="a function of a stream", instead=instead)


def checked_pairs(pairs: Any) -> list[tuple[Node, Sink]]:
    """The plans of streams, each with its sink, at least one."""
    allowed, instead = "pairs of a stream and a sink", "hr.start_all([(stream, hr.console())])"
    if not isinstance(pairs, Sequence) or not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs):
        raise PlanError(f"a query is made of {allowed}", given=_shown(pairs), allowed=allowed, instead=instead)
    if not pairs:
        raise PlanError(
            "a query needs at least one sink", given="none", allowed=_SINKS, instead="stream.start(hr.console())"
        )
    return [(node_of(stream), _sink(sink)) for stream, sink in pairs]


def checked_sinks(sinks: Mapping[str, Any], streams: Mapping[str, Node]) -> dict[str, Sink]:
    """Sinks for some of the streams, by name."""
    for name in sinks:
        if name not in streams:
            close = nearest(name, streams)
            allowed = ", ".join(streams)
            raise PlanError("a sink for a stream that is not there", given=name, allowed=allowed, instead=close or "")
    return {name: _sink(sink) for name, sink in sinks.items()}


_SINKS = (
    "hr.console(...), hr.files(...), hr.memory(...), hr.foreach_batch(...), hr.delta_lake(...), hr.kafka(...), "
    "hr.postgres(...), hr.sink(...)"
)


def _sink(sink: Any) -> Sink:
    if isinstance(sink, Sink):
        return sink
    name = getattr(sink, "__name__", "")
    instead = "stream.start(hr.console())"
    if callable(sink) and name:
        ours = getattr(sink, "__module__", "").startswith("headrace.")
        instead = f"{name}()" if ours else f"hr.foreach_batch({name.replace('<lambda>', 'lambda rows, batch: ...')})"
    raise PlanError("this is not a sink", given=_shown(sink), allowed=_SINKS, instead=instead)


_INSTANTS_MAY_MEET: ContextVar[bool] = ContextVar("instants_may_meet", default=False)


@contextmanager
def instants_may_meet() -> Iterator[None]:
    """Allow joins of instants inside this block: for tests of the engine, where instants fall on the same tick."""
    token = _INSTANTS_MAY_MEET.set(True)
    try:
        yield
    finally:
        _INSTANTS_MAY_MEET.reset(token)


def refuse_instants(left: Node, right: Node, method: str) -> None:
    """Refuse a join of two streams of instants: they would meet only where both fall on the same tick."""
    if not _INSTANTS_MAY_MEET.get() and has_points(left) and has_points(right):
        raise PlanError(
            BOTH_INSTANTS,
            given=f"{left.describe()} | {right.describe()}",
            allowed="windows of the same time on both sides, or lifetimes on one",
            instead=f"stream.set_duration('10 s').{method}(other, ...), or window(...).contents() of both",
        )


# --- options --------------------------------------------------------------------------------------------------------


def options_of(*functions: Callable[..., Any]) -> list[str]:
    """The names of the options of these functions."""
    parameters = [p for function in functions for p in inspect.signature(function).parameters.values()]
    return list(dict.fromkeys(p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY))


def checked_options(options: Mapping[str, Any], allowed: Iterable[str]) -> dict[str, Any]:
    """`options`, which must all be allowed; counts must be at least 1."""
    known = list(allowed)
    for name, value in options.items():
        if name not in known:
            close = nearest(name, known)
            raise PlanError(
                f"there is no option {name!r} here",
                given=name,
                allowed=", ".join(known),
                instead=f"{close}=..." if close else "leave it out",
            )
        if name in _POSITIVE and value is not None and not _is_count(value):
            raise PlanError(
                f"{name} must be at least 1", given=value, allowed="a whole number from 1 on", instead=f"{name}=1"
            )
    return dict(options)


def _is_count(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and int(value) >= 1
