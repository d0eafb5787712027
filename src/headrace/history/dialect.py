"""The differences between DuckDB and Spark. All other SQL of the translation means the same in both.

Times are BIGINT ticks and INFINITY is the largest. Both engines hold NaN to be equal to itself and greater than any
number, -0.0 to be 0.0, and compare text by its bytes, as Headrace does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa

from headrace.errors import HistoryError
from headrace.expr.nodes import Bound, Call
from headrace.expr.print_duckdb import DuckDBPrinter
from headrace.expr.print_spark import SparkPrinter
from headrace.expr.printer import Node, Printer, fn
from headrace.expr.python import Udf, UdfCall
from headrace.schema import Type
from headrace.time import INFINITY

__all__ = ["Dialect", "DuckDBDialect", "SparkDialect", "dialect_of"]


_PLAIN = tuple(kind for kind in Type.PLAIN if kind is not Type.CHAR)


class _CallsUdfs:
    """Prints users' functions as calls of registered functions."""

    #: The printed functions with their number of arguments, by name.
    udfs: dict[str, tuple[Udf, int]]
    #: The printed functions that engines compute in other ways.
    own: set[str]

    def registered(self, bound: Bound, args: list[Node]) -> Node:
        assert isinstance(bound.node, Call)
        self.own.add(bound.node.function)
        return fn(f"headrace_{bound.node.function}", *args)

    def udf(self, bound: Bound, args: list[Node]) -> Node:
        assert isinstance(bound.node, UdfCall)
        name = f"udf_{bound.node.udf.mark}_{len(args)}"
        self.udfs[name] = bound.node.udf, len(args)
        return fn(name, *args)


class _DuckDB(_CallsUdfs, DuckDBPrinter):
    pass


class _Spark(_CallsUdfs, SparkPrinter):
    pass


class Dialect:
    """The SQL dialect of an engine."""

    name: ClassVar[str]
    mark: ClassVar[str]
    explode: ClassVar[str]
    series: ClassVar[str]
    gather: ClassVar[str]
    divided: ClassVar[str]
    #: A type that holds the exact sum of any number of whole numbers.
    wide: ClassVar[str]
    names: ClassVar[Mapping[pa.DataType, str]]

    def __init__(self) -> None:
        self.printer = self._printer()
        self.printer.udfs = {}  # type: ignore[attr-defined]
        self.printer.own = set()  # type: ignore[attr-defined]

    def _printer(self) -> Printer:
        raise NotImplementedError

    @property
    def udfs(self) -> dict[str, tuple[Udf, int]]:
        """The users' functions that were printed."""
        return self.printer.udfs  # type: ignore[attr-defined,no-any-return]

    @property
    def own(self) -> set[str]:
        """The functions that were printed and that the engine computes in another way."""
        return self.printer.own  # type: ignore[attr-defined,no-any-return]

    def quote(self, name: str) -> str:
        """A quoted name."""
        return f"{self.mark}{name.replace(self.mark, 2 * self.mark)}{self.mark}"

    def floor(self, value: str, by: int) -> str:
        """`value // by`, rounded down."""
        return f"(({value}) - ((({value}) % {by}) + {by}) % {by}) {self.divided} {by}"

    def moved(self, time: str, by: int | str) -> str:
        """A time moved by a duration; infinity stays infinity."""
        return f"CASE WHEN {time} = {INFINITY} THEN {INFINITY} ELSE {time} + ({by}) END"

    def struct(self, fields: Mapping[str, str]) -> str:
        raise NotImplementedError

    def type(self, kind: pa.DataType) -> str:
        """The engine's name of an Arrow type."""
        if pa.types.is_list(kind):
            return self.list_of(self.type(kind.value_type))
        if pa.types.is_struct(kind):
            return self.struct_of({kind.field(i).name: self.type(kind.field(i).type) for i in range(kind.num_fields)})
        if pa.types.is_decimal(kind):
            return f"DECIMAL({kind.precision}, {kind.scale})"
        if kind not in self.names:
            raise HistoryError(f"{self.name} has no type for {kind}", given=str(kind))
        return self.names[kind]

    def list_of(self, kind: str) -> str:
        raise NotImplementedError

    def struct_of(self, fields: Mapping[str, str]) -> str:
        raise NotImplementedError


class DuckDBDialect(Dialect):
    """DuckDB, for tests and quick answers in process."""

    name = "duckdb"
    mark = '"'
    explode, series, gather, divided, wide = "unnest", "generate_series", "list", "//", "HUGEINT"
    names: ClassVar[Mapping[pa.DataType, str]] = {t.arrow: t.duckdb for t in _PLAIN}

    def _printer(self) -> Printer:
        return _DuckDB()

    def struct(self, fields: Mapping[str, str]) -> str:
        return f"struct_pack({', '.join(f'{self.quote(name)} := {value}' for name, value in fields.items())})"

    def list_of(self, kind: str) -> str:
        return f"{kind}[]"

    def struct_of(self, fields: Mapping[str, str]) -> str:
        return f"STRUCT({', '.join(f'{self.quote(name)} {kind}' for name, kind in fields.items())})"


class SparkDialect(Dialect):
    """Spark SQL, for history at scale."""

    name = "spark"
    mark = "`"
    explode, series, gather, divided, wide = "explode", "sequence", "collect_list", "div", "DECIMAL(38, 0)"
    names: ClassVar[Mapping[pa.DataType, str]] = {t.arrow: t.spark for t in _PLAIN}

    def _printer(self) -> Printer:
        return _Spark()

    def struct(self, fields: Mapping[str, str]) -> str:
        return f"named_struct({', '.join(f'{name!r}, {value}' for name, value in fields.items())})"

    def list_of(self, kind: str) -> str:
        return f"ARRAY<{kind}>"

    def struct_of(self, fields: Mapping[str, str]) -> str:
        return f"STRUCT<{', '.join(f'{self.quote(name)}: {kind}' for name, kind in fields.items())}>"


_DIALECTS: Mapping[str, type[Dialect]] = {"duckdb": DuckDBDialect, "spark": SparkDialect}


def dialect_of(name: str) -> Dialect:
    """The dialect of this name."""
    if name not in _DIALECTS:
        raise HistoryError("there are two engines for histories", given=name, allowed=", ".join(_DIALECTS))
    return _DIALECTS[name]()
