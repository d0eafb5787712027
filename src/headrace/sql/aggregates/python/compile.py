"""An aggregate as Python source: a class with a method for each event.

A table that always has one row becomes attributes, one with a key a dictionary, any other a list of tuples. The source
is written from the checked tree: names are made plain, literals are written by `repr`, and nothing else of a user's
text gets into it.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from headrace.errors import ModuleFailed
from headrace.schema import Type
from headrace.sql.aggregates.front import definition as d
from headrace.sql.aggregates.python import scalars
from headrace.sql.aggregates.python.code import Code, listed
from headrace.sql.aggregates.python.names import Names
from headrace.sql.aggregates.python.rows import ROWS

__all__ = ["Compiled", "compile_aggregate", "one_value", "too_many"]

_USED = ("self", "len", "float", "mark", "row", "oldest")
# The builtins of the code: only those that it uses.
_SPACE = {
    "__name__": "aggregate",
    "__builtins__": {"__build_class__": builtins.__build_class__, "len": len, "float": float},
}
_LINE = "# line "
_MEMBERS = ("returned", "initialize", "iterate", "terminate", "expire", d.INWINDOW)


@dataclass(frozen=True)
class Compiled:
    """A compiled aggregate, which runs over tuples of its arguments, in order."""

    definition: d.AggregateDefinition
    source: str
    body: Callable[[], Any]
    #: The attributes of a body that hold its state: one for each table, or one for each column.
    kept: Mapping[d.StateTable, tuple[str, ...]]

    @property
    def attributes(self) -> tuple[str, ...]:
        """All attributes of the state."""
        return tuple(chain(*self.kept.values()))

    def value(self, items: Iterable[tuple[Any, ...]]) -> Any:
        """Its output at and after the last tuple; NULL if there is none."""
        return one_value(self._returned(items, keep=False))

    def rows(self, items: Iterable[tuple[Any, ...]]) -> list[Any]:
        """All its outputs, in order."""
        return self._returned(items, keep=True)

    def _returned(self, items: Iterable[tuple[Any, ...]], *, keep: bool) -> list[Any]:
        body = self.body()
        waiting = iter(items)
        first = next(waiting, None)
        if first is None:
            return []
        iterate, returned = body.iterate, body.returned
        try:
            body.initialize(*first)
            for item in waiting:
                if not keep:
                    returned.clear()
                iterate(*item)
            body.terminate()
        except ModuleFailed as error:
            raise self.located(error) from None
        found: list[Any] = returned
        return found

    def located(self, error: ModuleFailed) -> ModuleFailed:
        """The same error, with the line number in the user's text."""
        place, step = 0, error.__traceback__
        while step is not None:
            if step.tb_frame.f_code.co_filename == self._file:
                place = step.tb_lineno
            step = step.tb_next
        above = (line.strip() for line in reversed(self.source.splitlines()[:place]))
        said = next((line for line in above if line.startswith((_LINE, "def "))), "")
        where = f", line {said.removeprefix(_LINE)}" if said.startswith(_LINE) else ""
        return ModuleFailed(
            f"{self.definition.name}{where}: {error.message}",
            given=error.given,
            allowed=error.allowed,
            instead=error.instead,
        )

    @property
    def _file(self) -> str:
        return _file(self.definition)


def one_value(returned: Sequence[Any]) -> Any:
    """The single returned value; NULL if there is none."""
    if len(returned) > 1:
        raise ModuleFailed(too_many(len(returned)))
    return returned[0] if returned else None


def too_many(values: int) -> str:
    """The message for several returned values."""
    return f"it returned {values} values where one is wanted"


def compile_aggregate(definition: d.AggregateDefinition) -> Compiled:
    """The aggregate as Python; raises Python's own error if the code is nested too deep."""
    writer = _Writer(definition)
    source = writer.source()
    space: dict[str, Any] = {**_SPACE, **scalars.NAMES, **ROWS, **writer.inner}
    exec(compile(source, _file(definition), "exec"), space)  # noqa: S102 - written here, from the tree
    return Compiled(definition, source, space[writer.title], writer.state)


def _file(definition: d.AggregateDefinition) -> str:
    """The file name of the code, for tracebacks."""
    return f"<{'window ' if definition.window else ''}aggregate {definition.name}>"


