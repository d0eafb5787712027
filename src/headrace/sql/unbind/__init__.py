"""A plan as a text of the dialect: the way back from `bind`.

Every operator becomes one SELECT over sub-selects, as it stands in the plan. What it is good for: queries that were
made by a program can be read as SQL, and the binder is tried with every query that the verification makes up. What the
dialect has no words for raises `NotInSql`; a node that is neither said nor listed as `UNSPOKEN` is a mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any, ClassVar

from headrace.api.ranking import unmerged
from headrace.errors import PlanError
from headrace.expr import AggregateCall, Expr
from headrace.expr import nodes as engine
from headrace.expr.in_order import order_of
from headrace.expr.python import UdfCall
from headrace.modules import ModuleCall
from headrace.patterns.references import START
from headrace.plan import nodes as p
from headrace.plan.arrival import stamped
from headrace.plan.calendar import Calendar
from headrace.plan.instants import has_points
from headrace.plan.join import names_beside
from headrace.plan.ordered import FIRST, Delta, Fixed, Frame, Landmark, Slides, Time, Trigger, Tuples
from headrace.plan.windows import Count, Hopping, Session, Snapshot, WindowKind
from headrace.schema import STAMPS
from headrace.sql import syntax as s
from headrace.sql.bind.scope import visible
from headrace.sql.bind.values import unit_of
from headrace.sql.bind.windows import OWN_TIME
from headrace.sql.printer import to_sql
from headrace.sql.unbind.calls import called, in_an_order, literal
from headrace.sql.unbind.patterns import NotInSql, navigated, recognized
from headrace.time import INFINITY

__all__ = ["UNSPOKEN", "NotInSql", "Unbinder", "UnboundSql", "unbind"]

_LEFT, _RIGHT = "left_side", "right_side"


@dataclass(frozen=True)
class UnboundSql:
    """A plan as SQL: the text, and the functions and modules that it calls by name."""

    text: str
    functions: Mapping[str, Any]


def unbind(node: p.Node, names: Mapping[p.Node, str]) -> UnboundSql:
    """Unbind a plan over named streams."""
    # A window by order of arrival adds stamps to its sources: they are the same streams.
    known = {stamped(one): name for one, name in names.items()} | dict(names)
    speaker = Unbinder(known)
    query = speaker.query(node)
    return UnboundSql(to_sql(query), speaker.functions)


_INSIDE = "it is a part of another operator, which has words of its own"
_OPTIMIZED = "it is made by the optimizer; a plan is said as it was written"
_ENTERS = "streams enter a statement by their names"
_BY_EXPRESSION = "lifetimes by expressions are written in Python"
_TRUE = s.Value(value=True)
_COUNTED = "what was diverted is read from the query that diverted it"
#: Nodes that no statement can express, and why.
UNSPOKEN: Mapping[type[p.Node], str] = {
    p.Admit: _ENTERS,
    p.AlterLifetime: _BY_EXPRESSION,
    p.Combine: _OPTIMIZED,
    p.Diverted: _COUNTED,
    p.EdgeLifetimes: _ENTERS,
    p.EventTimes: _INSIDE,
    p.Failures: _COUNTED,
    p.Fold: "an aggregate that is kept from tuple to tuple is called by a name that the plan does not have",
    p.GroupInput: _INSIDE,
    p.HeldEventTimes: _INSIDE,
    p.LoopEnd: _OPTIMIZED,
    p.LoopInput: _INSIDE,
    p.LoopStart: _OPTIMIZED,
    p.Merge: _OPTIMIZED,
    p.Orphans: _COUNTED,
    p.Output: "where a stream goes is said by the statement around the query",
    p.Panes: _OPTIMIZED,
    p.Source: _ENTERS,
    p.TableJoin: "tables are joined by a name that the plan does not have",
}


_LIFESPANS: Mapping[type[p.Node], Callable[[Any], tuple[str, int | None]]] = {
    p.Shift: lambda node: ("shift", node.by),
    p.SetDuration: lambda node: ("range", node.duration),
    p.Extend: lambda node: ("extend", node.by),
    p.CapDuration: lambda node: ("cap", node.duration),
    p.Chop: lambda node: ("chop", node.every),
    p.PointAtStart: lambda _: ("point_at_start", None),
    p.PointAtEnd: lambda _: ("point_at_end", None),
    p.Coalesce: lambda _: ("coalesce", None),
}


@dataclass(frozen=True)
class Unbinder:
    """Writes the operators and expressions of a plan as syntax."""

    names: Mapping[p.Node, str]
    functions: dict[str, Any] = field(default_factory=dict)
    #: The qualifiers of columns in joins; None where names are enough.
    columns: Mapping[str, s.Expression] | None = None
    #: The OVER clause of aggregates, where they are not over a window.
    frame: s.Over | None = None

    # --- operators ---------------------------------------------------------------------------------------------------

    def query(self, node: p.Node) -> s.Query:
        """A query that gives the node's stream."""
        if node in self.names:
            return s.Query(_everything(self.item(node)))
        if type(node) in UNSPOKEN:
            raise NotInSql(node.describe(), why=UNSPOKEN[type(node)])
        if type(node) not in self.spoken:
            name = type(node).__name__
            raise PlanError(f"{name} is neither said nor unspoken", given=node.describe(), instead=f"UNSPOKEN[{name}]")
        return self.spoken[type(node)](self, node)

    def item(self, node: p.Node, *brackets: s.Bracket, alias: str | None = None) -> s.FromItem:
        """The node's stream in FROM."""
        named = None if alias is None else _name(alias)
        if node in self.names:
            return s.FromItem(_name(self.names[node]), brackets, named)
        return s.FromItem(s.Subquery(self.query(node)), brackets, named)

    def _group_apply(self, node: p.GroupApply) -> s.Query:
        return self.query(node.input)

    def _final(self, node: p.Final) -> s.Query:
        return s.Query(_everything(self.item(node.input)), emit="final")

    def _united(self, node: p.Union) -> s.Query:
        first, *rest = [_everything(self.item(part)) for part in node.parts]
        body: s.Body = first
        for select in rest:
            body = s.SetOperation("union", body, select, all=True)
        return s.Query(body)

    def _timed(self, node: p.Select, where: p.Where | None, times: p.EventTimes) -> s.Query:
        """Expressions over the times of events, which have names in SQL."""
        columns: dict[str, s.Expression] = {name: _column(name) for name in times.input.schema.names}
        columns |= {name: s.Column(s.Name(text)) for name, text in ((times.start, "le"), (times.end, "re")) if name}
        inside = replace(self, columns=columns)
        condition = None if where is None else inside.expression(where.predicate)
        return s.Query(s.Select(inside.entries(node.outputs), self.item(times.input), where=condition))

    def _where(self, node: p.Where) -> s.Query:
        return s.Query(_everything(self.item(node.input), where=self.expression(node.predicate)))

    def _select(self, node: p.Select) -> s.Query:
        where = node.input if isinstance(node.input, p.Where) else None
        times = where.input if where is not None else node.input
        top = unmerged(node)
        if top is not None:
            return self._top(top, merged=True)
        if isinstance(times, p.EventTimes) and times not in self.names:
            return self._timed(node, where, times)
        return s.Query(s.Select(self.entries(node.outputs), self.item(node.input)))

    def _lifespan(self, node: Any) -> s.Query:
        kind, ticks = _LIFESPANS[type(node)](node)
        origin = node.origin if isinstance(node, p.Chop) else 0
        starting = _instant(origin, unit_of(node.input)) if origin else None
        part = s.Lifespan(kind, _duration(ticks), starting)  # type: ignore[arg-type]
        return s.Query(_everything(self.item(node.input, part)))

    def _join(self, node: p.Join) -> s.Query:
        instants = has_points(node.left) and has_points(node.right)  # an error in SQL
        if node.groups or node.names is not None or instants:
            raise NotInSql(node.describe())
        on: s.Expression | None = None
        for left_key, right_key in node.on:
            on = _both(on, s.Binary("=", _of(_LEFT, left_key), _of(_RIGHT, right_key)))
        names = names_beside(node.left.schema, node.right.schema, node.on)
        columns: dict[str, s.Expression] = {name: _of(_LEFT, name) for name in node.left.schema.names}
        columns |= {new: _of(_RIGHT, old) for old, new in names.items()}
        if node.where is not None:
            on = _both(on, replace(self, columns=columns).expression(node.where))
        if node.kind == "left" and node.where is None and all(left_key == right_key for left_key, right_key in node.on):
            # By USING, which has each key once, like the plan.
            using = tuple(_name(left_key) for left_key, _ in node.on)
            columns |= {left_key: _column(left_key) for left_key, _ in node.on}
            return self._listed(node, columns, s.Join("left", self.item(node.right, alias=_RIGHT), None, using))
        kind: Any = node.kind if on is not None or node.kind != "inner" else "cross"
        return self._listed(node, columns, s.Join(kind, self.item(node.right, alias=_RIGHT), on))

    def _listed(self, node: p.Join, columns: Mapping[str, s.Expression], join: s.Join) -> s.Query:
        entries = tuple(s.Entry(columns[name], _name(name)) for name in node.schema.names)
        return s.Query(s.Select(entries, self.item(node.left, alias=_LEFT), (join,)))

    def _explode(self, node: p.Explode) -> s.Query:
        names = (node.element,) if node.position is None else (node.element, node.position)
        lists = s.Unnest(_of(_LEFT, node.column), node.position is not None, tuple(map(_name, names)))
        right = s.FromItem(lists, alias=_name(_RIGHT))
        join = s.Join("left", right, _TRUE) if node.outer else s.Join("cross", right)
        return s.Query(_everything(self.item(node.input, alias=_LEFT), joins=(join,)))

    def _clip(self, node: p.Clip) -> s.Query:
        if node.groups:
            raise NotInSql(node.describe())
        on: s.Expression | None = None
        for left_key, right_key in node.on:
            on = _both(on, s.Binary("=", _of(_LEFT, left_key), _of(_RIGHT, right_key)))
        join = s.Join("clip", self.item(node.by, alias=_RIGHT), on)
        return s.Query(s.Select((s.Entry(s.Star(_name(_LEFT))),), self.item(node.input, alias=_LEFT), (join,)))

    def _aggregate(self, node: p.Aggregate) -> s.Query:
        keys = self.entries(node.keys)
        group = tuple(s.Entry(entry.value) for entry in keys)
        source = self.item(node.input, self._window(node))
        return s.Query(s.Select((*keys, *self.entries(node.outputs)), source, group=group), **_ticking(node.window))

    def _top(self, node: p.Top, *, merged: bool = False) -> s.Query:
        if node.distinct or node.places:
            raise NotInSql(node.describe())
        directions = zip(node.by, node.directions, strict=True)
        order = tuple(s.OrderKey(self.expression(expr), down) for expr, down in directions)
        if merged:
            limit = s.Limit(node.k, self._columns(node), node.skip)
            return s.Query(_everything(self.item(node.input), order=order, limit=limit))
        limit = s.Limit(node.k, tuple(map(self.expression, node.each)), node.skip)
        source = self.item(node.input, self._window(node, partition=self._columns(node)))
        return s.Query(_everything(source, order=order, limit=limit), **_ticking(node.window))

    def _contents(self, node: p.Contents) -> s.Query:
        if node.start is not None:
            raise NotInSql(node.describe())
        window = self._window(node, partition=self._columns(node))
        return s.Query(_everything(self.item(node.input, window)), **_ticking(node.window))

    def _operate(self, node: p.Operate) -> s.Query:
        window = self._window(node, partition=self._columns(node))
        arguments = tuple(self.expression(expr) for _, expr in node.mapping)
        apply = s.Module(s.Call((self._called(node.module, "operator"),), arguments))
        return s.Query(_everything(self.item(node.input, window, apply)), **_ticking(node.window))

    def _over_frame(self, node: p.Over) -> s.Query:
        frame = node.window
        assert isinstance(frame, Frame)
        partition = tuple(self.expression(expr) for _, expr in node.keys)
        if any(name not in node.input.schema for name, _ in node.keys):
            raise NotInSql(node.describe())
        slide = None
        if frame.slide is not None:
            slide = s.Number(frame.slide.count) if isinstance(frame.slide, Tuples) else _duration(frame.slide.ticks)
        over = s.Over(partition, slide=slide)
        if frame.rows is not None:
            over = s.Over(partition, "rows", s.Number(frame.rows), slide)
        elif frame.peers:
            over = _with_peers(node, partition)
        elif frame.range is not None:
            over = s.Over(partition, "range", _duration(frame.range), slide)
        columns = tuple(s.Entry(_column(name)) for name in visible(node.input.schema.names))
        outputs = replace(self, frame=over).entries(node.outputs)
        return s.Query(s.Select((*columns, *outputs), self.item(node.input)))

    def _match(self, node: p.Match) -> s.Query:
        columns = (*node.input.schema.names, START)
        mine: dict[str, s.Expression] = {name: s.Column(s.Name(name)) for name in columns}
        mine |= {register.name: _column(register.name) for register in node.pattern.registers}
        for variable in (*node.pattern.variables, *dict(node.pattern.subsets)):
            mine |= {f"{variable}.{name}": s.Column(s.Name(name), _name(variable)) for name in columns}
            mine[variable] = s.Star(_name(variable))  # as `count` takes it
        matching = recognized(node, self.entries(node.keys), replace(self, columns=mine).expression)
        return s.Query(_everything(self.item(node.input, matching)))

    def _loop(self, node: p.Recurse) -> s.Query:
        if node.groups or node.start.columns != node.schema:
            raise NotInSql(node.describe())
        numbered = (f"loop_{number}" for number in count(1))
        name = next(name for name in numbered if name not in self.names.values())
        inside = replace(self, names={**self.names, node.start: name})
        seed, step = _everything(self.item(node.seed)), _everything(inside.item(node.definition))
        both = s.SetOperation("union", seed, step, all=not node.distinct)
        named = s.NamedQuery(_name(name), s.Query(both), progress=node.strategy, max_rounds=node.max_rounds)
        return s.Query(_everything(s.FromItem(_name(name))), named=(named,), recursive=True)

    def _columns(self, node: p.PerWindow) -> tuple[s.Column, ...]:
        """The keys, which must be columns here."""
        if any(str(expr) != str(engine.Column(name)) for name, expr in node.keys):
            raise NotInSql(node.describe())
        return tuple(_column(name) for name in node.key_names)

    # --- windows -----------------------------------------------------------------------------------------------------

    def _window(self, node: p.PerWindow, partition: tuple[s.Column, ...] = ()) -> s.Window:
        policy = node.policy
        if policy.on_error != "fail" or policy.verify or policy.time_limit is not None:
            raise NotInSql(node.describe())
        clip = policy.clipping if policy.clipping != "none" else None
        more: dict[str, Any] = {"partition": partition, "policies": s.WindowPolicies(clip, policy.timestamping)}
        return self._divided(node.window, unit_of(node.input), more)

    def _divided(self, window: WindowKind, unit: int, more: dict[str, Any]) -> s.Window:
        if isinstance(window, Calendar):
            size, hop = (s.Duration(((int(span.split()[0]), span.split()[1]),)) for span in window.spans)
            anchor = None if window.anchor is None else s.DateTime(window.anchor.isoformat())
            return s.GridWindow(size, hop, anchor, window.zone, **more)
        if isinstance(window, Hopping):
            origin = None if window.origin == 0 else _instant(window.origin, unit)
            return s.GridWindow(_span(window.size), _span(window.hop), origin, **more)
        if isinstance(window, Snapshot):
            return s.SnapshotWindow(**more)
        if isinstance(window, Count):
            return s.CountWindow(window.by, window.n, **more)
        if isinstance(window, Session):
            longest = None if window.longest is None else _span(window.longest)
            return s.SessionWindow(_span(window.gap), longest, **more)
        if isinstance(window, Landmark):
            return s.LandmarkWindow(_instant(window.start, unit), _measure(window.every), **more)
        if isinstance(window, Fixed):
            return s.FixedWindow(_instant(window.start, unit), _instant(window.end, unit), **more)
        if isinstance(window, Delta):
            return s.DeltaWindow(self.expression(window.delta), self.expression(window.threshold), **more)
        if isinstance(window, Slides) and not isinstance(window.size, Time | Tuples):
            raise NotInSql(window)  # its column is the time of the source
        assert isinstance(window, Slides)
        starting = window.starting if not isinstance(window.starting, int) else _instant(window.starting, unit)
        return s.SizeWindow(_measure(window.size), _measure(window.every), starting, **more)  # type: ignore[arg-type]

    # --- expressions -------------------------------------------------------------------------------------------------

    def entries(self, outputs: Sequence[tuple[str, Expr]]) -> tuple[s.Entry, ...]:
        """Named expressions, as a SELECT lists them."""
        return tuple(s.Entry(self.expression(expr), _name(name)) for name, expr in outputs)

    def expression(self, expr: Expr) -> s.Expression:
        """An expression of the engine as one of the dialect."""
        if isinstance(expr, engine.Column):
            if expr.column.startswith(FIRST):
                return s.Column(_name(expr.column.removeprefix(FIRST)), _name("first"))
            return _column(expr.column) if self.columns is None else self.columns[expr.column]
        if isinstance(expr, engine.Alias):
            return self.expression(expr.child)
        if isinstance(expr, (engine.Duration, engine.IntervalValue, engine.Months)):
            return _length(expr)
        if isinstance(expr, engine.Literal):
            return literal(expr.value)
        if isinstance(expr, engine.Cast):
            return s.Cast(self.expression(expr.child), _name(expr.to.value))
        if isinstance(expr, engine.Case):
            branches = tuple((self.expression(when), self.expression(then)) for when, then in expr.branches)
            return s.Case(branches, self.expression(expr.default))
        if isinstance(expr, engine.Call):
            return called(expr.function, [self.expression(argument) for argument in expr.args])
        return self._called_expression(expr)

    def _called_expression(self, expr: Expr) -> s.Expression:
        if isinstance(expr, ModuleCall):
            arguments = tuple(map(self.expression, expr.arguments))
            return s.Call((self._called(expr.module, "module"),), arguments, over=self.frame)
        if isinstance(expr, AggregateCall):
            function = "string_agg" if expr.function == "concat" else expr.function
            argument = s.Star() if expr.argument is None else self.expression(expr.argument)
            return s.Call((_name(function),), (argument, *map(literal, expr.parameters)), over=self.frame)
        of_match = navigated(expr, self.expression)
        if of_match is not None:
            return of_match
        if (ordered := order_of(expr)) is not None:
            return in_an_order(ordered, self.expression)
        if isinstance(expr, UdfCall):
            return s.Call((self._called(expr.udf, "function"),), tuple(map(self.expression, expr.children)))
        raise NotInSql(expr)

    def _called(self, what: Any, kind: str) -> s.Name:
        """The name of a function or module; equal ones share a name."""
        for name, known in self.functions.items():
            if known is what:
                return _name(name)
        name = f"{kind}_{len(self.functions) + 1}"
        self.functions[name] = what
        return _name(name)

    #: The methods for all other nodes.
    spoken: ClassVar[Mapping[type[p.Node], Callable[[Unbinder, Any], s.Query]]] = {
        p.Final: _final,
        p.GroupApply: _group_apply,
        p.Union: _united,
        p.Where: _where,
        p.Select: _select,
        **dict.fromkeys(_LIFESPANS, _lifespan),
        p.Join: _join,
        p.Clip: _clip,
        p.Explode: _explode,
        p.Aggregate: _aggregate,
        p.Top: _top,
        p.Contents: _contents,
        p.Operate: _operate,
        p.Over: _over_frame,
        p.Match: _match,
        p.Recurse: _loop,
    }


