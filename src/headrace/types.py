"""The types of columns: scalars, decimals of a precision and a scale, lists and structs.

A type is a value. Two types of the same name are the same object, also when they come from another process, so types
are compared with `is`. The name is the form in SQL: `LONG`, `DECIMAL(15,2)`, `ARRAY<DOUBLE>`,
`STRUCT<street STRING, number INT>`; `Type(name)` reads it, and common synonyms of other dialects.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from importlib import import_module
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin

import numpy as np
import pyarrow as pa

from headrace.errors import SchemaError, nearest

__all__ = ["ALLOWED", "DIGITS", "Type", "nearest_type", "split_columns"]

#: The most digits of a DECIMAL.
DIGITS = 38
#: A DECIMAL without a precision: room for whole numbers of 28 digits, and ten decimals.
_ANY_DECIMAL = (DIGITS, 10)
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_SPACES = re.compile(r"\s+")
_TIGHT = re.compile(r"\s*([<>(),\[\]])\s*")
_CALL = re.compile(r"([A-Z][A-Z_ ]*?)(?:\((\d+)(?:,(\d+))?\))?( ?WITH(?:OUT)? (?:LOCAL )?TIME ZONE)?")


class Type:
    """A column's type; `value` is its name in SQL."""

    __slots__ = ("family", "parameters", "value")

    value: str
    #: The name without parameters.
    family: str
    #: Of a DECIMAL its precision and scale, of a list the type of its elements, of a struct names and types.
    parameters: tuple[Any, ...]

    BYTE: ClassVar[Type]
    SHORT: ClassVar[Type]
    INT: ClassVar[Type]
    LONG: ClassVar[Type]
    FLOAT: ClassVar[Type]
    DOUBLE: ClassVar[Type]
    BOOLEAN: ClassVar[Type]
    CHAR: ClassVar[Type]
    STRING: ClassVar[Type]
    DATETIME: ClassVar[Type]
    DATE: ClassVar[Type]
    TIME: ClassVar[Type]
    INTERVAL: ClassVar[Type]
    #: The types without parameters.
    PLAIN: ClassVar[tuple[Type, ...]]

    def __new__(cls, text: str) -> Type:  # noqa: PYI034 - a type is one object, and has no subclasses
        return _INTERNED.get(text) or _parsed(text)

    @classmethod
    def DECIMAL(cls, precision: int, scale: int = 0) -> Type:  # noqa: N802 - the name of a type
        """Exact numbers of at most `precision` digits, `scale` of them behind the point."""
        if not 1 <= precision <= DIGITS or not 0 <= scale <= precision:
            raise SchemaError(
                f"there is no DECIMAL({precision},{scale})",
                given=f"DECIMAL({precision},{scale})",
                allowed=f"1 to {DIGITS} digits, of them 0 to all behind the point",
                instead="DECIMAL(38,10)" if precision > DIGITS else f"DECIMAL({DIGITS},{min(max(scale, 0), DIGITS)})",
            )
        return _interned(f"DECIMAL({precision},{scale})", "DECIMAL", (precision, scale))

    @classmethod
    def STRUCT(cls, fields: Iterable[tuple[str, Type]]) -> Type:  # noqa: N802 - the name of a type
        """Several named values in one."""
        parts = tuple(fields)
        names = [name for name, _ in parts]
        if not parts or len(set(names)) < len(names):
            fault = "a name appears twice in a struct" if parts else "a struct has fields"
            raise SchemaError(fault, given=f"STRUCT<{', '.join(names)}>", instead="STRUCT<street STRING, number INT>")
        value = f"STRUCT<{', '.join(f'{_quoted(name)} {kind.value}' for name, kind in parts)}>"
        return _interned(value, "STRUCT", parts)

    def __reduce__(self) -> tuple[type[Type], tuple[str]]:
        return (Type, (self.value,))

    def __copy__(self) -> Type:
        return self

    def __deepcopy__(self, memo: object) -> Type:
        return self

    def __repr__(self) -> str:
        return f"Type({self.value!r})"

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type that holds it."""
        found = _ARROW.get(self)
        if found is None:
            found = _ARROW[self] = _arrow(self)
        return found

    @property
    def spark(self) -> str:
        """Its name in Spark SQL."""
        if self.is_decimal:
            return self.value
        if self.is_array:
            return f"ARRAY<{self.element.spark}>"
        if self.is_struct:
            return f"STRUCT<{','.join(f'{_ticked(name)}:{kind.spark}' for name, kind in self.parameters)}>"
        return _SPARK[self]

    @property
    def duckdb(self) -> str:
        """Its name in DuckDB SQL."""
        if self.is_decimal:
            return self.value
        if self.is_array:
            return f"{self.element.duckdb}[]"
        if self.is_struct:
            return f"STRUCT({', '.join(f'{_always_quoted(name)} {kind.duckdb}' for name, kind in self.parameters)})"
        return _DUCKDB[self]

    @property
    def is_integer(self) -> bool:
        return self in _INTEGERS

    @property
    def is_floating(self) -> bool:
        return self is Type.FLOAT or self is Type.DOUBLE

    @property
    def is_decimal(self) -> bool:
        return self.family == "DECIMAL"

    @property
    def is_numeric(self) -> bool:
        return self.is_integer or self.is_floating or self.is_decimal

    @property
    def is_text(self) -> bool:
        return self is Type.STRING or self is Type.CHAR

    @property
    def is_array(self) -> bool:
        return self.family == "ARRAY"

    @property
    def is_struct(self) -> bool:
        return self.family == "STRUCT"

    @property
    def is_nested(self) -> bool:
        """A list or a struct."""
        return self.is_array or self.is_struct

    @property
    def precision(self) -> int:
        """The digits of a DECIMAL, or those that every number of an integer type fits in."""
        digits: int = self.parameters[0] if self.is_decimal else _PRECISION[self]
        return digits

    @property
    def scale(self) -> int:
        """The digits of a DECIMAL behind the point; none for integers."""
        digits: int = self.parameters[1] if self.is_decimal else 0
        return digits

    @property
    def element(self) -> Type:
        """The element type of a list; any other type is its own element."""
        element: Type = self.parameters[0] if self.is_array else self
        return element

    @property
    def array(self) -> Type:
        """The type of lists of it."""
        return _interned(f"ARRAY<{self.value}>", "ARRAY", (self,))

    @property
    def fields(self) -> tuple[tuple[str, Type], ...]:
        """The names and types of a struct; none for other types."""
        return self.parameters if self.is_struct else ()

    @classmethod
    def parse(cls, text: str) -> Type:
        """The type of this name, in any case; common SQL synonyms are allowed."""
        return cls(text)

    @classmethod
    def of(cls, given: Any) -> Type:
        """The type that a type of Python, NumPy, Arrow, Spark or Polars means; a text is a name in SQL.

        >>> Type.of(float).value, Type.of("float").value, Type.of(list[int] | None).value
        ('DOUBLE', 'FLOAT', 'ARRAY<LONG>')
        """
        if isinstance(given, (Type, str)):
            return given if isinstance(given, Type) else cls.parse(given)
        if isinstance(given, pa.DataType):
            return cls.from_arrow(given)
        if hasattr(given, "simpleString"):  # a type of Spark
            return _of_spark(given)
        frame_type = _of_frame_type(given)
        found = _of_annotation(given) if frame_type is None else cls.from_arrow(frame_type)
        if found is None:
            raise SchemaError(
                f"{getattr(given, '__name__', given)} is not the type of a column",
                given=str(given),
                allowed=f"{ALLOWED}; str, int, float, bool, date, datetime, time, timedelta, Decimal, list[...]; "
                "types of NumPy, pandas, Polars, Arrow and Spark",
                instead="str, or 'STRING'",
            )
        return found

    @classmethod
    def from_arrow(cls, arrow: pa.DataType) -> Type:
        """The narrowest type that holds every value of an Arrow type."""
        if pa.types.is_dictionary(arrow):
            return cls.from_arrow(arrow.value_type)
        if pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow):
            return cls.from_arrow(arrow.value_type).array
        if pa.types.is_struct(arrow) and arrow.num_fields:
            return cls.STRUCT(
                (arrow.field(i).name, cls.from_arrow(arrow.field(i).type)) for i in range(arrow.num_fields)
            )
        if pa.types.is_decimal(arrow) and max(arrow.precision - min(arrow.scale, 0), arrow.scale) <= DIGITS:
            return cls.DECIMAL(max(arrow.precision - min(arrow.scale, 0), arrow.scale), max(arrow.scale, 0))
        for test, found in _FROM_ARROW:
            if test(arrow):
                return found
        raise SchemaError(
            f"no column type holds Arrow's {arrow}",
            given=str(arrow),
            allowed=ALLOWED,
            instead="cast the column before it enters, or leave it out of the schema",
        )


_INTERNED: dict[str, Type] = {}


def _interned(value: str, family: str, parameters: tuple[Any, ...] = ()) -> Type:
    found = _INTERNED.get(value)
    if found is not None:
        return found
    made: Type = object.__new__(Type)
    made.value, made.family, made.parameters = value, family, parameters
    return _INTERNED.setdefault(value, made)  # one of two threads wins


_NAMES = (
    "BYTE", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "BOOLEAN", "CHAR", "STRING", "DATETIME", "DATE", "TIME",
    "INTERVAL",
)  # fmt: skip
Type.PLAIN = tuple(_interned(name, name) for name in _NAMES)
(
    Type.BYTE, Type.SHORT, Type.INT, Type.LONG, Type.FLOAT, Type.DOUBLE, Type.BOOLEAN, Type.CHAR, Type.STRING,
    Type.DATETIME, Type.DATE, Type.TIME, Type.INTERVAL,
) = Type.PLAIN  # fmt: skip

#: The types that columns have, for messages.
ALLOWED = f"{', '.join(_NAMES)}, DECIMAL(p,s), ARRAY<type>, STRUCT<name type, …>"
_INTEGERS = frozenset((Type.BYTE, Type.SHORT, Type.INT, Type.LONG))
_PRECISION = {Type.BYTE: 3, Type.SHORT: 5, Type.INT: 10, Type.LONG: 19}
_ARROW = {
    Type.BYTE: pa.int8(),
    Type.SHORT: pa.int16(),
    Type.INT: pa.int32(),
    Type.LONG: pa.int64(),
    Type.FLOAT: pa.float32(),
    Type.DOUBLE: pa.float64(),
    Type.BOOLEAN: pa.bool_(),
    Type.CHAR: pa.string(),
    Type.STRING: pa.string(),
    Type.DATETIME: pa.timestamp("us", tz="UTC"),
    Type.DATE: pa.date32(),
    Type.TIME: pa.time64("us"),
    Type.INTERVAL: pa.duration("us"),
}
#: A TIME is its ticks: Spark's own type is switched off in most sessions.
_SPARK = {
    Type.BYTE: "TINYINT", Type.SHORT: "SMALLINT", Type.INT: "INT", Type.LONG: "BIGINT", Type.FLOAT: "FLOAT",
    Type.DOUBLE: "DOUBLE", Type.BOOLEAN: "BOOLEAN", Type.CHAR: "STRING", Type.STRING: "STRING",
    Type.DATETIME: "TIMESTAMP", Type.DATE: "DATE", Type.TIME: "BIGINT", Type.INTERVAL: "INTERVAL DAY TO SECOND",
}  # fmt: skip
#: DuckDB's own intervals count months, days and microseconds apart; here an interval is its ticks.
_DUCKDB = {
    Type.BYTE: "TINYINT", Type.SHORT: "SMALLINT", Type.INT: "INTEGER", Type.LONG: "BIGINT", Type.FLOAT: "FLOAT",
    Type.DOUBLE: "DOUBLE", Type.BOOLEAN: "BOOLEAN", Type.CHAR: "VARCHAR", Type.STRING: "VARCHAR",
    Type.DATETIME: "TIMESTAMPTZ", Type.DATE: "DATE", Type.TIME: "TIME", Type.INTERVAL: "BIGINT",
}  # fmt: skip
_SYNONYMS = {
    "TINYINT": "BYTE", "SMALLINT": "SHORT", "INT2": "SHORT", "INTEGER": "INT", "INT4": "INT", "BIGINT": "LONG",
    "INT8": "LONG", "REAL": "FLOAT", "FLOAT4": "FLOAT", "DOUBLE PRECISION": "DOUBLE", "FLOAT8": "DOUBLE",
    "BOOL": "BOOLEAN", "TEXT": "STRING", "VARCHAR": "STRING", "TIMESTAMP": "DATETIME", "TIMESTAMPTZ": "DATETIME",
    "TIMESTAMP_NTZ": "DATETIME", "TIMESTAMP_LTZ": "DATETIME", "CHARACTER VARYING": "STRING", "CHARACTER": "CHAR",
    "NUMERIC": "DECIMAL", "DEC": "DECIMAL", "JSON": "STRING", "JSONB": "STRING", "INTERVAL DAY TO SECOND": "INTERVAL",
    "INTERVAL DAY": "INTERVAL",
}  # fmt: skip
#: Python's types; a subclass follows its base, so BOOLEAN comes before LONG.
_PYTHON = (
    (bool, Type.BOOLEAN), (str, Type.STRING), (int, Type.LONG), (float, Type.DOUBLE), (datetime, Type.DATETIME),
    (date, Type.DATE), (time, Type.TIME), (timedelta, Type.INTERVAL), (decimal.Decimal, Type.DECIMAL(*_ANY_DECIMAL)),
)  # fmt: skip
_FROM_ARROW = (
    (lambda t: t == pa.int8(), Type.BYTE),
    (lambda t: t in (pa.int16(), pa.uint8()), Type.SHORT),
    (lambda t: t in (pa.int32(), pa.uint16()), Type.INT),
    (lambda t: t in (pa.int64(), pa.uint32()), Type.LONG),
    (lambda t: t in (pa.float16(), pa.float32()), Type.FLOAT),
    (lambda t: t == pa.float64(), Type.DOUBLE),
    (pa.types.is_boolean, Type.BOOLEAN),
    (lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t), Type.STRING),
    (pa.types.is_timestamp, Type.DATETIME),
    (pa.types.is_date, Type.DATE),
    (pa.types.is_time, Type.TIME),
    (pa.types.is_duration, Type.INTERVAL),
    (pa.types.is_null, Type.STRING),
)
_READABLE = (
    (pa.types.is_decimal, Type.DOUBLE),
    (lambda t: t == pa.uint64(), Type.LONG),
    (lambda t: pa.types.is_binary(t) or pa.types.is_large_binary(t), Type.STRING),
)


def _arrow(kind: Type) -> pa.DataType:
    if kind.is_decimal:
        return pa.decimal128(*kind.parameters)
    if kind.is_array:
        return pa.list_(kind.element.arrow)
    return pa.struct([(name, part.arrow) for name, part in kind.fields])


# --- reading names ---------------------------------------------------------------------------------------------------


def split_columns(text: str) -> list[str]:
    """The parts of a text between the commas outside of brackets and quotes."""
    parts, depth, quoted, start = [], 0, False, 0
    for place, letter in enumerate(text):
        if letter == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif letter in "<([":
            depth += 1
        elif letter in ">)]":
            depth -= 1
        elif letter == "," and depth <= 0:
            parts.append(text[start:place])
            start = place + 1
    return [*parts, text[start:]]


def _parsed(text: str) -> Type:
    tidy = text.strip()
    opened = tidy.upper().replace(" ", "")
    if tidy.endswith("[]"):
        return Type(tidy[:-2]).array
    if opened.startswith("ARRAY<") and tidy.endswith(">"):
        return Type(tidy[tidy.index("<") + 1 : -1]).array
    if opened.startswith(("STRUCT<", "STRUCT(", "ROW<", "ROW(")) and tidy.endswith((">", ")")):
        inside = tidy[tidy.index("<" if tidy[-1] == ">" else "(") + 1 : -1]
        return Type.STRUCT(_struct_field(part, text) for part in split_columns(inside))
    return _scalar(text)


def _struct_field(part: str, text: str) -> tuple[str, Type]:
    """A name and a type, with a colon between them or without."""
    found = re.fullmatch(r'\s*(?:"((?:[^"]|"")+)"|`([^`]+)`|([^\s:"`]+))\s*(?::\s*|\s+)(.+?)\s*', part, re.DOTALL)
    if found is None:
        raise SchemaError(
            f"{part.strip()!r} is not a field of a struct",
            given=text,
            allowed="STRUCT<name TYPE, name TYPE>",
            instead="STRUCT<street STRING, number INT>",
        )
    quoted, ticked, plain, kind = found.groups()
    return (quoted.replace('""', '"') if quoted else ticked or plain), Type(kind)


def _scalar(text: str) -> Type:
    name = _TIGHT.sub(r"\1", _SPACES.sub(" ", text.strip())).upper()
    found = _CALL.fullmatch(name)
    word, first, second, zone = found.groups() if found else (name, None, None, None)
    family = _SYNONYMS.get(word, word)
    if family == "DECIMAL" and not zone:
        return Type.DECIMAL(int(first), int(second or 0)) if first else Type.DECIMAL(*_ANY_DECIMAL)
    if second is None and (not zone or family in ("DATETIME", "TIME")):
        if family == "CHAR" and first not in (None, "1"):
            return Type.STRING
        fits = first is None or family in ("CHAR", "STRING") or (family in ("DATETIME", "TIME") and int(first) <= 6)
        if family in _NAMES and fits:
            return _INTERNED[family]
    if family.startswith("INTERVAL "):
        raise SchemaError(
            "an INTERVAL is a length of time, and months and years have none",
            given=text,
            allowed="INTERVAL, INTERVAL DAY TO SECOND",
            instead="INTERVAL, or INT for a number of months",
        )
    close = nearest(family, (*_NAMES, "DECIMAL"))
    raise SchemaError(f"unknown type {text.strip()!r}", given=text, allowed=ALLOWED, instead=close or "STRING")


def _quoted(name: str) -> str:
    return name if _NAME.fullmatch(name) else _always_quoted(name)


def _always_quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _ticked(name: str) -> str:
    return name if _NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


# --- types of others -------------------------------------------------------------------------------------------------


def nearest_type(arrow: pa.DataType) -> Type | None:
    """The type that values of an Arrow type can be read as, though perhaps not all of them or not exactly."""
    try:
        return Type.from_arrow(arrow)
    except SchemaError:
        return next((kind for test, kind in _READABLE if test(arrow)), None)


def _of_spark(given: Any) -> Type:
    if hasattr(given, "elementType"):
        return Type.of(given.elementType).array
    if hasattr(given, "fields"):
        return Type.STRUCT((field.name, Type.of(field.dataType)) for field in given.fields)
    return Type.parse(given.simpleString())


def _of_annotation(given: Any) -> Type | None:
    """The type that a type of Python means, also one that may be None, a list, or in the brackets of another."""
    origin, arguments = get_origin(given), get_args(given)
    if origin in (Union, UnionType):
        arguments = tuple(part for part in arguments if part is not NoneType)
    if origin is list and arguments:
        return Type.of(arguments[0]).array
    if arguments and (len(arguments) == 1 or origin is Annotated):  # Series[float]
        return Type.of(arguments[0])
    if not isinstance(given, type):
        return None
    return next((found for base, found in _PYTHON if issubclass(given, base)), None)


def _of_frame_type(given: Any) -> pa.DataType | None:
    """What a type of NumPy, pandas or Polars is in Arrow; None for other types."""
    module = (given if isinstance(given, type) else type(given)).__module__
    try:
        if module.startswith("polars."):
            return import_module("polars").Series([], dtype=given).to_arrow().type
        if isinstance(given, np.dtype) or (isinstance(given, type) and issubclass(given, np.generic)):
            dtype = np.dtype(given)
            return pa.string() if dtype.kind == "U" else pa.from_numpy_dtype(dtype)
        if module.partition(".")[0] == "pandas" and hasattr(given, "construct_array_type"):
            return pa.array(import_module("pandas").array([], dtype=given)).type
    except pa.ArrowNotImplementedError:  # objects of any kind
        pass
    return None
