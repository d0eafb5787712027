"""Bind expressions of the dialect to expressions of the engine: only functions on its allow-list exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from headrace.errors import HeadraceError, nearest
from headrace.expr import AggregateCall, Expr, Udf, col, lit
from headrace.expr import nodes as engine
from headrace.expr.aggregates import AGGREGATES
from headrace.expr.hashing import hashed, uniform
from headrace.expr.json_path import json_path
from headrace.modules import Aggregate as AggregateModule
from headrace.modules import Module
from headrace.modules.registry import modules, registered_module
from headrace.schema import Schema, Type
from headrace.sql import syntax as s
from headrace.sql.bind.chosen import in_an_order, some_rows
from headrace.sql.bind.compared_rows import in_rows
from headrace.sql.bind.context import Context
from headrace.sql.bind.expanded import EXPANDED, Expanded
from headrace.sql.bind.names import AGGREGATE_SYNONYMS, SQL_AGGREGATES, SQL_FUNCTIONS, SYNONYMS
from headrace.sql.bind.scope import Scope, clock_of
from headrace.sql.bind.structs import field_of, made_struct
from headrace.sql.bind.values import calendar_of, constant, duration_of, no_value, ticks_of, typed_value
from headrace.sql.elsewhere import function_hint
from headrace.sql.printer import to_sql

__all__ = [
    "SQL_AGGREGATES", "SQL_FUNCTIONS", "Expressions", "has_aggregate", "inside", "module_called",
]  # fmt: skip

_OPERATORS = {
    "+": "add", "-": "subtract", "*": "multiply", "/": "divide", "%": "modulo", "||": "concat", "=": "eq", "<>": "ne",
    "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "AND": "and", "OR": "or", "&": "bit_and", "|": "bit_or",
    "^": "bit_xor", "<<": "shift_left", ">>": "shift_right",
}  # fmt: skip
_WHOLE = 2**30  # longer than any text
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_JSON = {"->": "json_get", "->>": "json_text"}
_COMPARISONS = frozenset(("=", "<>", "<", "<=", ">", ">="))


def inside(part: s.Part) -> list[s.Part]:
    """A part and all parts inside it, except those of sub-selects."""
    found, waiting = [], [part]
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting += [child for child in one.parts() if not isinstance(child, (s.Subquery, s.Query))]
    return found


def has_aggregate(part: s.Part, own: Mapping[str, Any]) -> bool:
    """Whether an expression has a call over many events."""
    return any(isinstance(one, s.Call) and one.over is None and _aggregates(one, own) for one in inside(part))


def _aggregates(call: s.Call, own: Mapping[str, Any]) -> bool:
    name = ".".join(part.text for part in call.name)
    lower = name.lower()
    if name not in own and (lower in SQL_AGGREGATES):
        return True
    if name not in own and lower in SQL_FUNCTIONS:
        return False
    found = own.get(name) or _installed(name)
    return found is not None and not isinstance(found, Udf)


def _installed(name: str) -> Any:
    try:
        return registered_module(name)
    except HeadraceError:
        return None


def module_called(context: Context, call: s.Call, own: Mapping[str, Any]) -> Any:
    """The function or module that a call names, created with its named parameters."""
    name = ".".join(part.text for part in call.name)
    found = own.get(name) or _installed(name)
    if found is None:
        known = [*SQL_FUNCTIONS, *SQL_AGGREGATES, *own, *modules().names]
        raise context.error(
            call.name[0],
            f"there is no function, aggregate or module {name!r}",
            given=name,
            allowed="what SHOW FUNCTIONS and SHOW MODULES show",
            instead=function_hint(name, len(call.arguments)) or nearest(name, known) or "",
        )
    if isinstance(found, type) and issubclass(found, Module):
        with context.at(call):
            return found(**{one.name.text: constant(context, one.value) for one in call.named})
    if call.named:
        raise context.error(
            call.named[0], f"{name} has no named parameters", given=call.named[0].name.text, allowed="arguments"
        )
    return found


@dataclass(frozen=True)
class Expressions:
    """Binds expressions over the columns of a scope, which have the types of a schema.

    `aggregates` tells whether calls may be about many events; `given` has the calls that are columns already.
    """

    context: Context
    scope: Scope
    schema: Schema
    own: Mapping[str, Any] = field(default_factory=dict)
    aggregates: bool = False
    given: Mapping[s.Call, str] = field(default_factory=dict)

    def bind(self, part: s.Expression) -> Expr:
        """The engine's expression, with its types checked."""
        expr = self._bind(part)
        with self.context.at(part):
            expr.type(self.schema)
        return expr

    def predicate(self, part: s.Expression) -> Expr:
        """An expression that is true or false."""
        expr = self.bind(part)
        kind = expr.type(self.schema)
        if kind is not Type.BOOLEAN:
            raise self.context.error(
                part, f"a condition must be BOOLEAN, and this is {kind.value}", given=to_sql(part), allowed="BOOLEAN"
            )
        return expr

    def _bind(self, part: s.Expression) -> Expr:
        bind = self._bindings.get(type(part))
        if bind is None:
            raise no_value(self.context, part)
        with self.context.at(part):
            return bind(self, part)

    def _column(self, part: s.Column) -> Expr:
        struct = self.scope.struct(part)
        return self.scope.value(part) if struct is None else field_of(self, self._column(struct), part.name)

    def _literal(self, part: s.Number | s.Text | s.Value) -> Expr:
        return lit(part.value)

    def _datetime(self, part: s.DateTime) -> Expr:
        return self._instant(part, part.text)

    def _instant(self, part: s.Part, text: str) -> Expr:
        with self.context.at(part):
            ticks = ticks_of(self.context, s.DateTime(text, at=part.at))
            return lit(_EPOCH + timedelta(microseconds=ticks))

    def _typed_text(self, part: s.TypedText) -> Expr:
        return lit(typed_value(self.context, part))

    def _duration(self, part: s.Duration) -> Expr:
        months, rest = calendar_of(self.context, part)
        if months:
            if rest is not None:
                raise self.context.error(
                    part, "months and days are added one after the other", given=to_sql(part),
                    allowed="d + INTERVAL '1' MONTH + INTERVAL '2' DAY",
                )  # fmt: skip
            return engine.Months(months)
        ticks = duration_of(self.context, part)
        return engine.IntervalValue(ticks) if part.interval else engine.Duration(ticks)

    def _unary(self, part: s.Unary) -> Expr:
        if part.operator == "-" and isinstance(part.value, s.Number):
            return lit(-part.value.value)
        value = self._bind(part.value)
        if part.operator == "-" and isinstance(value, (engine.Duration, engine.IntervalValue, engine.Months)):
            return replace(value, value=-value.value)
        if part.operator == "+":
            return value
        return engine.Call({"-": "negate", "NOT": "not", "~": "bit_not"}[part.operator], (value,))

    def _binary(self, part: s.Binary) -> Expr:
        # A long chain of ANDs nests to the left: a loop unrolls it, to avoid deep recursion.
        chain: list[s.Binary] = []
        start: s.Expression = part
        while isinstance(start, s.Binary):
            chain.append(start)
            start = start.left
        value = self._bind(start)
        for link in reversed(chain):
            with self.context.at(link):
                value = self._linked(link, start, value)
            start = link
        return value

    def _linked(self, part: s.Binary, left: s.Expression, value: Expr) -> Expr:
        right = self._bind(part.right)
        if part.operator in _JSON:
            with self.context.at(part.right):
                return engine.Call(_JSON[part.operator], (value, lit(json_path(right.value))))
        value, right = self._as_number(value, right), self._as_number(right, value)
        if part.operator in _COMPARISONS:
            value, right = self._as_instants(left, value, part.right, right)
        if part.operator in ("+", "-"):
            moved = self._moved(part, left, value, right)
            if moved is not None:
                return moved
        return engine.Call(_OPERATORS[part.operator], (value, right))

    def _as_number(self, value: Expr, beside: Expr) -> Expr:
        """Convert a CHAR that is combined with a number to its code."""
        if not isinstance(value, engine.Column) or value.column not in self.schema:
            return value
        character = self.schema[value.column].type is Type.CHAR
        return value.code() if character and beside.type(self.schema).is_numeric else value

    def _as_instants(
        self, left_part: s.Expression, left: Expr, right_part: s.Expression, right: Expr
    ) -> tuple[Expr, Expr]:
        """Convert a text that is compared with a DATETIME."""
        if isinstance(right_part, s.Text) and self._is_instant(left):
            return left, self._instant(right_part, right_part.value)
        if isinstance(left_part, s.Text) and self._is_instant(right):
            return self._instant(left_part, left_part.value), right
        return left, right

    def _moved(self, part: s.Binary, left_part: s.Expression, left: Expr, right: Expr) -> Expr | None:
        """`ts + 10 s` moves an instant; `a - b` of instants is the time between them, in ticks."""
        if isinstance(part.right, s.Unary) and isinstance(part.right.value, s.Duration) and part.right.operator == "-":
            part = replace(part, operator={"+": "-", "-": "+"}[part.operator], right=part.right.value)
            right = self._bind(part.right)
        span = part.right if isinstance(part.right, s.Duration) else left_part
        if isinstance(span, s.Duration) and (calendar_of(self.context, span)[0] or self._is_date(left, right)):
            return self._moved_date(part, left, right)
        if isinstance(part.right, s.Duration) and self._is_instant(left):
            ticks = duration_of(self.context, part.right)
            return engine.Call("shift_time", (left, lit(ticks if part.operator == "+" else -ticks)))
        if isinstance(left_part, s.Duration) and part.operator == "+" and self._is_instant(right):
            return engine.Call("shift_time", (right, lit(duration_of(self.context, left_part))))
        if part.operator == "-" and self._is_instant(left) and self._is_instant(right):
            return engine.Call("time_diff", (left, right))
        return None

    def _moved_date(self, part: s.Binary, left: Expr, right: Expr) -> Expr:
        """`d + INTERVAL '1' MONTH`, and a DATE moved by a duration."""
        left, right = (
            engine.Duration(duration_of(self.context, span))
            if isinstance(span, s.Duration) and not isinstance(one, engine.Months)
            else one
            for one, span in ((left, part.left), (right, part.right))
        )
        return engine.Call(_OPERATORS[part.operator], (left, right))

    def _is_date(self, *exprs: Expr) -> bool:
        return any(not isinstance(one, engine.Months) and one.type(self.schema) is Type.DATE for one in exprs)

    def _is_instant(self, expr: Expr) -> bool:
        return expr.type(self.schema) is Type.DATETIME

    def _between(self, part: s.Between) -> Expr:
        value, low, high = map(self._bind, (part.value, part.low, part.high))
        value, low = self._as_instants(part.value, value, part.low, low)
        value, high = self._as_instants(part.value, value, part.high, high)
        return _negated(value.between(low, high), part.negated)

    def _in(self, part: s.In) -> Expr:
        if isinstance(part.value, s.Row):
            return self._bind(in_rows(self.context, part))
        value = self._bind(part.value)
        options = [self._as_instants(part.value, value, option, self._bind(option))[1] for option in part.options]
        return _negated(engine.Call("isin", (value, *options)), part.negated)

    def _is_null(self, part: s.IsNull) -> Expr:
        value = self._bind(part.value)
        if part.what == "NULL":
            return engine.Call("is_not_null" if part.negated else "is_null", (value,))
        truth = {"TRUE": value.is_true, "FALSE": value.is_false, "UNKNOWN": value.is_unknown}[part.what]()
        return _negated(truth, part.negated)

    def _is_distinct(self, part: s.IsDistinct) -> Expr:
        left, right = self._as_instants(part.left, self._bind(part.left), part.right, self._bind(part.right))
        return left.is_not_distinct_from(right) if part.negated else left.is_distinct_from(right)

    def _is_json(self, part: s.IsJson) -> Expr:
        return _negated(engine.Call("is_json", (self._bind(part.value), lit(part.kind))), part.negated)

    def _element(self, part: s.Element) -> Expr:
        return engine.Call("element_at", (self._bind(part.value), self._bind(part.place)))

    def _like(self, part: s.Like) -> Expr:
        if part.operator == "ILIKE":
            pattern = constant(self.context, part.pattern)
            return _negated(self._bind(part.value).ilike(pattern), part.negated)
        function = "like" if part.operator == "LIKE" else "rlike"
        return _negated(engine.Call(function, (self._bind(part.value), self._bind(part.pattern))), part.negated)

    def _case(self, part: s.Case) -> Expr:
        branches = []
        for when, then in part.branches:
            condition = self.predicate(when) if part.subject is None else self._bind(part.subject) == self._bind(when)
            branches.append((condition, self._bind(then)))
        default = lit(None) if part.default is None else self._bind(part.default)
        return engine.Case(tuple(branches), default)

    def _cast(self, part: s.Cast) -> Expr:
        with self.context.at(part.type):
            wanted = Type.parse(part.type.text)
        return self._bind(part.value).cast(wanted)

    # --- calls -------------------------------------------------------------------------------------------------------

    def _call(self, part: s.Call) -> Expr:
        if part in self.given:
            return col(self.given[part])
        if part.filter is not None or in_an_order(part):
            return some_rows(self, part)
        return self._called(part)

    def _called(self, part: s.Call) -> Expr:
        if part.over is not None:
            raise self.context.error(
                part, "OVER stands in the list of a SELECT, in QUALIFY and ORDER BY", given=to_sql(part)
            )
        name = ".".join(one.text for one in part.name)
        if name not in self.own and (built_in := self._built_in(part, name.lower())) is not None:
            return built_in
        found = module_called(self.context, part, self.own)
        arguments = [self._bind(argument) for argument in part.arguments]
        if isinstance(found, Udf):
            return found(*arguments)
        if isinstance(found, AggregateModule):
            self._refuse_unless_aggregates(part, name)
            if part.distinct:
                raise self.context.error(
                    part,
                    f"{name}(DISTINCT …) does not exist",
                    given=to_sql(part),
                    allowed="count(DISTINCT column)",
                    instead=f"{name}(…) over a sub-select with DISTINCT",
                )
            missing = [field.name for field in found.fields][len(arguments) :]
            if any(field not in self.schema for field in missing):  # a column of the same name is taken else
                wanted = ", ".join(map(str, found.fields))
                raise self.context.error(
                    part, f"{name} takes {len(found.fields)} arguments", given=to_sql(part), allowed=f"{name}({wanted})"
                )
            return found.of(*arguments)
        raise self.context.error(
            part,
            f"{name} gives rows, not a value",
            given=to_sql(part),
            allowed="functions and aggregates",
            instead=f"FROM stream [TUMBLING 10 s] [APPLY {name}(…)]",
        )

    def _built_in(self, part: s.Call, name: str) -> Expr | None:
        if (clock := clock_of(part)) is not None:
            return self._column(clock)
        if name in SQL_AGGREGATES:
            return self._aggregate(part, AGGREGATE_SYNONYMS.get(name, name))
        return self._function(part, name) if name in SQL_FUNCTIONS else None

    def _function(self, part: s.Call, name: str) -> Expr:
        if part.distinct:
            raise self.context.error(part, "DISTINCT is for aggregates", given=to_sql(part))
        if name in ("nullif", "if"):
            return self._conditional(part, name)
        if name in ("hash", "uniform"):
            return self._hashed(part, name)
        if name in ("row", "struct_pack"):
            return made_struct(self, part, name)
        if name in EXPANDED:
            return self._expanded(part, EXPANDED[name])
        arguments = tuple(self._bind(argument) for argument in part.arguments)
        if name == "round" and len(arguments) == 1:
            arguments = (*arguments, lit(0))
        if name in ("substring", "substr") and len(arguments) == 2:
            arguments = (*arguments, lit(_WHOLE))
        if name == "position" and len(arguments) == 2:
            self._check_position(part, arguments)
            arguments = arguments[::-1]  # standard SQL names first what is looked for; strpos and instr name it last
        if name == "date_trunc" and isinstance(next(iter(part.arguments), None), s.Text):
            arguments = arguments[::-1]  # most dialects name the unit first
        return engine.Call(SYNONYMS.get(name, name), arguments)

    def _expanded(self, part: s.Call, function: Expanded) -> Expr:
        if not function.least <= len(part.arguments) <= function.most:
            raise self.context.error(
                part, f"{part.name[0].text} takes other arguments", given=to_sql(part), allowed=function.form
            )
        arguments: list[Any] = [
            constant(self.context, one) if place in function.plain else self._bind(one)
            for place, one in enumerate(part.arguments)
        ]
        try:
            return function.build(*arguments)
        except HeadraceError:
            raise
        except (TypeError, AttributeError):
            raise self.context.error(
                part, "these are not the arguments", given=to_sql(part), allowed=function.form
            ) from None

    def _check_position(self, part: s.Call, arguments: tuple[Expr, ...]) -> None:
        """Refuse `position(column, 'b')`, which is written the other way round."""
        sought, text = arguments
        if sought.columns() and not text.columns():
            raise self.context.error(
                part,
                "position takes what is looked for first",
                given=to_sql(part),
                allowed="position('b', column), strpos(column, 'b')",
                instead=to_sql(replace(part, arguments=part.arguments[::-1])),
            )

    def _conditional(self, part: s.Call, name: str) -> Expr:
        arguments = [self._bind(argument) for argument in part.arguments]
        if name == "nullif" and len(arguments) == 2:
            return arguments[0].nullif(arguments[1])
        if name == "if" and len(arguments) in (2, 3):
            return engine.Case(((arguments[0], arguments[1]),), arguments[2] if len(arguments) == 3 else lit(None))
        allowed = "nullif(value, other)" if name == "nullif" else "if(condition, value, otherwise)"
        raise self.context.error(part, f"{name} takes other arguments", given=to_sql(part), allowed=allowed)

    def _hashed(self, part: s.Call, name: str) -> Expr:
        arguments = [self._bind(argument) for argument in part.arguments]
        seed = constant(self.context, part.arguments[1]) if len(arguments) == 2 else 0
        if len(arguments) not in (1, 2) or not isinstance(seed, int) or not arguments[0].type(self.schema).is_integer:
            raise self.context.error(
                part,
                f"{name} is of a whole number, with a seed if it is to be another {name}",
                given=to_sql(part),
                allowed=f"{name}(number), {name}(number, 7)",
                instead=f"{name}(CAST(value AS LONG))",
            )
        return hashed(arguments[0], seed) if name == "hash" else uniform(arguments[0], seed)

    def _aggregate(self, part: s.Call, name: str) -> Expr:
        self._refuse_unless_aggregates(part, name)
        if part.named:
            raise self.context.error(part.named[0], f"{name} has no named parameters", given=to_sql(part))
        if len(part.arguments) == 1 and isinstance(part.arguments[0], s.Star):
            if name != "count" or part.distinct:
                raise self.context.error(part, f"{name} needs a column", given=to_sql(part), allowed="count(*)")
            return AggregateCall("count")
        if part.distinct:
            if name not in ("count", "min", "max"):
                raise self.context.error(
                    part, f"{name}(DISTINCT …) does not exist", given=to_sql(part), allowed="count(DISTINCT column)"
                )
            name = "distinct_count" if name == "count" else name
        parameters = len(AGGREGATES[name].parameters)
        if len(part.arguments) != 1 + parameters:
            raise self.context.error(
                part,
                f"{part.name[0].text} takes {1 + parameters} argument{'s' if parameters else ''}",
                given=to_sql(part),
                instead=f"{part.name[0].text}(column{', value' * parameters})",
            )
        constants = tuple(constant(self.context, one) for one in part.arguments[1:])
        below = replace(self, aggregates=True)
        return AggregateCall(name, below.bind(part.arguments[0]), constants)

    def _refuse_unless_aggregates(self, part: s.Call, name: str) -> None:
        if not self.aggregates:
            raise self.context.error(
                part,
                f"{name} is about many events, and this place looks at one",
                given=to_sql(part),
                allowed="aggregates in SELECT and HAVING",
                instead="HAVING, or a sub-select that aggregates first",
            )

    _bindings: ClassVar[Mapping[type[s.Part], Callable[[Expressions, Any], Expr]]] = {
        s.Column: _column,
        s.Number: _literal,
        s.Text: _literal,
        s.Value: _literal,
        s.DateTime: _datetime,
        s.TypedText: _typed_text,
        s.Duration: _duration,
        s.Unary: _unary,
        s.Binary: _binary,
        s.Between: _between,
        s.In: _in,
        s.IsNull: _is_null,
        s.IsDistinct: _is_distinct,
        s.IsJson: _is_json,
        s.Element: _element,
        s.Field: lambda self, part: field_of(self, self._bind(part.value), part.name),
        s.Like: _like,
        s.Case: _case,
        s.Cast: _cast,
        s.Call: _call,
    }


def _negated(expr: Expr, negated: bool) -> Expr:
    return engine.Call("not", (expr,)) if negated else expr
