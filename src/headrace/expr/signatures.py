"""Signatures: the functions of the language, their arguments and results.

This table is the allow-list of the expression language: a call of anything else cannot be built. A *rule* takes the
types of the arguments (None for a bare NULL, which fits anywhere) and returns the widened type of each argument and
the type of the result. Widening follows BYTE < SHORT < INT < LONG < FLOAT < DOUBLE. A *constant* is an argument
that must be a literal, because no engine could check it row by row (a pattern, a unit, a number of digits).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.errors import ExpressionError, nearest
from headrace.expr.decimals import common_decimal, product_type, rounded_type, sum_type
from headrace.expr.json_path import json_steps
from headrace.expr.patterns import check_like, check_regex
from headrace.schema import Type
from headrace.types import split_columns

__all__ = [
    "FUNCTIONS",
    "JSON_KINDS",
    "REGISTERED",
    "UNITS",
    "Function",
    "Signature",
    "castable",
    "common",
    "lookup",
    "no_cast",
    "struct_names",
    "widens",
]

Types = Sequence[Type | None]
WIDTH = (Type.BYTE, Type.SHORT, Type.INT, Type.LONG, Type.FLOAT, Type.DOUBLE)
UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
DIGITS = 15
#: The most decimals of a DECIMAL that a FLOAT or DOUBLE can be cast to.
FLOAT_SCALE = 18
JSON_KINDS = ("value", "object", "array", "scalar")
#: Functions that SQL engines compute in other ways: a history registers functions of ours.
REGISTERED = frozenset(
    ("json_get", "json_text", "json_value", "json_query", "json_exists", "json_array_length", "is_json")
)


@dataclass(frozen=True)
class Signature:
    """The types a call widens its arguments to, and the type of its result."""

    operands: tuple[Type, ...]
    result: Type


Rule = Callable[[object, Types], Signature]
Constant = Callable[[object], None]


@dataclass(frozen=True)
class Function:
    """A function of the language: how many arguments, which of them constant, and its rule."""

    name: str
    rule: Rule
    least: int = 1
    most: int | None = 1
    constants: Mapping[int, Constant] = field(default_factory=dict)

    def check_count(self, count: int) -> None:
        """Refuse a call with so many arguments, unless it may have them."""
        if count < self.least or (self.most is not None and count > self.most):
            most = "or more" if self.most is None else f"to {self.most}"
            raise ExpressionError(
                f"{self.name} does not take {count} arguments", given=count, allowed=f"{self.least} {most}"
            )


def struct_names(text: str) -> tuple[str, ...]:
    """The names of fields in a text: `a, "b c"`."""
    parts = (part.strip() for part in split_columns(text))
    return tuple(part[1:-1].replace('""', '"') if part.startswith('"') else part for part in parts)


def common(text: object, types: Types) -> Type | None:
    """The type that all of `types` widen to; None if all are bare NULLs."""
    known = [t for t in types if t is not None]
    if not known:
        return None
    if any(t.is_struct for t in known):
        if len(set(known)) == 1:
            return known[0]
        raise _misfit(text, types, "structs of one type", "CAST(s AS ROW(a INT, b STRING))")
    if any(t.is_array for t in known):
        instead = "a function of your own, which may take lists: @hr.udf"
        raise _misfit(text, types, "single values; a list is passed on as it is", instead)
    if all(t.is_numeric for t in known):
        return _widest(known)
    if all(t.is_text for t in known):
        return known[0] if len(set(known)) == 1 else Type.STRING
    if len(set(known)) == 1:
        return known[0]
    if set(known) == {Type.DATE, Type.DATETIME}:
        return Type.DATETIME
    allowed = "numbers with numbers, text with text, BOOLEAN with BOOLEAN, DATE and DATETIME with one another"
    if Type.INTERVAL in known:
        raise _misfit(text, types, f"{allowed}, INTERVAL with INTERVAL", "INTERVAL '10' SECOND; a number has no unit")
    raise _misfit(text, types, allowed)


def _widest(known: Sequence[Type]) -> Type:
    if not any(t.is_decimal for t in known):
        return max(known, key=WIDTH.index)
    return Type.DOUBLE if any(t.is_floating for t in known) else common_decimal(known)


def widens(source: Type, target: Type) -> bool:
    """Whether every number of `source` is also one of `target`, exactly."""
    if source.is_decimal or target.is_decimal:
        return not source.is_floating and target.is_decimal and common_decimal((source, target)) is target
    if source.is_integer and target.is_floating:
        return source in (Type.BYTE, Type.SHORT) or (source, target) == (Type.INT, Type.DOUBLE)
    return source.is_numeric and target.is_numeric and WIDTH.index(source) <= WIDTH.index(target)


def no_cast(text: object, source: Type, target: Type) -> ExpressionError:
    """The error of a cast that `castable` refuses."""
    return ExpressionError(
        f"{text} turns {source.value} into {target.value}, which has no one meaning on every engine",
        given=f"{source.value} to {target.value}",
        allowed="numbers, BOOLEAN and text to one another, LONG and DATE to DATETIME and back, LONG to TIME and "
        "INTERVAL and back, DATETIME to TIME, times to text; "
        "not FLOAT or DOUBLE into text, whose digits differ from engine to engine",
        instead=f"(...).cast('LONG').cast('{target.value}')",
    )


_SPANS = (Type.TIME, Type.INTERVAL)
_TICK_CASTS = (
    (Type.TIME, Type.LONG), (Type.INTERVAL, Type.LONG), (Type.DATETIME, Type.TIME), (Type.TIME, Type.INTERVAL),
)  # fmt: skip


def castable(source: Type, target: Type) -> bool:
    """Whether values of `source` can be turned into `target` the same way everywhere."""
    if source == target or (source.is_text and target.is_text):
        return True
    if source.is_struct and target.is_struct and len(source.fields) == len(target.fields):
        return all(castable(a, b) for (_, a), (_, b) in zip(source.fields, target.fields, strict=True))
    if source.is_nested or target.is_nested:
        return False
    if source.is_text:
        return True
    if target.is_text:
        return not source.is_floating
    if Type.TIME in (source, target) or Type.INTERVAL in (source, target):
        return (source, target) in _TICK_CASTS or (source.is_integer and target in _SPANS)
    if Type.DATE in (source, target):
        return Type.DATETIME in (source, target)
    if Type.DATETIME in (source, target):
        return (source, target) == (Type.DATETIME, Type.LONG) or source.is_integer
    return not (source.is_floating and target.is_decimal) or target.scale <= FLOAT_SCALE


def _misfit(text: object, types: Types, allowed: str, instead: str = "") -> ExpressionError:
    given = ", ".join("NULL" if t is None else t.value for t in types)
    hint = instead or "cast one side, for instance .cast('DOUBLE')"
    return ExpressionError(f"{text} cannot take {given}", given=given, allowed=allowed, instead=hint)


def _numbers(text: object, types: Types) -> Type:
    if any(t is not None and not t.is_numeric for t in types):
        hint = ""
        if Type.DATETIME in types:
            hint = "dates are moved by timedelta(...), and subtracted from one another"
        elif any(t is not None and t.is_text for t in types) and getattr(text, "function", "") == "add":
            hint = "col('a').concat('b') for texts, or (...).cast('DOUBLE') for numbers in a text"
        raise _misfit(text, types, "numbers", hint)
    return common(text, types) or Type.INT


def _at_least_int(type: Type) -> Type:
    return type if type.is_decimal else max(type, Type.INT, key=WIDTH.index)


def _arithmetic(text: object, types: Types) -> Signature:
    wide = _at_least_int(_numbers(text, types))
    if wide.is_decimal and len(types) == 2:
        return _of_decimals(text, [wide if t is None else t for t in types])
    return Signature((wide,) * len(types), wide)


def _of_decimals(text: object, types: Sequence[Type]) -> Signature:
    function, (a, b) = getattr(text, "function", ""), types
    if function in ("add", "subtract"):
        wide = sum_type(a, b)
        return Signature((wide, wide), wide)
    if function == "multiply":
        return Signature((common_decimal((a,)), common_decimal((b,))), product_type(text, a, b))
    raise _misfit(text, types, "whole numbers, FLOAT and DOUBLE", "cast first: .cast('DOUBLE')")


def _bits(text: object, types: Types) -> Signature:
    if any(t is not None and not t.is_integer for t in types):
        raise _misfit(text, types, "BYTE, SHORT, INT, LONG", "cast first: .cast('LONG')")
    return _arithmetic(text, types)


def _real(text: object, types: Types) -> Signature:
    _numbers(text, types)
    return Signature((Type.DOUBLE,) * len(types), Type.DOUBLE)


def _floor_division(text: object, types: Types) -> Signature:
    return _real(text, types) if _numbers(text, types).is_floating else _arithmetic(text, types)


def _rounding(text: object, types: Types) -> Signature:
    wide = _numbers(text, types[:1])
    if wide.is_decimal:
        digits = vars(text)["args"][1].value if len(types) > 1 else 0  # a constant, which is checked
        return Signature((wide, *(Type.INT for _ in types[1:])), rounded_type(wide, digits))
    result = Type.DOUBLE if wide.is_floating else wide
    return Signature((result, *(Type.INT for _ in types[1:])), result)


def _order(text: object, types: Types) -> Signature:
    if any(t is not None and t.is_struct for t in types):
        raise _misfit(text, types, "single values; structs are equal or not", "compare a field: s.a < 5")
    return _comparison(text, types) if len(types) == 2 and _compares(text) else _choice(text, types)


def _compares(text: object) -> bool:
    return getattr(text, "function", "") in ("lt", "le", "gt", "ge")


def _comparison(text: object, types: Types) -> Signature:
    wide = common(text, types) or Type.BOOLEAN
    return Signature((wide,) * len(types), Type.BOOLEAN)


def _choice(text: object, types: Types) -> Signature:
    wide = common(text, types) or Type.STRING
    return Signature((wide,) * len(types), wide)


def _logic(text: object, types: Types) -> Signature:
    if any(t not in (None, Type.BOOLEAN) for t in types):
        raise _misfit(text, types, "BOOLEAN", "compare first, for instance (col('a') > 0) & (col('b') > 0)")
    return Signature((Type.BOOLEAN,) * len(types), Type.BOOLEAN)


def _null_test(text: object, types: Types) -> Signature:  # noqa: ARG001 - every rule has the same shape
    return Signature((types[0] or Type.STRING,), Type.BOOLEAN)


def _text(result: Type, *constants: Type) -> Rule:
    def rule(text: object, types: Types) -> Signature:
        subjects = types[: len(types) - len(constants)] if constants else types
        if any(t is not None and not t.is_text for t in subjects):
            raise _misfit(text, subjects, "STRING or CHAR", "cast first: .cast('STRING')")
        return Signature((Type.STRING,) * len(subjects) + constants, result)

    return rule


def _date(result: Type, *constants: Type) -> Rule:
    def rule(text: object, types: Types) -> Signature:
        if types[0] not in (None, Type.DATETIME, Type.DATE):
            raise _misfit(text, types[:1], "DATE, DATETIME", "cast first: .cast('DATETIME')")
        return Signature((Type.DATETIME, *constants), result)

    return rule


def _shifted_time(text: object, types: Types) -> Signature:
    _date(Type.DATETIME)(text, types[:1])
    if types[1] is not None and not types[1].is_integer:
        raise _misfit(text, types[1:], "a whole number of ticks (microseconds)", "cast it: .cast('LONG')")
    return Signature((Type.DATETIME, Type.LONG), Type.DATETIME)


def _shifted_days(text: object, types: Types) -> Signature:
    if types[0] not in (None, Type.DATE) or (types[1] is not None and not types[1].is_integer):
        raise _misfit(text, types, "a DATE and a whole number of days", "cast it: .cast('INT')")
    return Signature((Type.DATE, Type.LONG), Type.DATE)


def _shifted_months(text: object, types: Types) -> Signature:
    kind = Type.DATE if types[0] is Type.DATE else Type.DATETIME
    _date(kind)(text, types[:1])
    return Signature((kind, Type.INT), kind)


def _days_between(text: object, types: Types) -> Signature:
    if any(t not in (None, Type.DATE) for t in types):
        raise _misfit(text, types, "DATE", "cast first: .cast('DATE')")
    return Signature((Type.DATE,) * len(types), Type.INT)


def _times(text: object, types: Types) -> Signature:
    for place in range(len(types)):
        _date(Type.LONG)(text, types[place : place + 1])
    return Signature((Type.DATETIME,) * len(types), Type.LONG)


def _array(text: object, types: Types) -> Signature:
    known = {t for t in types if t is not None}
    same = next(iter(known)) if len(known) == 1 else None
    wide = same or common(text, types) or Type.STRING
    return Signature((wide,) * len(types), wide.array)


def _listed(text: object, types: Types) -> Type:
    """The type of a list."""
    if types[0] is not None and not types[0].is_array:
        raise _misfit(text, types[:1], "a list, ARRAY<type>", "hr.array(...), or ARRAY[1, 2] in SQL")
    return types[0] or Type.STRING.array


def _cardinality(text: object, types: Types) -> Signature:
    return Signature((_listed(text, types),), Type.INT)


def _element(text: object, types: Types) -> Signature:
    given = _listed(text, types)
    if types[1] is not None and not types[1].is_integer:
        raise _misfit(text, types[1:], "a whole number, 1 for the first element", "cast it: .cast('INT')")
    return Signature((given, Type.LONG), given.element)


def _contained(text: object, types: Types) -> Signature:
    given = _listed(text, types)
    if types[1] is not None and common(text, (given.element, types[1])) is not given.element:
        raise _misfit(text, types[1:], given.element.value, f"cast it: .cast('{given.element.value}')")
    return Signature((given, given.element), Type.BOOLEAN)


def _struct(text: object, types: Types) -> Signature:
    kinds = tuple(t or Type.STRING for t in types[:-1])
    names = struct_names(vars(text)["args"][-1].value)  # a constant, which is checked
    if len(names) != len(kinds):
        raise ExpressionError("a struct has a name for every value", given=len(kinds), allowed=", ".join(names))
    return Signature((*kinds, Type.STRING), Type.STRUCT(zip(names, kinds, strict=True)))


def _field(text: object, types: Types) -> Signature:
    if types[0] is not None and not types[0].is_struct:
        raise _misfit(text, types[:1], "a struct, STRUCT<name type, …>", "hr.struct(a=...), or {'a': 1} in SQL")
    fields = dict(types[0].fields) if types[0] is not None else {}
    name = vars(text)["args"][1].value
    if name not in fields and fields:
        close = nearest(name, fields)
        raise ExpressionError(
            f"the struct has no field {name!r}", given=name, allowed=", ".join(fields), instead=close or ""
        )
    return Signature((types[0] or Type.STRING, Type.STRING), fields.get(name, Type.STRING))


def _words(value: object) -> None:
    if not isinstance(value, str):
        raise ExpressionError("this argument must be a plain text", given=value, allowed="a str, equal in every row")


def _some_words(value: object) -> None:
    _words(value)
    if not value:
        raise ExpressionError("the text to look for must not be empty", given=value, allowed="at least one character")


def _one_character(value: object) -> None:
    _words(value)
    if len(str(value)) != 1:
        raise ExpressionError("a text is padded with one character", given=value, allowed="one", instead="' '")


def _like(value: object) -> None:
    _words(value)
    check_like(str(value))


def _regex(value: object) -> None:
    _words(value)
    check_regex(str(value))


def _json_path(value: object) -> None:
    _words(value)
    json_steps(str(value))


def _json_kind(value: object) -> None:
    if value not in JSON_KINDS:
        raise ExpressionError("unknown kind of JSON", given=value, allowed=", ".join(JSON_KINDS), instead="'value'")


def _unit(value: object) -> None:
    if value not in UNITS:
        close = nearest(str(value), UNITS)
        raise ExpressionError("unknown unit", given=value, allowed=", ".join(UNITS), instead=repr(close or "day"))


def _between(low: int, high: int) -> Constant:
    def check(value: object) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ExpressionError("this argument must be a plain whole number", given=value, allowed=f"{low} to {high}")

    return check


_MOST = 2**30  # a start and a length of this size still add up in 32 bits
_LONGEST = 10_000  # the most repetitions, and the greatest width, of a text
_MOST_MONTHS = 12 * 10_000
_TEST = _text(Type.BOOLEAN, Type.STRING)
_JSON_TEXTS = ("json_get", "json_text", "json_value", "json_query")
_TABLE = (
    *(Function(name, _arithmetic, 2, 2) for name in ("add", "subtract", "multiply", "modulo")),
    Function("divide", _real, 2, 2),
    Function("floor_divide", _floor_division, 2, 2),
    *(Function(name, _bits, 2, 2) for name in ("bit_and", "bit_or", "bit_xor", "shift_left", "shift_right")),
    Function("bit_not", _bits),
    *(Function(name, _arithmetic) for name in ("negate", "abs")),
    *(Function(name, _comparison, 2, 2) for name in ("eq", "ne")),
    *(Function(name, _order, 2, 2) for name in ("lt", "le", "gt", "ge")),
    Function("isin", _comparison, 1, None),
    *(Function(name, _logic, 2, 2) for name in ("and", "or")),
    Function("not", _logic),
    *(Function(name, _null_test) for name in ("is_null", "is_not_null")),
    Function("coalesce", _choice, 1, None),
    *(Function(name, _order, 1, None) for name in ("greatest", "least")),
    *(Function(name, _real) for name in ("sqrt", "exp", "ln", "log10", "sign", "sin", "cos", "tan")),
    *(Function(name, _real) for name in ("asin", "acos", "atan", "radians", "degrees")),
    Function("power", _real, 2, 2),
    *(Function(name, _rounding) for name in ("floor", "ceil")),
    Function("round", _rounding, 2, 2, {1: _between(0, DIGITS)}),
    *(Function(name, _text(Type.STRING)) for name in ("upper", "lower", "trim", "ltrim", "rtrim", "reverse")),
    *(Function(name, _text(Type.INT)) for name in ("length", "code")),
    Function("concat", _text(Type.STRING), 1, None),
    Function("substring", _text(Type.STRING, Type.INT, Type.INT), 3, 3, {1: _between(1, _MOST), 2: _between(0, _MOST)}),
    Function("replace", _text(Type.STRING, Type.STRING, Type.STRING), 3, 3, {1: _some_words, 2: _words}),
    Function("position", _text(Type.INT, Type.STRING), 2, 2, {1: _some_words}),
    Function("split_part", _text(Type.STRING, Type.STRING, Type.INT), 3, 3, {1: _some_words, 2: _between(1, _LONGEST)}),
    Function("repeat", _text(Type.STRING, Type.INT), 2, 2, {1: _between(0, _LONGEST)}),
    *(Function(name, _text(Type.STRING, Type.INT), 2, 2, {1: _between(0, _MOST)}) for name in ("left", "right")),
    *(
        Function(n, _text(Type.STRING, Type.INT, Type.STRING), 3, 3, {1: _between(0, _LONGEST), 2: _one_character})
        for n in ("lpad", "rpad")
    ),
    *(Function(name, _TEST, 2, 2, {1: _words}) for name in ("starts_with", "ends_with", "contains")),
    Function("like", _TEST, 2, 2, {1: _like}),
    *(Function(name, _text(Type.STRING, Type.STRING), 2, 2, {1: _json_path}) for name in _JSON_TEXTS),
    Function("json_exists", _TEST, 2, 2, {1: _json_path}),
    Function("json_array_length", _text(Type.INT)),
    Function("is_json", _TEST, 2, 2, {1: _json_kind}),
    Function("rlike", _TEST, 2, 2, {1: _regex}),
    *(Function(n, _date(Type.INT)) for n in ("year", "month", "day", "hour", "minute", "second", "day_of_week")),
    Function("day_of_year", _date(Type.INT)),
    Function("array", _array, 1, None),
    Function("struct", _struct, 2, None, {-1: _some_words}),
    Function("field", _field, 2, 2, {1: _words}),
    Function("cardinality", _cardinality),
    Function("element_at", _element, 2, 2),
    Function("array_contains", _contained, 2, 2),
    Function("epoch", _times),
    Function("time_diff", _times, 2, 2),
    Function("shift_time", _shifted_time, 2, 2),
    Function("shift_date", _shifted_days, 2, 2),
    Function("shift_months", _shifted_months, 2, 2, {1: _between(-_MOST_MONTHS, _MOST_MONTHS)}),
    Function("days_between", _days_between, 2, 2),
    Function("date_trunc", _date(Type.DATETIME, Type.STRING), 2, 2, {1: _unit}),
)
FUNCTIONS: Mapping[str, Function] = {function.name: function for function in _TABLE}


def lookup(name: str) -> Function:
    """The function of that name; the error for an unknown one names the nearest."""
    if name not in FUNCTIONS:
        close = nearest(name, FUNCTIONS)
        raise ExpressionError(
            f"there is no function {name!r}", given=name, allowed=", ".join(sorted(FUNCTIONS)), instead=close or ""
        )
    return FUNCTIONS[name]
