"""MATCH_RECOGNIZE: a pattern over a stream, as `match` of a stream has it (rule 9.4).

Columns of variables are named as SQL does, `B.price`, and mean what they mean in Python: the last tuple of B, the one
at hand among them. `le` is the start of a tuple. What the plan cannot compute is refused where it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

from headrace.api.pattern import match_node
from headrace.api.stream import Stream
from headrace.errors import nearest
from headrace.expr import AggregateCall, Expr, col
from headrace.patterns import Pattern, References, Skip, classifier, final, match_number, next, offset, prev
from headrace.patterns import regex as shapes
from headrace.patterns.pattern import absence_elsewhere
from headrace.patterns.references import START, Offset
from headrace.plan.arrival import stamped, starts_at
from headrace.schema import Field, Schema, Type
from headrace.sql import syntax as s
from headrace.sql.bind.context import Context
from headrace.sql.bind.expressions import Expressions
from headrace.sql.bind.scope import Relation, Scope, visible
from headrace.sql.bind.values import constant, duration_of, unit_of
from headrace.sql.printer import to_sql
from headrace.time import INFINITY

__all__ = ["NAVIGATION", "Reading", "matching"]

#: Functions that only patterns have; `first` and `last` are aggregates too.
NAVIGATION = ("classifier", "match_number", "next", "prev")


def matching(
    context: Context, own: Mapping[str, Any], relation: Relation, stream: Stream, part: s.MatchRecognize
) -> tuple[Relation, Stream]:
    """The matches of a pattern in a stream, and the names of their columns."""
    below = Expressions(context, Scope(context, (relation,)), stream.schema, own)
    for key in part.order:
        _check_order(below, stream, key)
    keys = tuple((_named(context, entry), below.bind(entry.value)) for entry in part.partition)
    reading = Reading(context, own, relation, stream.schema, part, unit_of(stream.node))
    pattern = reading.pattern
    _check_names(context, part)
    measures = {_named(context, entry): reading.measure(entry.value) for entry in part.measures}
    with context.at(part):
        found = Stream(match_node(stamped(stream.node), keys, pattern, part.rows or "one", measures))
        names = visible(found.schema.names)
        found = found if len(names) == len(found.schema) else found.select(*names)
    return Relation(relation.name, {name: name for name in names}), found


def _check_order(below: Expressions, stream: Stream, key: s.OrderKey) -> None:
    """Check that the order of tuples is the stream's own."""
    own = isinstance(key.value, s.Column) and key.value.name.text.lower() == START
    if not key.descending and (own or starts_at(stream.node, below.bind(key.value))):
        return
    raise below.context.error(
        key,
        "a pattern follows the stream's own time",
        given=f"ORDER BY {to_sql(key)}",
        allowed=f"the column that its source is ordered by, or {START}: the start of a tuple",
        instead=f"ORDER BY {START}; to use another time, create the stream with it: "
        f"CREATE STREAM … ORDER BY {to_sql(key.value)}",
    )


def _named(context: Context, entry: s.Entry) -> str:
    """The name of a key or a measure."""
    if entry.alias is not None:
        return entry.alias.text
    if isinstance(entry.value, s.Column):
        return entry.value.name.text
    instead = f"{to_sql(entry.value)} AS name"
    raise context.error(entry, "a key that is no column needs a name", given=to_sql(entry), instead=instead)


def _check_names(context: Context, part: s.MatchRecognize) -> None:
    seen: set[str] = set()
    for entry in (*part.partition, *part.measures):
        name = _named(context, entry)
        if name in seen:
            raise context.error(
                entry.alias or entry, f"two columns have the name {name!r}", given=to_sql(entry), instead=f"AS {name}_2"
            )
        seen.add(name)


# --- shapes ----------------------------------------------------------------------------------------------------------


def _shape(context: Context, part: s.Shape) -> shapes.Shape:
    with context.at(part):
        if isinstance(part, s.ShapeVariable):
            return _variable(context, part)
        if isinstance(part, s.ShapeRepeat):
            return shapes.Repeat(_shape(context, part.part), part.least, part.most, part.greedy)
        if isinstance(part, s.ShapeAbsent):
            raise absence_elsewhere(to_sql(part))
        assert isinstance(part, s.ShapeChain | s.ShapeChoice | s.ShapePermute)
        items = tuple(_shape(context, item) for item in part.items)
        kinds = {s.ShapeChain: shapes.Chain, s.ShapeChoice: shapes.Choice, s.ShapePermute: shapes.Permute}
        return kinds[type(part)](items)


def _variable(context: Context, part: s.ShapeVariable) -> shapes.Symbol:
    if not part.name.text.isidentifier():
        raise context.error(part, "a variable is a plain name", given=part.name.text, allowed="letters, digits and _")
    return shapes.Symbol(part.name.text)


