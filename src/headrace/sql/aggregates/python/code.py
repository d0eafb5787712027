"""Expressions and SELECTs of an aggregate's body as Python: a value becomes an expression, a SELECT a list."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.expr import AggregateCall, Column, Expr, Literal
from headrace.expr.nodes import Bound, Call, Case, Cast
from headrace.modules import ModuleCall
from headrace.schema import Type
from headrace.sql.aggregates.front import definition as d
from headrace.sql.aggregates.front.lookup import calls, chain, said
from headrace.sql.aggregates.python import scalars
from headrace.sql.aggregates.python.names import Names
from headrace.sql.aggregates.python.rows import AGGREGATES

__all__ = ["Code", "listed"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Code:
    """Writes the code of reads. `compile` sets the names of tables and arguments."""

    def __init__(self, definition: d.AggregateDefinition) -> None:
        self.definition = definition
        self.arguments: list[str] = []
        #: The columns of the tuple that leaves, if the window is not kept.
        self.oldest: list[str] = []
        self.event = ""
        self.names = Names()
        # Names of the module begin with _; the user's names do not.
        self.globals = Names()
        self.constants: dict[str, str] = {}
        #: Other aggregates and stored tables, by their names in the code.
        self.inner: dict[str, Any] = {}
        self.forms: dict[d.StateTable, str] = {}
        #: The name of a table, or of each column of its one row.
        self.kept: dict[d.StateTable, list[str]] = {}
        self.bound: dict[d.TableScan, list[str]] = {}
        #: The enclosing SELECTs, and the names of the rows of a group in those with groups.
        self.selects: list[d.Selected] = []
        self.grouped: dict[d.Selected, str] = {}

    # --- SELECT ------------------------------------------------------------------------------------------------------

    def single(self, select: d.Selected) -> bool:
        """Whether a SELECT always gives one row."""
        if select.limit is not None or select.having is not None or select.groups:
            return False
        return select.aggregated or (select.where is None and not self._loops(select))

    def rows(self, select: d.Selected, *, bare: bool) -> str:
        """A list of rows; of bare values, if each has one column."""
        if select.groups:
            return self._cut(select, self._groups(select, bare=bare))
        row = self.row(select, bare=bare)
        if select.aggregated:
            having = None if select.having is None else self._in(select, select.having)
            return f"([{row}] if {having} else [])" if having else f"[{row}]"
        return self._cut(select, self._each(select, self._with_keys(select, row)))

    def row(self, select: d.Selected, *, bare: bool) -> str:
        """One row of it."""
        self.selects.append(select)
        row = self.value(select.entries[0]) if bare else self.tuple(select.entries)
        self.selects.pop()
        return row

    def _in(self, select: d.Selected, bound: Bound) -> str:
        self.selects.append(select)
        value = self.value(bound)
        self.selects.pop()
        return value

    def _with_keys(self, select: d.Selected, row: str) -> str:
        """A row, preceded by its sort keys."""
        keys = [self._in(select, key) for key, _ in select.order]
        return f"({listed(keys)}, {row})" if keys else row

    def _cut(self, select: d.Selected, rows: str) -> str:
        """Rows with ORDER BY, DISTINCT and LIMIT applied."""
        if select.order:
            rows = f"ordered({rows}, {tuple(down for _, down in select.order)!r})"
        if select.distinct:
            rows = f"distinct({rows})"
        return rows if select.limit is None else f"{rows}[:{select.limit}]"

    def _groups(self, select: d.Selected, *, bare: bool) -> str:
        """A row for each group; its first row supplies the values that all its rows share."""
        keys, columns = self.tuple(select.groups), self._whole(select)
        every = self._each(select, f"({keys}, {columns})")
        group = self.names.give("group")
        self.grouped[select] = group
        row = self._with_keys(select, self.row(select, bare=bare))
        having = "" if select.having is None else f" if {self._in(select, select.having)}"
        del self.grouped[select]
        return f"[{row} for {group} in groups({every}) for {columns} in [{group}[0]]{having}]"

    def _each(self, select: d.Selected, row: str) -> str:
        """A list with `row` for each row of the sources that satisfies the condition."""
        if select in self.grouped:
            return f"[{row} for {self._whole(select)} in {self.grouped[select]}]"
        loops = self._loops(select)
        where = self._left(select)
        condition = "" if where is None else self.value(where)
        if not loops:
            return f"([{row}] if {condition} else [])" if condition else f"[{row}]"
        return f"[{row}{loops}{f' if {condition}' if condition else ''}]"

    def _left(self, select: d.Selected) -> Bound | None:
        """The condition, without the part that the lookup by key already covers."""
        if select.where is None or len(select.sources) != 1 or self.lookup(select.sources, select.where) is None:
            return select.where
        table, parts = (
            select.sources[0].table,
            chain(select.where, "and") if calls(select.where, "and") else [select.where],
        )
        keyed = self.forms[table] == "keyed" and len(parts) == len(table.key)
        return None if keyed and all(calls(part, "eq") for part in parts) else select.where

    def _loops(self, select: d.Selected) -> str:
        """The loops over the rows of the sources; a table of one row needs none."""
        found, outer = "", list(select.sources)
        while outer:
            source = outer[0]
            kept = self.lookup(outer, select.where) or self.every(source.table)
            outer.pop(0)
            if self.forms[source.table] != "row":
                found += f" for {self.pattern(source)} in {kept}"
        return found

    def _whole(self, select: d.Selected) -> str:
        """All columns of the scanned sources."""
        many = [source for source in select.sources if self.forms[source.table] != "row"]
        return listed([name for source in many for name in self.columns(source)])

    def every(self, table: d.StateTable) -> str:
        """All rows of a table."""
        return self.kept[table][0] + (".values()" if self.forms[table] == "keyed" else "")

    def lookup(self, sources: Sequence[d.TableScan], where: Bound | None) -> str | None:
        """The rows of the first source that may satisfy a condition, if the condition determines the key.

        The rows of the other sources are not known yet.
        """
        source = sources[0]
        table = source.table
        if self.forms[table] not in ("keyed", "stored"):
            return None
        wanted = said(self.definition.places, sources, where)
        places = tuple(sorted(wanted)) if self.forms[table] == "stored" else table.key
        if not wanted or not set(places) <= set(wanted):
            return None
        values = ", ".join(self.value(wanted[place]) for place in places)
        if self.forms[table] == "stored":
            like = "_".join([table.name, "by", *(table.schema.names[place] for place in places)])
            return f"among_rows({self.constant(like, f'indexed({self.kept[table][0]}, {places!r})')}, {values})"
        return f"found({self.kept[table][0]}, {values})"

    def columns(self, source: d.TableScan) -> list[str]:
        """The names of a source's columns in the code."""
        if source not in self.bound:
            table = source.table
            one_row = self.forms[table] == "row"
            self.bound[source] = self.kept[table] if one_row else [self.names.give(n) for n in table.schema.names]
        return self.bound[source]

    def pattern(self, source: d.TableScan) -> str:
        """The pattern that unpacks a row of a source."""
        return listed([*self.columns(source), *(["mark"] if source.table.kept_by_system else [])])

    def tuple(self, values: Sequence[Bound]) -> str:
        """A tuple of values."""
        return listed([self.value(value) for value in values])

    # --- values ------------------------------------------------------------------------------------------------------

    def value(self, bound: Bound) -> str:
        """An expression of Python with the value of a bound one."""
        node = bound.node
        if isinstance(node, Literal):
            return _literal(node.value, bound.type)
        if isinstance(node, Column):
            return self._column(node)
        return self._compound(bound, node)

    def _compound(self, bound: Bound, node: Expr) -> str:
        if isinstance(node, Call):
            return self._call(bound, node.function)
        if isinstance(node, Case):
            return self._case(bound)
        if isinstance(node, Cast):
            return self._cast(bound)
        if isinstance(node, AggregateCall):
            return self._aggregate(bound, node)
        if isinstance(node, d.Scalar):
            one_row = node.select.aggregated and not node.select.groups and node.select.having is None
            return self.row(node.select, bare=True) if one_row else f"only({self.rows(node.select, bare=True)})"
        if isinstance(node, d.Oldest):
            return self._oldest(node)
        raise AssertionError(f"{type(node).__name__} has no code")

    def _oldest(self, node: d.Oldest) -> str:
        if self.oldest:
            return self.oldest[node.index]
        return f"oldest[{node.index}]" if self.event == "expire" else f"first(self.inwindow, {node.index})"

    def _column(self, node: Column) -> str:
        place = self.definition.places[node.column]
        return self.arguments[place.index] if place.source is None else self.columns(place.source)[place.index]

    def _call(self, bound: Bound, function: str) -> str:
        if function in ("is_null", "is_not_null"):
            first = bound.args[0].node
            if isinstance(first, Literal):
                return repr((first.value is None) == (function == "is_null"))
            return f"({self.value(bound.args[0])} is {'not ' if function == 'is_not_null' else ''}None)"
        quick = scalars.function_name(function, bound.args[0].type)
        operands = chain(bound, function) if function in ("and", "or") else bound.args
        arguments = ", ".join(map(self.value, operands))
        if quick is None:
            types = tuple(one.type.value for one in bound.args)
            quick = self.constant(function, f"kernel({function!r}, {types!r})")
        return f"{quick}({arguments})"

    def _case(self, bound: Bound) -> str:
        *pairs, default = map(self.value, bound.args)
        whens = "".join(f"{value} if {test} else " for test, value in zip(pairs[::2], pairs[1::2], strict=True))
        return f"({whens}{default})"

    def _cast(self, bound: Bound) -> str:
        child = bound.args[0]
        quick = scalars.cast_name(child.type, bound.type)
        if quick is None:
            target = bound.type.value
            quick = self.constant(f"to_{target}", f"cast_by_kernel({child.type.value!r}, {target!r})")
        return f"{quick}({self.value(child)})"

    def _aggregate(self, bound: Bound, node: AggregateCall) -> str:
        """An aggregate over the rows of its SELECT."""
        select = self.selects[-1]
        if isinstance(node, ModuleCall):
            fields = node.module.fields
            row = listed([self.value(arg.widened(f.type)) for arg, f in zip(bound.args, fields, strict=True)])
            return f"{self._other(node.module)}.value({self._each(select, row)})"
        if not bound.args:
            return f"len({self._each(select, '1')})"
        argument = bound.args[0]
        name = AGGREGATES[node.function][0 if argument.type.is_integer else 1]
        parameters = "".join(f", {_literal(one, Type.DOUBLE)}" for one in node.parameters)
        return f"{name}({self._each(select, self.value(argument))}{parameters})"

    def _other(self, module: Any) -> str:
        for name, known in self.inner.items():
            if known is module.compiled:
                return name
        name = f"_{self.globals.give(module.name)}"
        self.inner[name] = module.compiled
        return name

    def constant(self, like: str, value: str) -> str:
        """The name of a value that is computed once."""
        if value not in self.constants:
            self.constants[value] = f"_{self.globals.give(like.lower())}"
        return self.constants[value]


def listed(parts: Sequence[str]) -> str:
    """A tuple of Python."""
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def _literal(value: Any, kind: Type) -> str:
    if isinstance(value, datetime):
        return f"instant({(value - _EPOCH) // timedelta(microseconds=1)})"
    if isinstance(value, float):
        number = scalars.single(value) if kind is Type.FLOAT else value
        return f"float({str(number)!r})" if number in (float("inf"), float("-inf")) else repr(number)
    return ascii(value)
