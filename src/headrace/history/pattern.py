"""Patterns as SQL: each group's tuples are collected in order and searched in one call, by backtracking.

It shares only the automaton of the shape with the live operator: it tries every way in the order of preference, goes
back to the last choice after a failure, and evaluates conditions over all tuples of a run.
"""

# ruff: noqa: S608 - SQL is what is made here, and every name in it is the plan's own, quoted

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.expr import Expr, conjuncts, evaluate, predicate_mask
from headrace.history.functions import BY_LIST
from headrace.history.script import HistoryFunction
from headrace.history.translation import Translation
from headrace.patterns.nfa import ACCEPT
from headrace.patterns.references import START, Ref
from headrace.plan.ordered import order_columns
from headrace.plan.pattern import COMPLETE, Match
from headrace.schema import Type

__all__ = ["match"]

Labels = tuple[str, ...]


def match(t: Translation, node: Match) -> None:
    """The matches of every group."""
    below, dialect = t.of(node), t.dialect
    keys = [f"__k{i}" for i in range(len(node.keys))]
    exprs = "".join(f", {t.over(expr, below)} AS {key}" for key, (_, expr) in zip(keys, node.keys, strict=True))
    comma = "".join(f"{key}, " for key in keys)
    partition = f"PARTITION BY {', '.join(keys)}" if keys else ""
    columns = [t.quote(below.columns[name]) for name in order_columns(below.schema)]
    order = ", ".join(["le", *(f"{name} ASC NULLS FIRST" for name in columns), "re"])
    fields = {"pos": "__pos", "le": "le"}
    fields |= {f"f{i}": t.quote(below.columns[name]) for i, name in enumerate(below.schema.names)}
    function = t.function(lambda name: match_function(name, node))
    grouped = f"GROUP BY {', '.join(keys)}" if keys else "HAVING count(*) > 0"
    values = {name: key for key, (name, _) in zip(keys, node.keys, strict=True)}
    values |= {name: f"__match.f{i}" for i, name in enumerate(_given(node))}
    t.give(
        node,
        f"""WITH keyed AS (
  SELECT {t.all(below)}{exprs} FROM {below.name}
), placed AS (
  SELECT *, row_number() OVER ({partition} ORDER BY {order}) AS __pos FROM keyed
), gathered AS (
  SELECT {comma}{dialect.gather}({dialect.struct(fields)}) AS __tuples FROM placed {grouped}
), found AS (
  SELECT {comma}{dialect.explode}({function}(__tuples)) AS __match FROM gathered
)
SELECT __match.le AS le, __match.le + 1 AS re, {t.named(values, node.schema)} FROM found""",
    )


def _given(node: Match) -> list[str]:
    """The columns of the search result: all but keys that are not columns."""
    own = node.input.schema.names if node.rows == "all" else ()
    return [*own, *node.values, *([COMPLETE] if node.pattern.partials else [])]


def match_function(name: str, node: Match) -> HistoryFunction:
    """The outputs of a group's matches."""
    columns = [(f"f{i}", field.type.arrow) for i, field in enumerate(node.input.schema)]
    takes = pa.struct([("pos", pa.int64()), ("le", pa.int64()), *columns])
    outputs = [(f"f{i}", node.schema[name].type.arrow) for i, name in enumerate(_given(node))]
    gives = pa.list_(pa.struct([("le", pa.int64()), *outputs]))

    def call(lists: Any) -> pa.Array:
        return pa.array([_GroupTuples(node, items).outputs() for items in lists.to_pylist()], gives)

    return HistoryFunction(name, (pa.list_(takes),), gives, call)