# --- small things ----------------------------------------------------------------------------------------------------


def _with_peers(node: p.Over, partition: tuple[s.Expression, ...]) -> s.Over:
    """The frame of standard SQL, which is for streams of instants."""
    if not has_points(node.input):
        raise NotInSql(node.describe())
    start = s.FrameBound("preceding", _duration(node.frame.range))
    order = (s.OrderKey(_column(OWN_TIME)),)
    return s.Over(partition, "range", order=order, between=(start, s.FrameBound("current")))


def _everything(source: s.FromItem, **more: Any) -> s.Select:
    return s.Select((s.Entry(s.Star()),), source, **more)


def _name(text: str) -> s.Name:
    if not text or len(text) > 255 or "\0" in text or text in STAMPS:
        raise NotInSql(text)
    return s.Name(text)


def _column(name: str) -> s.Column:
    return s.Column(_name(name))


def _of(stream: str, name: str) -> s.Column:
    return s.Column(_name(name), _name(stream))


def _both(one: s.Expression | None, other: s.Expression) -> s.Expression:
    return other if one is None else s.Binary("AND", one, other)


def _span(ticks: int) -> s.Duration:
    return s.Duration(() if ticks == INFINITY else ((ticks, "us"),))


def _duration(ticks: int | None) -> s.Duration | s.Unary | None:
    return None if ticks is None else _length(engine.Duration(ticks))


