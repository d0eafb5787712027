"""Native code for what a body reads: the rows of its tables, aggregates over them, and sub-selects.

Unlike other values, a sub-select can fail: it may give several rows where one is wanted. So it is computed only where
Python would compute it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

from headrace.expr import AggregateCall, Expr
from headrace.expr.nodes import Bound, Case
from headrace.modules import ModuleCall
from headrace.schema import Type
from headrace.sql.aggregates.front import definition as d
from headrace.sql.aggregates.front.lookup import said
from headrace.sql.aggregates.native.tables import TableCode
from headrace.sql.aggregates.native.values import CodeLines, NotNative, Pair, ValueWriter, compared

__all__ = ["SelectWriter"]

#: The most different failures; the rest of a failure code is a number of rows or values.
FAILURES = 1024


class SelectWriter(ValueWriter):
    """Writes expressions with sub-selects, and loops over tables."""

    def __init__(
        self, definition: d.AggregateDefinition, text: CodeLines, arguments: Sequence[Pair],
        columns: Mapping[d.StateTable, Sequence[Pair]], oldest: Sequence[Pair], many: Mapping[d.StateTable, TableCode],
    ) -> None:  # fmt: skip
        super().__init__(definition, text, arguments, columns, oldest)
        self.many = many
        #: The messages of failures, with {} for the number of rows: a code combines that number and a position here.
        self.failures: list[str] = []
        #: The line number of the current statement, if it may fail; and whether an earlier one may have failed.
        self.line: int | None = None
        self.may_have_failed = False
        self._folded: dict[int, Pair] = {}

    def failure(self, reason: str, count: str = "1") -> str:
        """The code of a failure: never 0."""
        if self.line is None:
            raise NotNative("the first rows of a table are computed from other tables")
        said_so = f"{self.definition.name}, line {self.line}: {reason}"
        if said_so not in self.failures:
            self.failures.append(said_so)
        number = self.failures.index(said_so) + 1
        if number == FAILURES:
            raise NotNative("too much may go wrong")
        self.may_have_failed = True
        return f"{count} * {FAILURES} + {number}"

    # --- rows --------------------------------------------------------------------------------------------------------

    def reads_many(self, select: d.Selected) -> bool:
        """Whether a SELECT loops over any number of rows."""
        return any(source.table in self.many for source in select.sources)

    def quick(self, bound: Bound) -> bool:
        """Whether an expression has no loop over rows, and so cannot fail."""
        if not isinstance(bound.node, d.Scalar):
            return all(map(self.quick, bound.args))
        select = bound.node.select
        where = () if select.where is None else (select.where,)
        return not select.aggregated and not self.reads_many(select) and all(map(self.quick, (*select.entries, *where)))

    @contextmanager
    def rows(self, sources: Sequence[d.TableScan], where: Bound | None) -> Iterator[None]:
        """Code added inside runs for each row of the sources that satisfies the condition."""
        with ExitStack() as inside:
            for place, source in enumerate(sources):
                if source.table in self.many:
                    inside.enter_context(self._way(sources[place:], where))
            if where is not None:
                inside.enter_context(self.text.block(f"if {self.of(where).holds}:"))
            yield

    @contextmanager
    def _way(self, sources: Sequence[d.TableScan], where: Bound | None) -> Iterator[None]:
        """Loop over the rows of the first source, or look up the one that the condition determines."""
        many, row = self.many[sources[0].table], self.new("row")
        wanted = said(self.definition.places, sources, where)
        by_key = many.keyed and set(many.table.key) <= set(wanted)
        values = [self.of(wanted[place]) for place in many.table.key] if by_key else []
        with many.found(row, values) if by_key else many.each(row):
            names = [self.new(name) for name in many.table.schema.names]
            self.row_of[sources[0]], self.rows_of[sources[0]] = row, many.columns(row, names)
            yield

    # --- SELECT ------------------------------------------------------------------------------------------------------

    def check_select(self, select: d.Selected) -> None:
        """Refuse SELECTs that have no native form."""
        if select.groups or select.distinct:
            raise NotNative("GROUP BY and DISTINCT have no native form")
        if select.order and self.reads_many(select):
            raise NotNative("ORDER BY has no native form")
        for source in select.sources:
            if source.table not in self.columns and source.table not in self.many:
                raise NotNative(f"{source.table.name} is read as a table of many rows")

    @contextmanager
    def selected(self, select: d.Selected) -> Iterator[None]:
        """Code added inside runs for each row of the SELECT, ignoring its limit."""
        self.check_select(select)
        if not select.aggregated:
            with self.rows(select.sources, select.where):
                yield
            return
        self._fold(select)
        with ExitStack() as inside:
            if select.having is not None:
                inside.enter_context(self.text.block(f"if {self.of(select.having).holds}:"))
            yield

    def _scalar(self, bound: Bound) -> Pair:
        assert isinstance(bound.node, d.Scalar)
        select = bound.node.select
        self.check_select(select)
        if self.quick(bound):
            return self._one_row(select)
        if select.aggregated and select.having is None:
            self._fold(select)
            return self.of(select.entries[0])
        return self._only(select, bound.type)

    def _one_row(self, select: d.Selected) -> Pair:
        """The value of a SELECT over a one-row table, or over no table."""
        if select.limit == 0:
            return Pair(default(select.entries[0].type), ("True",))
        found = self.of(select.entries[0])
        if select.where is None:
            return found
        name = f"{self.new()}_null"
        self.text.add(f"{name} = not ({self.of(select.where).holds})")
        return Pair(found.value, (*found.nulls, name))

    def _only(self, select: d.Selected, kind: Type) -> Pair:
        """The single value, NULL if there is none; several are a failure."""
        text, name, count = self.text, self.new(), self.new("count")
        text.add(f"{name}, {name}_null, {count} = {default(kind)}, True, 0")
        entry = select.entries[0]
        with self.selected(select):
            text.add(f"{count} += 1")
            found = None if self.quick(entry) else self.of(entry)
            with text.block(f"if {count} == 1:"):
                found = found or self.of(entry)
                text.add(f"{name}, {name}_null = {found.value}, {found.null}")
        if select.limit == 0:
            text.add(f"{name}_null = True")
        elif select.limit != 1 and self.reads_many(select):
            given = count if select.limit is None else f"min({count}, {select.limit})"
            reason = "a sub-select gave {} rows where one value is wanted"
            with text.block(f"if {count} > 1 and failed == 0:"):
                text.add(f"failed = {self.failure(reason, given)}")
        return Pair(name, (f"{name}_null",))

    def _case(self, bound: Bound) -> Pair:
        if all(map(self.quick, bound.args)):
            return super()._case(bound)
        *parts, last = bound.args
        name = self.new()
        self._cases(name, list(zip(parts[::2], parts[1::2], strict=True)), last)
        return Pair(name, (f"{name}_null",))

    def _cases(self, name: str, cases: Sequence[tuple[Bound, Bound]], last: Bound) -> None:
        """Write the branches in order, so that only the needed ones are computed."""
        text = self.text
        if not cases:
            found = self.of(last)
            text.add(f"{name}, {name}_null = {found.value}, {found.null}")
            return
        (test, value), *others = cases
        with text.block(f"if {self.of(test).holds}:"):
            self._cases(name, [], value)
        with text.block("else:"):
            self._cases(name, others, last)

    # --- aggregates --------------------------------------------------------------------------------------------------

    def _fold(self, select: d.Selected) -> None:
        """Compute all aggregates of a SELECT in one loop over its rows."""
        entries = (*select.entries, *(() if select.having is None else (select.having,)))
        calls = [call for entry in entries for call in _aggregates(entry)]
        steps = [self._begin(call) for call in calls]
        with self.rows(select.sources, select.where):
            for call, step in zip(calls, steps, strict=True):
                step(self.of(call.args[0]) if call.args else Pair("1"))

    def _begin(self, call: Bound) -> Callable[[Pair], None]:
        """Write the start of an aggregate; return the writer for each value."""
        node = call.node
        assert isinstance(node, AggregateCall)
        kind = call.args[0].type if call.args else Type.LONG
        if isinstance(node, ModuleCall) or node.function not in self._folds:
            name = node.module.name if isinstance(node, ModuleCall) else node.function
            raise NotNative(f"{name}() over a table has no native form")
        if node.function == "sum" and not kind.is_integer:
            raise NotNative("a sum of decimals is exact, and has no native form")
        return self._folds[node.function](self, call, kind)

    def _count(self, call: Bound, kind: Type) -> Callable[[Pair], None]:  # noqa: ARG002 - as its siblings
        name = self.new("count")
        self._folded[id(call)] = Pair(name)
        self.text.add(f"{name} = 0")
        return lambda value: self._known(value, f"{name} += 1")

    def _sum(self, call: Bound, kind: Type) -> Callable[[Pair], None]:  # noqa: ARG002 - as its siblings
        name = self.new("sum")
        self._folded[id(call)] = Pair(name, (f"{name}_none",))
        self.text.add(f"{name}, {name}_high, {name}_none = np.uint64(0), 0, True")
        total = f"{name}, {name}_high"
        return lambda value: self._known(value, f"{total} = summed({total}, {value.value})", f"{name}_none = False")

    def _best(self, call: Bound, kind: Type) -> Callable[[Pair], None]:
        assert isinstance(call.node, AggregateCall)
        function, name = call.node.function, self.new(call.node.function)
        self._folded[id(call)] = Pair(name, (f"{name}_none",))
        self.text.add(f"{name}, {name}_none = {default(kind)}, True")

        def step(value: Pair) -> None:
            value = self.name(value)
            better = {
                "min": compared("lt", kind, value.value, name),
                "max": compared("lt", kind, name, value.value),
                "first": "False",
                "last": "True",
            }[function]
            self._known(value, f"if {name}_none or {better}:", f"    {name}, {name}_none = {value.value}, False")

        return step

    def _known(self, value: Pair, *lines: str) -> None:
        """Lines, if the value is not NULL."""
        if not value.nulls:
            self.text.add(*lines)
            return
        with self.text.block(f"if not {value.one_null}:"):
            self.text.add(*lines)

    def _aggregate(self, bound: Bound) -> Pair:
        if id(bound) not in self._folded:
            raise NotNative("aggregates stand in the SELECT of their table")
        found = self._folded[id(bound)]
        node = bound.node
        assert isinstance(node, AggregateCall)
        if node.function != "sum":
            return found
        total = self.maybe(f"narrowed({found.value}, {found.value}_high)")
        return Pair(total.value, (*total.nulls, *found.nulls))

    _folds: ClassVar[Mapping[str, Callable[[Any, Bound, Type], Callable[[Pair], None]]]] = {
        "count": _count, "sum": _sum, **dict.fromkeys(("min", "max", "first", "last"), _best),
    }  # fmt: skip
    _writers: ClassVar[Mapping[type[Expr], Callable[[Any, Bound], Pair]]] = {
        **ValueWriter._writers,  # noqa: SLF001 - its own base
        d.Scalar: _scalar,
        Case: _case,
        AggregateCall: _aggregate,
    }


def default(kind: Type) -> str:
    """A default value of a type."""
    return "0.0" if kind.is_floating else "False" if kind is Type.BOOLEAN else "0"


def _aggregates(bound: Bound) -> list[Bound]:
    """The aggregates in an expression, without those in sub-selects."""
    if isinstance(bound.node, AggregateCall):
        return [bound]
    return [] if isinstance(bound.node, d.Scalar) else [one for child in bound.args for one in _aggregates(child)]