class _GroupTuples:
    """The tuples of one group."""

    def __init__(self, node: Match, items: list[dict[str, Any]]) -> None:
        items = sorted(items, key=lambda item: item["pos"])
        self.node, self.times = node, [item["le"] for item in items]
        self.refs = node.references.refs
        columns = {
            field.name: pa.array([_one_zero(item[f"f{i}"]) for item in items], field.type.arrow)
            for i, field in enumerate(node.input.schema)
        }
        self.table = pa.table({**columns, START: pa.array(self.times, pa.int64())})
        for name, (expr, back) in node.references.prevs.items():
            places = np.arange(len(items)) - back
            none = (places < 0) | (places >= len(items))
            found = evaluate(expr, self.table).take(pa.array(places, mask=none))
            self.table = self.table.append_column(name, found)
        self.arguments = {
            name: evaluate(ref.argument, self.table).to_pylist()
            for name, ref in self.refs.items()
            if ref.argument is not None
        }
        self.alone: dict[str, list[bool]] = {}
        self.running: dict[str, list[Expr]] = {}
        for variable in node.pattern.variables:
            self._divide(variable)
        self.registers: dict[tuple[int, Labels], dict[str, Any]] = {}

    def _divide(self, variable: str) -> None:
        """Evaluate conditions on single tuples for all tuples at once; keep the others for the search."""
        condition = self.node.conditions[0].get(variable)
        parts = [] if condition is None else conjuncts(condition)
        alone = [part for part in parts if not part.columns() & self.refs.keys()]
        masks = [predicate_mask(part, self.table).to_pylist() for part in alone]
        self.alone[variable] = [all(each) for each in zip(*masks, strict=True)] if masks else [True] * len(self.times)
        self.running[variable] = [part for part in parts if part.columns() & self.refs.keys()]

    # --- ways ---------------------------------------------------------------------------------------------------------

    def ways(self, first: int) -> Iterator[tuple[Labels, bool]]:
        """All runs from a tuple on, the preferred ones first, and whether each is a match."""
        nfa, pattern = self.node.pattern.automaton, self.node.pattern
        plain = pattern.matches == "one" and pattern.guard is None and not any(self.running.values())
        seen: set[tuple[int, int]] = set()  # where nothing but state and place decides, a second try fails as well
        labels: list[str] = []
        trying = [iter(nfa.moves[0])]
        while trying:
            state = next(trying[-1], None)
            if state is None:
                trying.pop()
                del labels[-1:]
            elif state == ACCEPT:
                guard = self.node.conditions[1]
                if guard is None or self._value(guard, first, tuple(labels)) is True:
                    yield tuple(labels), True
            elif not (plain and (state, len(labels)) in seen):
                seen.add((state, len(labels)))
                labels.append(nfa.variables[state - 1])
                if self._fits(first, tuple(labels)):
                    yield tuple(labels), False
                    trying.append(iter(nfa.moves[state]))
                else:
                    labels.pop()

    def _fits(self, first: int, labels: Labels) -> bool:
        """Whether the last tuple of a run fulfils its condition."""
        place, span = first + len(labels) - 1, self.node.pattern.span
        if place == len(self.times) or not self.alone[labels[-1]][place]:
            return False
        if span is not None and self.times[place] - self.times[first] > span:
            return False
        return all(self._value(part, first, labels) is True for part in self.running[labels[-1]])

    # --- values -------------------------------------------------------------------------------------------------------

    def _value(
        self, expr: Expr, first: int, labels: Labels, *, whole: Labels | None = None, before: int = 0, number: int = 0
    ) -> Any:
        """An expression over a run, at its last tuple; `before` is 1 if that tuple is not yet in the run.

        Measures use the `whole` match, and their sums are exact.
        """
        place = first + len(labels) - 1 + before
        used = expr.columns()
        columns = {name: self.table.column(name).slice(place, 1) for name in used if name not in self.refs}
        for name in used & self.refs.keys():
            references = whole if whole is not None and self.refs[name].final else labels
            if self.refs[name].function == "match_number":
                columns[name] = pa.array([number], pa.int64())
                continue
            found = self._reference_value(name, self.refs[name], first, references, exact=whole is not None)
            columns[name] = pa.array([found], self.refs[name].type.arrow)
        table = pa.table(columns) if columns else pa.table({"__one": [0]})
        return evaluate(expr, table).to_pylist()[0]

    def _reference_value(self, name: str, ref: Ref, first: int, labels: Labels, *, exact: bool) -> Any:
        if ref.function == "classifier":
            return labels[-1]
        if ref.function == "register":
            return self._registers(first, labels)[str(ref.variable)]
        places = [first + i for i, label in enumerate(labels) if self.node.references.of(ref, label)]
        if ref.argument is None:
            return len(places)
        values = [self.arguments[name][place] for place in places]
        if ref.function in ("first", "last"):
            inward = values if ref.function == "first" else values[::-1]
            return inward[ref.offset] if len(values) > ref.offset else None
        known = [value for value in values if value is not None]
        if not exact and ref.function in ("sum", "avg") and ref.type is Type.DOUBLE:
            return _in_order(ref.function, known)
        if ref.function == "approx_distinct":
            assert ref.argument is not None
            if not self.node.input.properties.insert_only:  # a sketch cannot forget
                return _distinct(known)
            return _aggregated(ref, known, ref.argument.type(self.node.references.of_tuples).arrow)
        return _aggregated(ref, known)

    def _registers(self, first: int, labels: Labels) -> dict[str, Any]:
        """The values of the registers."""
        if not labels:
            return {register.name: register.start.value for register in self.node.pattern.registers}
        key = (first, labels)
        if key not in self.registers:
            found = dict(self._registers(first, labels[:-1]))
            for (name, variable), update in self.node.updates.items():
                if variable == labels[-1]:
                    found[name] = self._value(update, first, labels[:-1], before=1)
            self.registers[key] = found
        return self.registers[key]

    # --- outputs ------------------------------------------------------------------------------------------------------

    def outputs(self) -> list[dict[str, Any]]:
        """The outputs of the matches."""
        every = self.node.rows == "all"
        return [
            self._output(first, labels[:length], labels, complete=complete, number=number)
            for number, (first, labels, complete) in enumerate(self._matches(), 1)
            for length in range(1 if every else len(labels), len(labels) + 1)
        ]

    def _matches(self) -> Iterator[tuple[int, Labels, bool]]:
        pattern, first = self.node.pattern, 0
        while first < len(self.times):
            if pattern.matches == "all":
                complete: dict[Labels, bool] = {}
                for labels, done in self.ways(first):
                    complete[labels] = complete.get(labels, False) or done
                yield from ((first, labels, done) for labels, done in complete.items() if done or pattern.partials)
                first += 1
                continue
            best = next((labels for labels, done in self.ways(first) if done), None)
            if best is not None:
                yield first, best, True
            first = self._after(first, best)
        self.registers.clear()

    def _after(self, first: int, labels: Labels | None) -> int:
        skip = self.node.pattern.policy
        if labels is None or skip.to == "next":
            return first + 1
        if skip.to == "past":
            return first + len(labels)
        if skip.variable not in labels:
            return first + 1
        place = labels.index(skip.variable) if skip.to == "first" else _last(labels, skip.variable)
        return first + max(1, place)

    def _output(self, first: int, labels: Labels, whole: Labels, *, complete: bool, number: int) -> dict[str, Any]:
        place = first + len(labels) - 1
        own = self.node.input.schema.names if self.node.rows == "all" else ()
        values = [self.table.column(name)[place].as_py() for name in own]
        values += [self._value(expr, first, labels, whole=whole, number=number) for expr in self.node.values.values()]
        values += [complete] if self.node.pattern.partials else []
        return {"le": self.times[place], **{f"f{i}": value for i, value in enumerate(values)}}


def _last(labels: Sequence[str], name: str) -> int:
    return len(labels) - 1 - labels[::-1].index(name)


def _one_zero(value: Any) -> Any:
    return value + 0.0 if isinstance(value, float) else value


def _in_order(function: str, values: Sequence[Any]) -> float | None:
    """Floating-point sums in conditions add one value at a time, with rounding."""
    if not values:
        return None
    total = 0.0
    for value in values:
        total += float(value)
    return total if function == "sum" else total / len(values)


def _distinct(values: Sequence[Any]) -> int:
    return len({"NaN" if isinstance(value, float) and math.isnan(value) else value for value in values})


def _aggregated(ref: Ref, values: Sequence[Any], *parameters: Any) -> Any:
    if ref.function == "count":
        return len(values)
    if ref.function == "distinct_count":
        return _distinct(values)
    if ref.function in ("min", "max"):
        chosen = min if ref.function == "min" else max
        return chosen(values, key=lambda v: (isinstance(v, float) and math.isnan(v), v), default=None)
    if ref.function == "sum" and ref.type is Type.LONG:
        return sum(values) if values and -(2**63) <= sum(values) < 2**63 else None
    return BY_LIST[ref.function](list(enumerate(values)), *(ref.parameters or parameters))
