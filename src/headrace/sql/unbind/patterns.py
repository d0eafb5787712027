"""Patterns of a plan as MATCH_RECOGNIZE; see `unbind` for the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from headrace.errors import PlanError
from headrace.expr import AggregateCall, Column, Expr
from headrace.patterns import Pattern, Skip
from headrace.patterns import regex as shapes
from headrace.patterns.references import Classifier, MatchNumber, Offset, Prev, Whole
from headrace.plan.pattern import Match
from headrace.sql import syntax as s

__all__ = ["NotInSql", "navigated", "recognized"]


class NotInSql(PlanError):
    """A plan that the dialect cannot express: a query that only the Python API can build."""

    def __init__(self, what: object, allowed: str = "what a statement can say", *, why: str = "") -> None:
        reason = f": {why}" if why else ""
        super().__init__(f"the dialect has no words for this{reason}", given=str(what), allowed=allowed)


#: The calls that FINAL may precede in the grammar.
_FINAL = (
    "first", "last", "prev", "next", "classifier", "count", "sum", "avg", "min", "max", "var", "stddev", "collect",
)  # fmt: skip
_Say = Callable[[Expr], s.Expression]


def recognized(node: Match, keys: tuple[s.Entry, ...], say: _Say) -> s.MatchRecognize:
    """The pattern of a node; `say` has the words for its expressions."""
    pattern = node.pattern
    assert pattern.shape is not None
    span = None if pattern.span is None else s.Duration(((pattern.span, "us"),))
    return s.MatchRecognize(
        _shape(pattern.shape),
        keys,
        measures=tuple(s.Entry(say(expr), s.Name(name)) for name, expr in node.measures),
        rows=node.rows,
        skip=None if pattern.matches == "all" else _skip(pattern.policy),
        matches=_matches(pattern),
        within=span,
        registers=_registers(pattern, say),
        subsets=tuple(s.Subset(s.Name(name), tuple(map(s.Name, members))) for name, members in pattern.subsets),
        define=_definitions(pattern.conditions, say),
        where=None if pattern.guard is None else say(pattern.guard),
    )


def navigated(expr: Expr, say: _Say) -> s.Expression | None:
    """Calls that occur only in expressions over a match; None for others."""
    if isinstance(expr, Prev):
        function = "prev" if expr.back > 0 else "next"
        return s.Call((s.Name(function),), (say(expr.child), s.Number(abs(expr.back))))
    if isinstance(expr, Classifier | MatchNumber):
        return s.Call((s.Name("classifier" if isinstance(expr, Classifier) else "match_number"),))
    if isinstance(expr, Offset):
        call = say(expr.child)
        assert isinstance(call, s.Call)
        return s.Call(call.name, (*call.arguments, s.Number(expr.places)))
    return _whole(expr.child, say) if isinstance(expr, Whole) else None


def _whole(expr: Expr, say: _Say) -> s.Expression:
    """FINAL stands before calls, and not before what is made of them."""
    if isinstance(expr, Column):
        return s.Extent("final", s.Call((s.Name("last"),), (say(expr),)))
    if isinstance(expr, AggregateCall | Classifier | Offset | Prev):
        call = say(expr)
        if not isinstance(call, s.Call) or call.name[0].text not in _FINAL:
            raise NotInSql(expr, f"FINAL {', '.join(_FINAL)}")
        return s.Extent("final", call)
    return say(expr.with_children([Whole(child) for child in expr.children]))


def _matches(pattern: Pattern) -> Literal["all", "partial"] | None:
    if pattern.matches == "one":
        return None
    return "partial" if pattern.partials else "all"


def _skip(policy: Skip) -> s.AfterMatch:
    return s.AfterMatch(policy.to, None if policy.variable is None else s.Name(policy.variable))


def _registers(pattern: Pattern, say: _Say) -> tuple[s.Register, ...]:
    made = []
    for register in pattern.registers:
        start = say(register.start)
        plain = start.value if isinstance(start, s.Unary) else start
        if not isinstance(plain, s.Number | s.Text | s.Value) or not register.updates:
            raise NotInSql(register, "plain values in registers")
        made.append(s.Register(s.Name(register.name), start, _definitions(register.updates, say)))
    return tuple(made)


def _definitions(given: Iterable[tuple[str, Expr]], say: _Say) -> tuple[s.Definition, ...]:
    return tuple(s.Definition(s.Name(variable), say(expr)) for variable, expr in given)


def _shape(shape: shapes.Shape) -> s.Shape:
    if isinstance(shape, shapes.Symbol):
        return s.ShapeVariable(s.Name(shape.name))
    if isinstance(shape, shapes.Repeat):
        return s.ShapeRepeat(_shape(shape.part), shape.least, shape.most, shape.greedy)
    items = tuple(map(_shape, shape.parts))
    if isinstance(shape, shapes.Permute):
        return s.ShapePermute(items)
    return s.ShapeChoice(items) if isinstance(shape, shapes.Choice) else s.ShapeChain(items)