def _length(length: engine.Duration | engine.IntervalValue | engine.Months) -> s.Duration | s.Unary:
    months, interval = isinstance(length, engine.Months), isinstance(length, engine.IntervalValue)
    size = _span(abs(length.value))
    part = s.Duration(((abs(length.value), "month"),)) if months else replace(size, interval=interval)
    return s.Unary("-", part) if length.value < 0 else part


def _instant(ticks: int, unit: int) -> s.Expression:
    """A time as a number of units; one that lies between them is a date."""
    number, rest = divmod(ticks, unit)
    if rest:
        try:
            return s.DateTime((datetime(1970, 1, 1) + timedelta(microseconds=ticks)).isoformat())  # noqa: DTZ001 - as text
        except OverflowError:
            raise NotInSql(ticks) from None
    return s.Unary("-", s.Number(-number)) if number < 0 else s.Number(number)


def _measure(measure: Trigger) -> s.Measure:
    if isinstance(measure, Tuples):
        return s.Tuples(measure.count)
    return s.Application(_span(measure.ticks), s.Column(s.Name(OWN_TIME)))


def _ticking(window: WindowKind) -> dict[str, Any]:
    if not isinstance(window, Slides) or window.tick == "tuple":
        return {}
    return {"tick": window.tick, "tick_by": None if window.batch is None else _column(window.batch)}
