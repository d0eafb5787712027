"""Folds as SQL: each group's tuples are collected in order, processed in one call, and unnested."""

# ruff: noqa: S608 - SQL is what is made here, and every name in it is the plan's own, quoted

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.history import ordered
from headrace.history.script import HistoryFunction
from headrace.history.translation import Translation
from headrace.modules.fold import Stepper
from headrace.plan.fold import Fold

__all__ = ["fold"]


def fold(t: Translation, node: Fold) -> None:
    """The output of a module at each tuple, beside the tuple or at its own time."""
    below, dialect = t.of(node), t.dialect
    keys = [f"__k{i}" for i in range(len(node.keys))]
    exprs = "".join(f", {t.over(expr, below)} AS {key}" for key, (_, expr) in zip(keys, node.keys, strict=True))
    fields = {"pos": "__pos", "le": "le"}
    for number, ((_, expr), field) in enumerate(zip(node.mapping, node.module.fields, strict=True)):
        fields[f"f{number}"] = f"CAST({t.over(expr, below)} AS {dialect.type(field.type.arrow)})"
    function = t.function(lambda name: fold_function(name, node))
    comma = "".join(f"{key}, " for key in keys)
    grouped = f"GROUP BY {', '.join(keys)}" if keys else "HAVING count(*) > 0"
    same = "".join(f"e.{key} IS NOT DISTINCT FROM w.{key} AND " for key in keys)
    answers = {name: f"w.__answer.f{i}" for i, name in enumerate(node.answers.names)}
    columns = {} if node.active else {name: f"e.{t.quote(column)}" for name, column in below.columns.items()}
    columns |= {name: f"w.{key}" for key, (name, _) in zip(keys, node.keys, strict=True) if name not in columns}
    times = "w.__answer.at AS le, w.__answer.at + 1 AS re" if node.active else "e.le, e.re"
    tuples = f"(SELECT * FROM {ordered.yielding(t, node, keys)}) e"
    source = "answers w" if node.active else f"{tuples} JOIN answers w ON {same}e.__pos = w.__answer.pos"
    t.give(
        node,
        f"""WITH keyed AS (
  SELECT {t.all(below)}{exprs} FROM {below.name}
), {ordered.placed(t, node, keys)}, gathered AS (
  SELECT {comma}{dialect.gather}({dialect.struct(fields)}) AS __tuples FROM placed {grouped}
), answers AS (
  SELECT {comma}{dialect.explode}({function}(__tuples)) AS __answer FROM gathered
)
SELECT {times}, {t.named(columns | answers, node.schema)} FROM {source}""",
    )


def fold_function(name: str, node: Fold) -> HistoryFunction:
    """All outputs for the tuples of a group."""
    fields = [(f"f{i}", field.type.arrow) for i, field in enumerate(node.module.fields)]
    takes = pa.struct([("pos", pa.int64()), ("le", pa.int64()), *fields])
    answers = [(f"f{i}", field.type.arrow) for i, field in enumerate(node.answers)]
    gives = pa.list_(pa.struct([("pos", pa.int64()), ("at", pa.int64()), *answers]))

    def call(lists: Any) -> pa.Array:
        return pa.array([_Whole(node, items).answers() for items in lists.to_pylist()], gives)

    return HistoryFunction(name, (pa.list_(takes),), gives, call)


class _Whole:
    """The fold of one group."""

    def __init__(self, node: Fold, items: list[dict[str, Any]]) -> None:
        self.node, self.folder = node, node.folder
        self.items = sorted(items, key=lambda item: item["pos"])
        self.found: list[dict[str, Any]] = []

    def answers(self) -> list[dict[str, Any]]:
        stepper = self.folder.make()
        try:
            for event in self._events():
                self._happen(stepper, *event)
        except _Stopped:
            pass
        return self.found

    def _events(self) -> list[tuple[int, bool, int]]:
        """The arrivals and departures in order: their times, whether a tuple leaves, and which tuple.

        Where tuples leave just before the next one arrives, its position is the time; else application time is.
        """
        frame, items = self.node.frame, self.items
        if self.node.active:
            assert frame.range is not None
            length = frame.range
            events = [(item["le"], False, i) for i, item in enumerate(items)]
            return sorted(events + [(item["le"] + length, True, i) for i, item in enumerate(items)])
        events = [(2 * i + 1, False, i) for i in range(len(items))]
        for i, item in enumerate(items):
            if frame.rows is not None:
                out = i + frame.rows + 1
            elif frame.range is not None:
                later = (j for j in range(i, len(items)) if items[j]["le"] > item["le"] + frame.range)
                out = next(later, len(items))
            else:
                break
            if out < len(items):
                events.append((2 * out, True, i))
        return sorted(events)

    def _happen(self, stepper: Stepper, time: int, leaves: bool, i: int) -> None:
        item = self.items[i]
        args = [item[f"f{n}"] for n in range(len(self.node.module.fields))]
        args = [value + 0.0 if isinstance(value, float) else value for value in args]  # one zero
        try:
            if not leaves:
                returned = stepper.arrive(*args, mark=i)
            elif not self.folder.keeps_window:
                returned = stepper.expire(*args)
            else:
                inside = stepper.inwindow
                returned = stepper.expire() if inside and inside[0][-1] == i else []
        except (Exception, HeadraceError) as error:
            if self.node.policy.on_error == "fail":
                raise
            raise _Stopped from error
        if self.node.gives_value and len(returned) > 1:
            raise _Stopped
        if self.node.active or not leaves:
            if self.node.gives_value and not returned and not self.node.active:
                returned = [None]
            for value in returned:
                values = value if isinstance(value, tuple) else (value,)
                at = time if self.node.active else item["le"]
                row = {f"f{n}": one for n, one in enumerate(values)}
                self.found.append({"pos": item["pos"], "at": at, **row})


class _Stopped(Exception):
    """The module failed."""
