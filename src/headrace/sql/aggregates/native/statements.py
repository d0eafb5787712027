"""The statements of a body as text of native code.

A statement sees all tables as they were before it. Where it looks at the table that it changes, in a sub-select or as
what it selects from, the new rows are put aside until it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

from headrace.expr.nodes import Bound
from headrace.sql.aggregates.front import definition as d
from headrace.sql.aggregates.native.selects import SelectWriter
from headrace.sql.aggregates.native.tables import TableCode
from headrace.sql.aggregates.native.values import NotNative, Pair

__all__ = ["Statements"]


class Statements:
    """Writes statements; `give` writes the output of RETURN."""

    def __init__(self, values: SelectWriter, give: Callable[[Sequence[Pair], str], None]) -> None:
        self.values, self.text, self.give = values, values.text, give

    def lines(self, event: str) -> list[str]:
        """The code of an event, to be added later."""
        before = len(self.text.lines)
        self.event(event)
        found = self.text.lines[before:]
        del self.text.lines[before:]
        return found

    def event(self, event: str, *, after: bool = False) -> None:
        """Write the code of an event; `after` another one, which may have failed."""
        values = self.values
        values.may_have_failed = after and bool(values.many)
        for statement in values.definition.stages.get(event, ()):
            self.text.add(f"# line {statement.line}")
            values.line = statement.line
            guard = self.text.block("if failed == 0:") if values.may_have_failed else nullcontext()
            try:
                with guard:
                    self._statement(statement, event)
            except NotNative as reason:
                raise NotNative(f"line {statement.line}: {reason}") from None

    def _statement(self, statement: d.BodyStatement, event: str) -> None:
        if isinstance(statement, d.BodyInsert):
            if statement.table is None:
                self._return(statement, event)
            elif statement.table in self.values.many:
                self._insert(statement, self.values.many[statement.table])
            else:
                self._set(self.values.columns[statement.table], statement.rows[0])
        elif isinstance(statement, d.BodyUpdate):
            self.update(statement)
        else:
            assert isinstance(statement, d.Delete)
            self._delete(statement)

    # --- rows that come ----------------------------------------------------------------------------------------------

    def _return(self, one: d.BodyInsert, event: str) -> None:
        if one.select is None:
            for row in one.rows:
                self.give([self.values.of(value) for value in row], event)
            return
        self._selected(one.select, lambda values: self.give(values, event))

    def _selected(self, select: d.Selected, use: Callable[[list[Pair]], None]) -> None:
        """Call `use` for each row of a SELECT, up to its limit."""
        values, text = self.values, self.text
        limited = select.limit is not None and (values.reads_many(select) or select.limit == 0)
        count = values.new("count") if limited else ""
        if limited:
            text.add(f"{count} = 0")
        with values.selected(select):
            slow = not all(map(values.quick, select.entries))
            found = [values.of(entry) for entry in select.entries] if slow else []
            with text.block(f"if {count} < {select.limit}:") if limited else nullcontext():
                if limited:
                    text.add(f"{count} += 1")
                use(found if slow else [values.of(entry) for entry in select.entries])

    def _insert(self, one: d.BodyInsert, many: TableCode) -> None:
        text = self.text
        failed = self.values.failure(f"{many.table.name} has grown to more than {many.table.limit:,} rows")
        if one.select is None and len(one.rows) == 1:
            many.add([self.values.of(value) for value in one.rows[0]], failed)
            return
        if one.select is not None and (many.table not in one.reads or one.select.aggregated):
            self._selected(one.select, lambda values: many.add(values, failed))
            return
        text.add(f"new = np.empty({16 * many.width}, np.int64)", "new_used = 0")
        text.add("new_decimals = new.view(np.float64)")
        if one.select is None:
            for row in one.rows:
                self._put_aside([self.values.of(value) for value in row], many)
        else:
            self._selected(one.select, lambda values: self._put_aside(values, many))
        with text.block(f"for new_row in range(0, new_used, {many.width}):"):
            many.add_from("new", "new_row", failed)

    def _put_aside(self, values: Sequence[Pair], many: TableCode) -> None:
        with self.text.block("if new_used == len(new):"):
            self.text.add("new = longer(new, new_used + 1)", "new_decimals = new.view(np.float64)")
        many.write("new_used", values, "new", "new_decimals")
        self.text.add(f"new_used += {many.width}")

    # --- rows that change or go --------------------------------------------------------------------------------------

    def _set(self, pairs: Sequence[Pair], news: Sequence[Bound | None]) -> None:
        """Assign all columns at once, so that expressions see the old values."""
        found = [(pair, self.values.of(new)) for pair, new in zip(pairs, news, strict=True) if new is not None]
        names = ", ".join(f"{pair.value}, {pair.null}" for pair, _ in found)
        self.text.add(f"{names} = {', '.join(f'{new.value}, {new.null}' for _, new in found)}")

    def update(self, one: d.BodyUpdate) -> None:
        """Change columns of the rows that a condition holds for."""
        values, text, table = self.values, self.text, one.source.table
        if table not in values.many:
            with values.rows([one.source], one.where):
                self._set(values.columns[table], one.values)
            return
        many = values.many[table]
        new_keys = any(one.values[place] is not None for place in table.key)
        again = new_keys or self._looks_again(one.source, one.where, *one.values)
        if again:
            text.add(f"new = np.empty({many.used}, np.int64)", "new_decimals = new.view(np.float64)")
            text.add(f"copied(new, 0, {many.words}, 0, {many.used})")
        with values.rows([one.source], one.where):
            news = [None if new is None else values.of(new) for new in one.values]
            row = values.row_of[one.source]
            many.write(row, news, *(("new", "new_decimals") if again else ()))
        if again:
            text.add(f"copied({many.words}, 0, new, 0, {many.used})")
        if new_keys:
            many.index()

    def _delete(self, one: d.Delete) -> None:
        values, table = self.values, one.source.table
        if table not in values.many:
            raise NotNative(f"rows of {table.name} are deleted")
        many = values.many[table]
        if one.where is None:
            many.clear()
            return
        later = self._looks_again(one.source, one.where)
        with values.rows([one.source], one.where):
            many.delete(values.row_of[one.source], later=later)
        if later:
            many.sweep()

    def _looks_again(self, source: d.TableScan, *parts: Bound | None) -> bool:
        """Whether expressions read the scanned table in sub-selects."""
        return any(part is not None and source.table in _tables(part) for part in parts)


def _tables(bound: Bound) -> set[d.StateTable]:
    """The tables that sub-selects in an expression read."""
    found = set().union(*map(_tables, bound.args))
    if isinstance(bound.node, d.Scalar):
        select = bound.node.select
        found |= {source.table for source in select.sources}
        more = (*select.entries, *select.groups, *(key for key, _ in select.order))
        found = found.union(*(_tables(one) for one in (*more, select.where, select.having) if one is not None))
    return found
