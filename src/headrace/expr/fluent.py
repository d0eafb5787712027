"""The fluent interface of expressions: operators and methods on a column.

Every operator and method here builds one call of the function of the same name in `signatures`, or a small combination
of such calls; nothing is computed. A Python value among the arguments means a literal, so `col("a") == "b"` compares a
column with a text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NoReturn

from headrace.elsewhere import EXPRESSION
from headrace.errors import ExpressionError, UnknownMethod
from headrace.expr.json_path import json_path

if TYPE_CHECKING:
    from headrace.expr.nodes import Expr, Value
    from headrace.schema import Type

__all__ = ["Fluent"]

_WHOLE = 2**30  # longer than any text


class Fluent:
    """Operators and methods that build expressions."""

    def _call(self, function: str, *args: Value) -> Expr:
        raise NotImplementedError

    def __add__(self, other: Value) -> Expr:
        return self._call("add", other)

    def __radd__(self, other: Value) -> Expr:
        return self._swapped("add", other)

    def __sub__(self, other: Value) -> Expr:
        return self._call("subtract", other)

    def __rsub__(self, other: Value) -> Expr:
        return self._swapped("subtract", other)

    def __mul__(self, other: Value) -> Expr:
        return self._call("multiply", other)

    def __rmul__(self, other: Value) -> Expr:
        return self._swapped("multiply", other)

    def __truediv__(self, other: Value) -> Expr:
        return self._call("divide", other)

    def __rtruediv__(self, other: Value) -> Expr:
        return self._swapped("divide", other)

    def __floordiv__(self, other: Value) -> Expr:
        return self._call("floor_divide", other)

    def __rfloordiv__(self, other: Value) -> Expr:
        return self._swapped("floor_divide", other)

    def __mod__(self, other: Value) -> Expr:
        return self._call("modulo", other)

    def __rmod__(self, other: Value) -> Expr:
        return self._swapped("modulo", other)

    def __neg__(self) -> Expr:
        return self._call("negate")

    def __eq__(self, other: Value) -> Expr:  # type: ignore[override]
        return self._call("eq", other)

    def __ne__(self, other: Value) -> Expr:  # type: ignore[override]
        return self._call("ne", other)

    def __lt__(self, other: Value) -> Expr:
        return self._call("lt", other)

    def __le__(self, other: Value) -> Expr:
        return self._call("le", other)

    def __gt__(self, other: Value) -> Expr:
        return self._call("gt", other)

    def __ge__(self, other: Value) -> Expr:
        return self._call("ge", other)

    def __and__(self, other: Value) -> Expr:
        return self._call("and", other)

    def __rand__(self, other: Value) -> Expr:
        return self._swapped("and", other)

    def __or__(self, other: Value) -> Expr:
        return self._call("or", other)

    def __ror__(self, other: Value) -> Expr:
        return self._swapped("or", other)

    def __invert__(self) -> Expr:
        return self._call("not")

    def __hash__(self) -> int:
        return hash(str(self))

    def __bool__(self) -> NoReturn:
        raise ExpressionError(
            "an expression has no truth value: it has a value in every row",
            given=str(self),
            allowed="& for and, | for or, ~ for not, .isin() for in; a.same(b) asks if two expressions are the same",
            instead="(col('a') > 1) & (col('b') < 2)",
        )

    def __iter__(self) -> NoReturn:
        raise ExpressionError("an expression cannot be looped over", given=str(self))

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # copy, pickle and inspection look these up and expect an AttributeError
            raise AttributeError(name)
        further = ("alias", "cast", "is_distinct_from", "is_not_distinct_from", "nullif")
        known = sorted([*(method for method in vars(Fluent) if method[0] != "_"), *further])
        raise UnknownMethod.of(name, str(self), known, EXPRESSION)

    def _swapped(self, function: str, other: Value) -> Expr:
        raise NotImplementedError

    # Nulls and membership.

    def is_null(self) -> Expr:
        return self._call("is_null")

    def is_not_null(self) -> Expr:
        return self._call("is_not_null")

    def is_true(self) -> Expr:
        """True where this is; false where it is false or NULL."""
        return (self & True).coalesce(False)

    def is_false(self) -> Expr:
        """True where this is false; false where it is true or NULL."""
        return (~self).coalesce(False)

    def is_unknown(self) -> Expr:
        """True where this condition is NULL."""
        return (self & True).is_null()

    def between(self, low: Value, high: Value) -> Expr:
        """True from `low` to `high`, both included."""
        return (self >= low) & (self <= high)

    def isin(self, *values: Value | list[Value] | tuple[Value, ...] | set[Value] | frozenset[Value]) -> Expr:
        """True for any of `values`, passed as arguments or as one list; an empty list has no members."""
        flat: list[Value] = []
        for value in values:
            if isinstance(value, (list, tuple)):
                flat.extend(value)
            elif isinstance(value, (set, frozenset)):
                flat.extend(sorted(value, key=repr))  # equal sets must give equal expressions
            else:
                flat.append(value)
        return self._call("isin", *flat)

    def coalesce(self, *others: Value) -> Expr:
        """The first of this and `others` that is not NULL."""
        return self._call("coalesce", *others)

    # Text. Positions and lengths count characters (code points), from 1 as in SQL.

    def like(self, pattern: Value) -> Expr:
        """SQL's LIKE on the entire text: `%` matches any run, `_` any one character; a backslash escapes either."""
        return self._call("like", pattern)

    def ilike(self, pattern: str) -> Expr:
        """LIKE without regard to upper and lower case."""
        return self.lower().like(pattern.lower())

    def rlike(self, pattern: Value) -> Expr:
        """True if the regular expression is found anywhere in the text."""
        return self._call("rlike", pattern)

    def upper(self) -> Expr:
        return self._call("upper")

    def lower(self) -> Expr:
        return self._call("lower")

    def trim(self) -> Expr:
        """Without leading and trailing spaces."""
        return self._call("trim")

    def ltrim(self) -> Expr:
        return self._call("ltrim")

    def rtrim(self) -> Expr:
        return self._call("rtrim")

    def length(self) -> Expr:
        return self._call("length")

    def substring(self, start: int, length: int = _WHOLE) -> Expr:
        """`length` characters from position `start` (the first is 1), or all that follow."""
        return self._call("substring", start, length)

    def concat(self, *others: Value) -> Expr:
        """The text followed by `others`; NULL if any is."""
        return self._call("concat", *others)

    def replace(self, search: str, replacement: str) -> Expr:
        return self._call("replace", search, replacement)

    def position(self, text: str) -> Expr:
        """The position of the first occurrence of a text, counted from 1; 0 if there is none."""
        return self._call("position", text)

    def split_part(self, separator: str, part: int) -> Expr:
        """The part with this number between separators, counted from 1; empty if there are fewer."""
        return self._call("split_part", separator, part)

    def code(self) -> Expr:
        """The number of the first character in Unicode; NULL of an empty text."""
        return self._call("code")

    def reverse(self) -> Expr:
        """The characters from the last to the first."""
        return self._call("reverse")

    def repeat(self, times: int) -> Expr:
        return self._call("repeat", times)

    def left(self, length: int) -> Expr:
        """The first so many characters."""
        return self._call("left", length)

    def right(self, length: int) -> Expr:
        """The last so many characters."""
        return self._call("right", length)

    def lpad(self, width: int, fill: str = " ") -> Expr:
        """Padded at the front to a width; longer texts are cut at their end."""
        return self._call("lpad", width, fill)

    def rpad(self, width: int, fill: str = " ") -> Expr:
        """Padded at the end to a width; longer texts are cut there."""
        return self._call("rpad", width, fill)

    def starts_with(self, text: str) -> Expr:
        return self._call("starts_with", text)

    def ends_with(self, text: str) -> Expr:
        return self._call("ends_with", text)

    def contains(self, text: str) -> Expr:
        return self._call("contains", text)

    # JSON in a text. A path is `$.order.items[0]`; what is no JSON has no values.

    def json_get(self, *steps: str | int) -> Expr:
        """The JSON text of a value: of a key of an object, of a place in an array (from 0), or of several steps."""
        return self._call("json_get", json_path(*steps))

    def json_text(self, *steps: str | int) -> Expr:
        """As `json_get`, with texts without their quotes, and NULL for `null`."""
        return self._call("json_text", json_path(*steps))

    def json_value(self, path: str, returning: Type | str | None = None) -> Expr:
        """The text, number or truth value at the end of a path, as text or as the type `returning`; else NULL."""
        found = self._call("json_value", path)
        return found if returning is None else found.cast(returning)

    def json_query(self, path: str) -> Expr:
        """The JSON text of the object or array at the end of a path; else NULL."""
        return self._call("json_query", path)

    def json_exists(self, path: str) -> Expr:
        """True if the path leads to a value, `null` included."""
        return self._call("json_exists", path)

    def json_array_length(self) -> Expr:
        """The number of elements of a JSON array; NULL of anything else."""
        return self._call("json_array_length")

    def is_json(self, kind: Literal["value", "object", "array", "scalar"] = "value") -> Expr:
        """True if the text is JSON, of that kind."""
        return self._call("is_json", kind)

    # Lists. Elements are counted from 1, as in SQL.

    def element_at(self, place: Value) -> Expr:
        """The element of a list at a place, the first at 1; NULL where there is none."""
        return self._call("element_at", place)

    def cardinality(self) -> Expr:
        """The number of elements of a list."""
        return self._call("cardinality")

    def array_contains(self, value: Value) -> Expr:
        """True if an element of the list equals the value; NULL if only a NULL element might."""
        return self._call("array_contains", value)

    # Structs.

    def field(self, name: str) -> Expr:
        """The value of a field of a struct."""
        return self._call("field", name)

    # Numbers. Outside its domain a function returns NULL.

    def abs(self) -> Expr:
        return self._call("abs")

    def round(self, digits: int = 0) -> Expr:
        """Rounded to `digits` decimals, halves away from zero."""
        return self._call("round", digits)

    def floor(self) -> Expr:
        return self._call("floor")

    def ceil(self) -> Expr:
        return self._call("ceil")

    def sqrt(self) -> Expr:
        return self._call("sqrt")

    def exp(self) -> Expr:
        return self._call("exp")

    def ln(self) -> Expr:
        return self._call("ln")

    def log10(self) -> Expr:
        return self._call("log10")

    def power(self, exponent: Value) -> Expr:
        return self._call("power", exponent)

    def sign(self) -> Expr:
        """-1.0, 0.0 or 1.0."""
        return self._call("sign")

    def sin(self) -> Expr:
        return self._call("sin")

    def cos(self) -> Expr:
        return self._call("cos")

    def tan(self) -> Expr:
        return self._call("tan")

    def asin(self) -> Expr:
        return self._call("asin")

    def acos(self) -> Expr:
        return self._call("acos")

    def atan(self) -> Expr:
        return self._call("atan")

    def radians(self) -> Expr:
        """Degrees as radians."""
        return self._call("radians")

    def degrees(self) -> Expr:
        """Radians as degrees."""
        return self._call("degrees")

    # Bits of whole numbers; `&`, `|` and `~` are logic.

    def bit_and(self, other: Value) -> Expr:
        return self._call("bit_and", other)

    def bit_or(self, other: Value) -> Expr:
        return self._call("bit_or", other)

    def bit_xor(self, other: Value) -> Expr:
        return self._call("bit_xor", other)

    def bit_not(self) -> Expr:
        return self._call("bit_not")

    def shift_left(self, places: Value) -> Expr:
        """Bits shifted up; NULL for a negative number of places, or for more than the type has."""
        return self._call("shift_left", places)

    def shift_right(self, places: Value) -> Expr:
        """Bits shifted down, keeping the sign; NULL for a negative number of places, or for more than the type has."""
        return self._call("shift_right", places)

    # Dates, in UTC. `-` gives the time between two, `+` and `-` of a timedelta move one.

    def year(self) -> Expr:
        return self._call("year")

    def month(self) -> Expr:
        return self._call("month")

    def day(self) -> Expr:
        return self._call("day")

    def hour(self) -> Expr:
        return self._call("hour")

    def minute(self) -> Expr:
        return self._call("minute")

    def second(self) -> Expr:
        return self._call("second")

    def day_of_week(self) -> Expr:
        """1 for Monday to 7 for Sunday."""
        return self._call("day_of_week")

    def day_of_year(self) -> Expr:
        """1 for the first of January."""
        return self._call("day_of_year")

    def epoch(self) -> Expr:
        """Whole seconds since 1970, rounded down."""
        return self._call("epoch")

    def date_trunc(self, unit: Value) -> Expr:
        """The start of the year, quarter, month, week, day, hour, minute or second; weeks start on Monday."""
        return self._call("date_trunc", unit.lower() if isinstance(unit, str) else unit)