# --- conditions and measures -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """The pattern of a text, over a stream with these columns."""

    context: Context
    own: Mapping[str, Any]
    relation: Relation
    below: Schema
    part: s.MatchRecognize
    #: The number of ticks of a bare number.
    unit: int = 1

    @cached_property
    def shape(self) -> shapes.Shape:
        """The shape without the absence at its end."""
        part = self.part.shape
        if self._absence is None:
            return _shape(self.context, part)
        assert isinstance(part, s.ShapeChain)
        items = part.items[:-1]
        return _shape(self.context, items[0] if len(items) == 1 else replace(part, items=items))

    @property
    def _absence(self) -> s.ShapeAbsent | None:
        last = self.part.shape.items[-1] if isinstance(self.part.shape, s.ShapeChain) else None
        return last if isinstance(last, s.ShapeAbsent) else None

    @cached_property
    def absent(self) -> str | None:
        """The variable that must be absent after a match."""
        part = self._absence
        if part is None:
            return None
        if self.part.within is None or duration_of(self.context, self.part.within, self.unit) == INFINITY:
            raise self.context.error(
                part,
                "an absence needs a time: without it, it is never certain",
                given=to_sql(part),
                allowed="a pattern with WITHIN",
                instead=f"PATTERN ({to_sql(self.part.shape)}) WITHIN 10 s",
            )
        with self.context.at(part):
            if not isinstance(part.part, s.ShapeVariable) or part.part.name.text in self.variables:
                raise absence_elsewhere(to_sql(self.part.shape))
        return _variable(self.context, part.part).name

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables of the match."""
        return self.shape.variables()

    @cached_property
    def pattern(self) -> Pattern:
        """The pattern, checked against the stream."""
        part = self.part
        with self.context.at(part.shape):
            found = Pattern(self.shape)
            found.check()
            for register in part.registers:
                with self.context.at(register):
                    updates = self._defined(register.updates)
                    found = found.register(register.name.text, constant(self.context, register.start), updates)
            for subset in part.subsets:
                with self.context.at(subset):
                    found = found.subset(subset.name.text, *map(self._known, subset.members))
                    found.check()
            found.references(self.below)
        found = found if self.absent is None else found.then_not(self.absent)
        found = found.define(self._defined(part.define, "condition"))
        found = found.anchored() if part.anchored else found
        if part.where is not None:
            found = found.where(self._expressions().predicate(part.where))
        if part.within is not None:
            span = duration_of(self.context, part.within, self.unit)
            found = found if span == INFINITY else found.within(span)
        return self._with_policy(found)

    def _with_policy(self, found: Pattern) -> Pattern:
        skip, matches = self.part.skip, self.part.matches
        if matches is not None and skip is not None and skip.to != "next":
            raise self.context.error(
                skip,
                "a query for all matches skips nothing",
                given=to_sql(skip),
                allowed="ALL MATCHES, or AFTER MATCH SKIP …",
                instead="AFTER MATCH SKIP TO NEXT ROW",
            )
        if matches is not None:
            return found.all_matches() if matches == "all" else found.partial()
        if skip is None:
            return found
        variable = None if skip.variable is None else self._known(skip.variable)
        return found.skip(str(Skip(skip.to, variable)))

    def measure(self, part: s.Expression) -> Expr:
        """The measures of a match, or of each of its rows."""
        return self._expressions(final=True).bind(part)

    def _defined(self, given: Sequence[s.Definition], what: str = "value") -> dict[str, Expr]:
        found: dict[str, Expr] = {}
        for one in given:
            absent = (self.absent,) if self.absent is not None and what == "condition" else ()
            name = _among(self.context, one.variable, (*self.variables, *absent), _NO_VARIABLE)
            if name in found:
                raise self.context.error(
                    one, f"{name} has two {what}s", given=to_sql(one), instead="one, with AND between its parts"
                )
            expressions = self._expressions(name if name in absent else None)
            found[name] = expressions.predicate(one.value) if what == "condition" else expressions.bind(one.value)
        return found

    def _known(self, name: s.Name) -> str:
        return _among(self.context, name, self.variables, _NO_VARIABLE)

    def _expressions(self, absent: str | None = None, *, final: bool = False) -> _OfMatch:
        """Expressions over a match; in the condition of an absent variable, also over the tuple that may be one."""
        columns = {**self.relation.columns, START: START}
        subsets = {one.name.text: tuple(map(self._known, one.members)) for one in self.part.subsets}
        variables = self.variables if absent is None else (*self.variables, absent)
        names = (*variables, *subsets)
        by_variable = tuple(
            Relation(name, {mine: f"{name}.{theirs}" for mine, theirs in columns.items()}, by_name=True)
            for name in names
        )
        registers = {one.name.text: _register_type(self.context, one) for one in self.part.registers}
        carried = Relation("", {name: name for name in (*registers, START)})
        tuples = (*self.below.fields, Field(START, Type.LONG))
        fields = [
            *tuples,
            *(Field(f"{name}.{f.name}", f.type) for name in names for f in tuples),
            *(Field(name, Type.LONG) for name in names),  # count(B.*)
            *(Field(name, kind) for name, kind in registers.items()),
        ]
        once = tuple({field.name: field for field in reversed(fields)}.values())
        scope = Scope(self.context, (*by_variable, self.relation, carried))
        references = References(self.below, variables, registers, subsets)
        of_match = _OfMatch(self.context, scope, Schema(once), self.own, aggregates=True, references=references)
        return replace(of_match, final=final, each=self.part.rows == "all")


_NO_VARIABLE = "the pattern has no variable"


def _among(context: Context, name: s.Name, known: Sequence[str], none: str) -> str:
    """The name with this spelling, else ignoring case."""
    exact = [one for one in known if one == name.text]
    found = exact or [one for one in known if one.lower() == name.text.lower()]
    if not found:
        raise context.error(
            name,
            f"{none} {name.text!r}",
            given=name.text,
            allowed=", ".join(known),
            instead=nearest(name.text, known) or "",
        )
    return found[0]


def _register_type(context: Context, part: s.Register) -> Type:
    with context.at(part):
        return Pattern().register("m", constant(context, part.start)).registers[0].type


@dataclass(frozen=True)
class _OfMatch(Expressions):
    """Expressions over a match: columns of variables, navigation, running aggregates."""

    references: References = field(kw_only=True)
    #: Whether FINAL is allowed, and whether it matters: if all rows of a match are output.
    final: bool = False
    each: bool = False

    def bind(self, part: s.Expression) -> Expr:
        expr = super().bind(part)
        with self.context.at(part):
            self.references.resolve(expr)  # refuses what a match does not know
        return expr

    def _column(self, part: s.Column) -> Expr:
        if part.stream is not None:
            known = [relation.name for relation in self.scope.relations if relation.name]
            _among(self.context, part.stream, known, "there is no variable of the pattern and no stream named")
        return col(self.scope.column(part))

    def _call(self, part: s.Call) -> Expr:
        name = ".".join(one.text for one in part.name).lower()
        if part.over is not None:
            return super()._call(part)
        if name in _OF_MATCHES and not part.arguments:
            return _OF_MATCHES[name]()
        if name in ("prev", "next"):
            return self._beside(part, prev if name == "prev" else next)
        if name in ("first", "last") and len(part.arguments) == 2:
            places = self._places(part)
            return offset(self._call(replace(part, arguments=part.arguments[:1])), places)
        star = part.arguments[0] if len(part.arguments) == 1 else None
        if name == "count" and isinstance(star, s.Star) and star.stream is not None and not part.distinct:
            variables = self.references.variables
            return AggregateCall("count", col(_among(self.context, star.stream, variables, _NO_VARIABLE)))
        return super()._call(part)

    def _beside(self, part: s.Call, look: Callable[[Expr, int], Expr]) -> Expr:
        """PREV and NEXT."""
        places = self._places(part)
        inner = self._bind(part.arguments[0])
        # PREV of the first tuple of B is the first of the PREVs of B's tuples.
        nested, further = (inner.child, inner.places) if isinstance(inner, Offset) else (inner, 0)
        if isinstance(nested, AggregateCall) and nested.function in ("first", "last") and nested.argument is not None:
            found = AggregateCall(nested.function, look(nested.argument, places))
            return offset(found, further) if further else found
        return look(inner, places)

    def _places(self, part: s.Call) -> int:
        """The distance in tuples: the second argument, by default one."""
        places = constant(self.context, part.arguments[1]) if len(part.arguments) == 2 else 1
        if len(part.arguments) not in (1, 2) or part.named or part.distinct or type(places) is not int or places < 0:
            name = part.name[0].text
            message = f"{name} takes a value and a distance in tuples"
            raise self.context.error(part, message, given=to_sql(part), allowed=f"{name}(price), {name}(price, 2)")
        return places

    def _extent(self, part: s.Extent) -> Expr:
        if part.extent == "running" or (self.final and not self.each):
            return self._bind(part.call)
        if not self.final:
            raise self.context.error(
                part,
                "a condition is evaluated during the match, and does not know the complete match",
                given=to_sql(part),
                allowed="FINAL in MEASURES",
                instead=f"{to_sql(part.call)}, or WHERE after DEFINE, which is evaluated at the end",
            )
        return final(self._bind(part.call))

    _bindings: ClassVar[Mapping[type[s.Part], Callable[[Any, Any], Expr]]] = {
        **Expressions._bindings,  # noqa: SLF001 - those of its base
        s.Column: _column,
        s.Call: _call,
        s.Extent: _extent,
    }


_OF_MATCHES = {"classifier": classifier, "match_number": match_number}
