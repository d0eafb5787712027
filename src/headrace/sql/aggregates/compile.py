"""An aggregate as Python source: a class with a method for each event.

A table that always has one row becomes attributes, one with a key a dictionary, any other a list of tuples. The source
is written from the checked tree: names are made plain, literals are written by `repr`, and nothing else of a user's
text gets into it.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from headrace.errors import ModuleFailed
from headrace.expr import AggregateCall, Column, Expr, Literal
from headrace.expr.nodes import Bound, Call, Case, Cast
from headrace.modules import ModuleCall
from headrace.schema import Type
from headrace.sql.aggregates import definition as d
from headrace.sql.aggregates import scalars
from headrace.sql.aggregates.names import Names

__all__ = ["Compiled", "compile_aggregate"]

_USED = ("self", "len", "float")
# What the source finds of Python itself: no more than it uses.
_SPACE = {
    "__name__": "aggregate",
    "__builtins__": {"__build_class__": builtins.__build_class__, "len": len, "float": float},
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MEMBERS = ("returned", "initialize", "iterate", "terminate", "expire")


@dataclass(frozen=True)
class Compiled:
    """An aggregate that can be run: over tuples of its arguments, in order."""

    definition: d.Definition
    source: str
    body: Callable[[], Any]

    def value(self, items: Iterable[tuple[Any, ...]]) -> Any:
        """What it returns at the last tuple and behind it; NULL if that is nothing."""
        rows = self._returned(items, keep=False)
        if len(rows) > 1:
            raise ModuleFailed(f"it returned {len(rows)} values where one is wanted")
        return rows[0] if rows else None

    def rows(self, items: Iterable[tuple[Any, ...]]) -> list[Any]:
        """All that it returns, in order."""
        return self._returned(items, keep=True)

    def _returned(self, items: Iterable[tuple[Any, ...]], *, keep: bool) -> list[Any]:
        body = self.body()
        waiting = iter(items)
        first = next(waiting, None)
        if first is None:
            return []
        body.initialize(*first)
        iterate, returned = body.iterate, body.returned
        for item in waiting:
            if not keep:
                returned.clear()
            iterate(*item)
        body.terminate()
        found: list[Any] = returned
        return found


def compile_aggregate(definition: d.Definition) -> Compiled:
    """The aggregate as Python; raises what Python raises if the source is nested too deep for it."""
    writer = _Writer(definition)
    source = writer.source()
    space: dict[str, Any] = {**_SPACE, **scalars.NAMES, **scalars.HELPERS, **writer.inner}
    exec(compile(source, f"<aggregate {writer.title}>", "exec"), space)  # noqa: S102 - written here, from the tree
    return Compiled(definition, source, space[writer.title])


class _Writer:
    """Writes one aggregate."""

    def __init__(self, definition: d.Definition) -> None:
        self.definition = definition
        taken = (*scalars.NAMES, *scalars.HELPERS, *_USED)
        names = Names(taken)
        self.title = names.give("".join(word.title() for word in definition.name.split("_")))
        self.arguments = [names.give(field.name) for field in definition.parameters]
        #: What every statement may not call its columns.
        self.taken = (*taken, self.title, *self.arguments)
        self.names = Names(self.taken)
        self.attributes = Names(_MEMBERS)
        # Those of the module begin with _, which no name of a user does.
        self.globals = Names()
        self.constants: dict[str, str] = {}
        #: Other aggregates, by what the source calls them.
        self.inner: dict[str, Any] = {}
        self.forms = {table: definition.form(table) for table in definition.tables}
        self.kept = {table: self._attributes(table) for table in definition.tables}
        self.bound: dict[d.Source, list[str]] = {}
        #: The SELECTs around what is being written.
        self.selects: list[d.Selected] = []

    def _attributes(self, table: d.Table) -> list[str]:
        """The attributes of a table: one, or one for each column."""
        if self.forms[table] == "row":
            return [f"self.{self.attributes.give(f'{table.name}_{name}')}" for name in table.schema.names]
        return [f"self.{self.attributes.give(table.name)}"]

    def source(self) -> str:
        """The whole text; the constants it needs stand in front."""
        methods = [self._made(), *(self._method(event) for event in self._events)]
        lines = [f"{name} = {value}" for value, name in self.constants.items()]
        lines += ["", ""] if lines else []
        lines += [f"class {self.title}:"]
        for method in methods:
            lines += [f"    {line}" if line else "" for line in [*method, ""]]
        return "\n".join(lines).rstrip() + "\n"

    @cached_property
    def _events(self) -> list[str]:
        return [event for event in d.EVENTS if event != "expire" or self.definition.window]

    def _made(self) -> list[str]:
        lines = ["def __init__(self):", "    self.returned = []"]
        for table in self.definition.tables:
            rows = [self._tuple(row) for row in table.rows]
            lines += [f"    {line}" for line in self._empty(table, rows)]
        return lines

    def _empty(self, table: d.Table, rows: list[str]) -> list[str]:
        kept = self.kept[table]
        if self.forms[table] == "row":
            values = list(map(self.value, table.rows[0])) if table.rows else ["None"] * len(kept)
            return [f"{name} = {value}" for name, value in zip(kept, values, strict=True)]
        every = f"[{', '.join(rows)}]"
        if self.forms[table] == "keyed":
            return [f"{kept[0]} = keyed({every}, {table.key!r})" if rows else f"{kept[0]} = {{}}"]
        return [f"{kept[0]} = {every}"]

    def _method(self, event: str) -> list[str]:
        takes = self.arguments if event in ("initialize", "iterate") else []
        lines = [f"def {event}({', '.join(['self', *takes])}):"]
        body: list[str] = []
        if takes:
            fields = zip(self.arguments, self.definition.parameters, strict=True)
            body += [f"{name} = to_float({name})" for name, field in fields if field.type is Type.FLOAT]
        for statement in self.definition.stages.get(event, ()):
            self.names = Names(self.taken)
            body += [f"# line {statement.line}", *self._statement(statement)]
        return lines + [f"    {line}" for line in body or ["pass"]]

    # --- statements --------------------------------------------------------------------------------------------------

    def _statement(self, statement: d.Statement) -> list[str]:
        if isinstance(statement, d.Insert):
            return self._insert(statement)
        if isinstance(statement, d.Update):
            return self._update(statement)
        assert isinstance(statement, d.Delete)
        return self._delete(statement)

    def _insert(self, one: d.Insert) -> list[str]:
        table = one.table
        if table is not None and self.forms[table] == "row":
            return [self._set(self.kept[table], list(map(self.value, one.rows[0])))]
        bare = table is None and self.definition.value
        rows, single = self._inserted(one, bare=bare)
        if table is not None and self.forms[table] == "keyed":
            return [f"put({self.kept[table][0]}, {f'[{rows}]' if single else rows}, {table.key!r})"]
        target = "self.returned" if table is None else self.kept[table][0]
        return [f"{target}.append({rows})" if single else f"extend({target}, {rows})"]

    def _inserted(self, one: d.Insert, *, bare: bool) -> tuple[str, bool]:
        """What is inserted: a list of rows, or the only one."""
        if one.select is None:
            written = [self.value(row[0]) if bare else self._tuple(row) for row in one.rows]
            return (written[0], True) if len(written) == 1 else (f"[{', '.join(written)}]", False)
        select = one.select
        whole = select.source is None or self.forms[select.source.table] == "row"
        if select.aggregated or (whole and select.where is None and select.limit is None):
            return self._row(select, bare=bare), True
        return self._rows(select, bare=bare), False

    def _set(self, names: Sequence[str], values: Sequence[str]) -> str:
        """All at once, so that values are those of before."""
        return f"{', '.join(names)} = {', '.join(values)}"

    def _update(self, one: d.Update) -> list[str]:
        table = one.source.table
        columns = self._columns(one.source)
        if self.forms[table] == "row":
            pairs = [(name, self.value(v)) for name, v in zip(self.kept[table], one.values, strict=True) if v]
            line = self._set([name for name, _ in pairs], [value for _, value in pairs])
            return [line] if one.where is None else [f"if {self.value(one.where)}:", f"    {line}"]
        news = [name if v is None else self.value(v) for name, v in zip(columns, one.values, strict=True)]
        new, old = _listed(news), _listed(columns)
        row = new if one.where is None else f"{new} if {self.value(one.where)} else {old}"
        kept = self.kept[table][0]
        if self.forms[table] == "rows":
            return [f"{kept} = [{row} for {old} in {kept}]"]
        lookup = self._lookup(one.source, one.where)
        if lookup and not any(one.values[place] is not None for place in table.key):
            return [f"put({kept}, [{row} for {old} in {lookup}], {table.key!r})"]
        if any(one.values[place] is not None for place in table.key):
            return [f"{kept} = keyed([{row} for {old} in {kept}.values()], {table.key!r})"]
        return [f"{kept} = {{_k: {row} for _k, {old} in {kept}.items()}}"]

    def _delete(self, one: d.Delete) -> list[str]:
        table = one.source.table
        kept, columns = self.kept[table][0], _listed(self._columns(one.source))
        keyed = self.forms[table] == "keyed"
        if one.where is None:
            return [f"{kept} = {'{}' if keyed else '[]'}"]
        lookup = self._lookup(one.source, one.where)
        if lookup:
            gone = f"[{columns} for {columns} in {lookup} if {self.value(one.where)}]"
            return [f"without({kept}, {gone}, {table.key!r})"]
        stays = f"if not {self.value(one.where)}"
        if keyed:
            return [f"{kept} = {{_k: {columns} for _k, {columns} in {kept}.items() {stays}}}"]
        return [f"{kept} = [{columns} for {columns} in {kept} {stays}]"]

    # --- SELECT ------------------------------------------------------------------------------------------------------

    def _rows(self, select: d.Selected, *, bare: bool) -> str:
        """A list of rows; of bare values, if each has one column."""
        row = self._row(select, bare=bare)
        if select.aggregated:
            return f"[{row}]"
        if select.order:
            keys = self._tuple(tuple(key for key, _ in select.order))
            descending = tuple(down for _, down in select.order)
            found = f"ordered({self._each(select, f'({keys}, {row})')}, {descending!r})"
        else:
            found = self._each(select, row)
        return found if select.limit is None else f"{found}[:{select.limit}]"

    def _row(self, select: d.Selected, *, bare: bool) -> str:
        self.selects.append(select)
        row = self.value(select.entries[0]) if bare else self._tuple(select.entries)
        self.selects.pop()
        return row

    def _each(self, select: d.Selected, row: str) -> str:
        """Something for each row of the source that is wanted."""
        source, where = select.source, select.where
        condition = "" if where is None else self.value(where)
        if source is None or self.forms[source.table] == "row":
            return f"([{row}] if {condition} else [])" if condition else f"[{row}]"
        kept = self.kept[source.table][0] + (".values()" if self.forms[source.table] == "keyed" else "")
        kept = self._lookup(source, where) or kept
        return f"[{row} for {_listed(self._columns(source))} in {kept}{f' if {condition}' if condition else ''}]"

    def _lookup(self, source: d.Source, where: Bound | None) -> str | None:
        """The rows that a condition may hold for, where it says what the key is."""
        table = source.table
        if self.forms[table] != "keyed" or where is None:
            return None
        wanted: dict[int, Bound] = {}
        for part in _chain(where, "and") if _calls(where, "and") else [where]:
            for mine, other in (part.args, part.args[::-1]) if _calls(part, "eq") else ():
                place = self.definition.places.get(mine.node.column) if isinstance(mine.node, Column) else None
                if place is not None and place.source is source and self._apart(other, source):
                    wanted[place.index] = other
        if not set(table.key) <= set(wanted):
            return None
        return f"found({self.kept[table][0]}, {', '.join(self.value(wanted[place]) for place in table.key)})"

    def _apart(self, bound: Bound, source: d.Source) -> bool:
        """Whether a value is the same for all rows of a source, and quickly seen to be."""
        if isinstance(bound.node, Column):
            return self.definition.places[bound.node.column].source is not source
        if not isinstance(bound.node, (Literal, Call, Case, Cast)):
            return False
        return all(self._apart(child, source) for child in bound.args)

    def _columns(self, source: d.Source) -> list[str]:
        """What the columns of a source are called in the source text."""
        if source not in self.bound:
            table = source.table
            one_row = self.forms[table] == "row"
            self.bound[source] = self.kept[table] if one_row else [self.names.give(n) for n in table.schema.names]
        return self.bound[source]

    def _tuple(self, values: Sequence[Bound]) -> str:
        return _listed([self.value(value) for value in values])

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
            return f"only({self._rows(node.select, bare=True)})"
        if isinstance(node, d.Oldest):
            table = next(table for table in self.definition.tables if table.kept_by_system)
            return f"{self.kept[table][0]}[0][{node.index}]"
        raise AssertionError(f"{type(node).__name__} has no code")

    def _column(self, node: Column) -> str:
        place = self.definition.places[node.column]
        return self.arguments[place.index] if place.source is None else self._columns(place.source)[place.index]

    def _call(self, bound: Bound, function: str) -> str:
        if function in ("is_null", "is_not_null"):
            first = bound.args[0].node
            if isinstance(first, Literal):
                return repr((first.value is None) == (function == "is_null"))
            return f"({self.value(bound.args[0])} is {'not ' if function == 'is_not_null' else ''}None)"
        quick = scalars.function_name(function, bound.args[0].type)
        operands = _chain(bound, function) if function in ("and", "or") else bound.args
        arguments = ", ".join(map(self.value, operands))
        if quick is None:
            types = tuple(one.type.value for one in bound.args)
            quick = self._constant(function, f"kernel({function!r}, {types!r})")
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
            quick = self._constant(f"to_{target}", f"cast_by_kernel({child.type.value!r}, {target!r})")
        return f"{quick}({self.value(child)})"

    def _aggregate(self, bound: Bound, node: AggregateCall) -> str:
        """An aggregate over the rows of the SELECT it stands in."""
        select = self.selects[-1]
        if isinstance(node, ModuleCall):
            fields = node.module.fields
            row = _listed([self.value(arg.widened(f.type)) for arg, f in zip(bound.args, fields, strict=True)])
            return f"{self._other(node.module)}.value({self._each(select, row)})"
        if not bound.args:
            return f"len({self._each(select, '1')})"
        argument = bound.args[0]
        name = scalars.AGGREGATES[node.function][0 if argument.type.is_integer else 1]
        return f"{name}({self._each(select, self.value(argument))})"

    def _other(self, module: Any) -> str:
        for name, known in self.inner.items():
            if known is module.compiled:
                return name
        name = f"_{self.globals.give(module.name)}"
        self.inner[name] = module.compiled
        return name

    def _constant(self, like: str, value: str) -> str:
        if value not in self.constants:
            self.constants[value] = f"_{self.globals.give(like.lower())}"
        return self.constants[value]


def _calls(bound: Bound, function: str) -> bool:
    return isinstance(bound.node, Call) and bound.node.function == function


def _chain(bound: Bound, function: str) -> list[Bound]:
    """`a AND b AND c` as one."""
    first, *rest = bound.args
    if _calls(first, function):
        return [*_chain(first, function), *rest]
    return [first, *rest]


def _listed(parts: Sequence[str]) -> str:
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def _literal(value: Any, kind: Type) -> str:
    if isinstance(value, datetime):
        return f"instant({(value - _EPOCH) // timedelta(microseconds=1)})"
    if isinstance(value, float):
        number = scalars.single(value) if kind is Type.FLOAT else value
        return f"float({str(number)!r})" if number in (float("inf"), float("-inf")) else repr(number)
    return ascii(value)