class _Writer(Code):
    """Writes one aggregate."""

    def __init__(self, definition: d.AggregateDefinition) -> None:
        super().__init__(definition)
        taken = (*scalars.NAMES, *ROWS, *_USED)
        names = Names(taken)
        words = [*definition.name.split("_"), *(["over", "window"] if definition.window else [])]
        self.title = names.give("".join(word.title() for word in words))
        self.arguments = [names.give(field.name) for field in definition.parameters]
        self.oldest = self._leaving(names)
        #: The names that columns in statements must not use.
        self.taken = (*taken, self.title, *self.arguments, *self.oldest)
        self.names = Names(self.taken)
        self.attributes = Names(_MEMBERS)
        tables = [one for one in definition.tables if definition.keeps_window or not one.kept_by_system]
        self.forms = {table: definition.form(table) for table in tables}
        self.kept = {table: self._attributes(table) for table in tables}

    def _leaving(self, names: Names) -> list[str]:
        """The names of the columns of the leaving tuple, if the body does not keep the window."""
        definition = self.definition
        table = definition.inwindow
        if not definition.window or definition.keeps_window:
            return []
        return [names.give(f"oldest_{f.name}") for f in (table.schema if table else definition.parameters)]

    def _attributes(self, table: d.StateTable) -> list[str]:
        """The attributes of a table: one, or one for each column."""
        if self.forms[table] == "row":
            return [f"self.{self.attributes.give(f'{table.name}_{name}')}" for name in table.schema.names]
        if table.kept_by_system:
            return [f"self.{d.INWINDOW}"]
        if table.stored is not None:
            name = f"_{self.globals.give(table.name)}"
            self.inner[name] = table.stored
            return [name]
        return [f"self.{self.attributes.give(table.name)}"]

    def source(self) -> str:
        """The complete code, with its constants first."""
        methods = [self._initialization(), *(self._method(event) for event in self._events)]
        stored = [(self.kept[one][0], one) for one in self.kept if one.stored is not None]
        lines = [f"# {name}: the {len(one.stored or ()):,} rows of a stored table" for name, one in stored]
        lines += [f"{name} = {value}" for value, name in self.constants.items()]
        lines += ["", ""] if lines else []
        lines += [f"class {self.title}:"]
        for method in methods:
            lines += [f"    {line}" if line else "" for line in [*method, ""]]
        return "\n".join(lines).rstrip() + "\n"

    @property
    def state(self) -> dict[d.StateTable, tuple[str, ...]]:
        """The attributes of all tables."""
        return {one: tuple(name.removeprefix("self.") for name in self.kept[one]) for one in self._own}

    @property
    def _own(self) -> list[d.StateTable]:
        return [table for table in self.kept if table.stored is None]

    @cached_property
    def _events(self) -> list[str]:
        return [event for event in d.EVENTS if event != "expire" or self.definition.window]

    def _initialization(self) -> list[str]:
        lines = ["def __init__(self):", "    self.returned = []"]
        for table in self._own:
            rows = [self.tuple(row) for row in table.rows]
            lines += [f"    {line}" for line in self._empty(table, rows)]
        return lines

    def _empty(self, table: d.StateTable, rows: list[str]) -> list[str]:
        kept = self.kept[table]
        if self.forms[table] == "row":
            values = list(map(self.value, table.rows[0])) if table.rows else ["None"] * len(kept)
            return [f"{name} = {value}" for name, value in zip(kept, values, strict=True)]
        every = f"[{', '.join(rows)}]"
        if self.forms[table] == "keyed":
            return [f"{kept[0]} = keyed({every}, {table.key!r})" if rows else f"{kept[0]} = {{}}"]
        return [f"{kept[0]} = {every}"]

    def _method(self, event: str) -> list[str]:
        self.event = event
        takes = {"terminate": [], "expire": self.oldest}.get(event, self.arguments)
        fields = zip(takes, self.definition.parameters, strict=False)
        before = [f"{name} = to_float({name})" for name, field in fields if field.type is Type.FLOAT]
        after: list[str] = []
        if self.definition.keeps_window and event == "expire":
            before, after = ["oldest = self.inwindow[0]"], ["leave(self.inwindow, oldest)"]
        elif self.definition.keeps_window and takes:
            before += [f"self.inwindow.append({listed([*takes, 'mark'])})", *map(self._room, self._window)]
            takes = [*takes, "mark=None"]
        body: list[str] = []
        for statement in self.definition.stages.get(event, ()):
            self.names = Names(self.taken)
            body += [f"{_LINE}{statement.line}", *self._statement(statement)]
        lines = [f"def {event}({', '.join(['self', *takes])}):"]
        return lines + [f"    {line}" for line in [*before, *body, *after] or ["pass"]]

    @property
    def _window(self) -> list[d.StateTable]:
        return [table for table in self.kept if table.kept_by_system]

    def _room(self, table: d.StateTable) -> str:
        """The check that a table has not grown too large."""
        return f"room({self.kept[table][0]}, {table.name!a}, {table.limit})"

    # --- statements --------------------------------------------------------------------------------------------------

    def _statement(self, statement: d.BodyStatement) -> list[str]:
        if isinstance(statement, d.BodyInsert):
            return self._insert(statement)
        if isinstance(statement, d.BodyUpdate):
            return self._update(statement)
        assert isinstance(statement, d.Delete)
        return self._delete(statement)

    def _insert(self, one: d.BodyInsert) -> list[str]:
        table = one.table
        if table is not None and self.forms[table] == "row":
            return [self._set(self.kept[table], list(map(self.value, one.rows[0])))]
        bare = table is None and self.definition.value
        rows, single = self._inserted(one, bare=bare)
        if table is not None and self.forms[table] == "keyed":
            every = f"[{rows}]" if single else rows
            return [f"put({self.kept[table][0]}, {every}, {table.key!r})", self._room(table)]
        if table is not None:
            return [f"{self.kept[table][0]}.{'append' if single else 'extend'}({rows})", self._room(table)]
        if single:
            return [f"self.returned.append({rows})"]
        return [f"self.returned.extend({rows})", f"room(self.returned, 'RETURN', {d.MOST_ROWS})"]

    def _inserted(self, one: d.BodyInsert, *, bare: bool) -> tuple[str, bool]:
        """The inserted rows: a list, or a single row."""
        if one.select is None:
            written = [self.value(row[0]) if bare else self.tuple(row) for row in one.rows]
            return (written[0], True) if len(written) == 1 else (f"[{', '.join(written)}]", False)
        if self.single(one.select):
            return self.row(one.select, bare=bare), True
        return self.rows(one.select, bare=bare), False

    def _set(self, names: Sequence[str], values: Sequence[str]) -> str:
        """Assign all at once, so that expressions see the old values."""
        return f"{', '.join(names)} = {', '.join(values)}"

    def _update(self, one: d.BodyUpdate) -> list[str]:
        table = one.source.table
        columns = self.columns(one.source)
        if self.forms[table] == "row":
            pairs = [(name, self.value(v)) for name, v in zip(self.kept[table], one.values, strict=True) if v]
            line = self._set([name for name, _ in pairs], [value for _, value in pairs])
            return [line] if one.where is None else [f"if {self.value(one.where)}:", f"    {line}"]
        news = [name if v is None else self.value(v) for name, v in zip(columns, one.values, strict=True)]
        new, old = listed(news), listed(columns)
        row = new if one.where is None else f"{new} if {self.value(one.where)} else {old}"
        kept = self.kept[table][0]
        if self.forms[table] == "rows":
            return [f"{kept} = [{row} for {old} in {kept}]"]
        lookup = self.lookup([one.source], one.where)
        if lookup and not any(one.values[place] is not None for place in table.key):
            return [f"put({kept}, [{row} for {old} in {lookup}], {table.key!r})"]
        if any(one.values[place] is not None for place in table.key):
            return [f"{kept} = keyed([{row} for {old} in {kept}.values()], {table.key!r})"]
        return [f"{kept} = {{_k: {row} for _k, {old} in {kept}.items()}}"]

    def _delete(self, one: d.Delete) -> list[str]:
        table = one.source.table
        kept, columns = self.kept[table][0], listed(self.columns(one.source))
        keyed = self.forms[table] == "keyed"
        if one.where is None:
            return [f"{kept} = {'{}' if keyed else '[]'}"]
        lookup, goes = self.lookup([one.source], one.where), self.value(one.where)
        if table.kept_by_system:  # the row objects stay, so that the leaving one can be identified
            return [f"{kept} = [row for row in {kept} for {self.pattern(one.source)} in [row] if not {goes}]"]
        if lookup:
            gone = f"[{columns} for {columns} in {lookup} if {goes}]"
            return [f"without({kept}, {gone}, {table.key!r})"]
        if keyed:
            return [f"{kept} = {{_k: {columns} for _k, {columns} in {kept}.items() if not {goes}}}"]
        return [f"{kept} = [{columns} for {columns} in {kept} if not {goes}]"]
