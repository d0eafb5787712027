"""Joins as SQL: pairs of rows whose lifetimes overlap, and the parts of a lifetime without a match."""

# ruff: noqa: S608 - SQL is what is made here, and every name in it is the plan's own, quoted

from __future__ import annotations

from collections.abc import Mapping

from headrace.history.script import HistoryRelation
from headrace.history.translation import Translation
from headrace.plan.nodes import Clip, Join

__all__ = ["clip", "join"]


def join(t: Translation, node: Join) -> None:
    """Pairs, and for left and anti joins the parts of the left lifetimes without one."""
    if node.kind == "inner":
        _inner(t, node)
    else:
        _outer(t, node)


def _equal_keys(t: Translation, node: Join | Clip, left: Mapping[str, str]) -> str:
    """The condition that keys are equal; nulls are equal in keys of groups."""
    right = t.of(node, 1)
    parts = []
    for number, (left_name, right_name) in enumerate(node.on):
        equal = "IS NOT DISTINCT FROM" if number < node.groups else "="
        parts.append(f"{left[left_name]} {equal} r.{t.quote(right.columns[right_name])} AND ")
    return "".join(parts)


def _own(t: Translation, node: Join | Clip) -> dict[str, str]:
    """The columns of the left side, called `l`."""
    return {name: f"l.{t.quote(column)}" for name, column in t.of(node).columns.items()}


def _theirs(t: Translation, node: Join) -> dict[str, str]:
    """The columns of the right side, called `r`, with their names in a pair."""
    right = t.of(node, 1)
    return {new: f"r.{t.quote(right.columns[name])}" for name, new in node.right_columns.items()}


def _passed(t: Translation, node: Join) -> str:
    return f" WHERE {t.over(node.where, HistoryRelation('', node.paired))}" if node.where is not None else ""


def _inner(t: Translation, node: Join) -> None:
    left, right = t.of(node), t.of(node, 1)
    values = t.named(_own(t, node) | _theirs(t, node), node.paired)
    t.give(
        node,
        f"""SELECT * FROM (
  SELECT greatest(l.le, r.le) AS le, least(l.re, r.re) AS re, {values}
  FROM {left.name} l JOIN {right.name} r ON {_equal_keys(t, node, _own(t, node))}l.le < r.re AND r.le < l.re
) pairs{_passed(t, node)}""",
    )


def _outer(t: Translation, node: Join) -> None:
    left, right = t.of(node), t.of(node, 1)
    # Left events are identified by their values: equal ones are one event with a count.
    left_name = ["__le", "__re", *(f"__l{i}" for i in range(len(left.schema)))]
    by = ", ".join(left_name)
    own = ", ".join(
        f"{column} AS {name}" for column, name in zip(["le", "re", *t.columns(left)], left_name, strict=True)
    )
    lefts = {name: f"l.__l{i}" for i, name in enumerate(left.schema.names)}
    values = t.named(lefts | _theirs(t, node), node.paired)
    repeat = f"{t.dialect.explode}({t.dialect.series}(1, __times))"
    t.give(
        node,
        f"""WITH lefts AS (
  SELECT {by}, count(*) AS __times FROM (SELECT {own} FROM {left.name}) events GROUP BY {by}
), matched AS (
  SELECT * FROM (
    SELECT {", ".join(f"l.{name}" for name in left_name)}, l.__times,
      greatest(l.__le, r.le) AS __pair_le, least(l.__re, r.re) AS __pair_re, {values}
    FROM lefts l JOIN {right.name} r ON {_equal_keys(t, node, lefts)}l.__le < r.re AND r.le < l.__re
  ) pairs{_passed(t, node)}
), parts AS (
  -- The matched parts of each lifetime, and an empty one at either end.
  SELECT {by}, __times, __pair_le AS __from, __pair_re AS __to FROM matched
  UNION ALL SELECT {by}, __times, __le, __le FROM lefts
  UNION ALL SELECT {by}, __times, __re, __re FROM lefts
), covered AS (
  SELECT *, max(__to) OVER (
    PARTITION BY {by} ORDER BY __from, __to ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS __covered FROM parts
), gaps AS (
  SELECT *, {repeat} AS __time FROM covered WHERE __covered < __from
)
SELECT __covered AS le, __from AS re, {t.named(_alone(t, node), node.schema)} FROM gaps{_pairs(t, node, repeat)}""",
    )


def _alone(t: Translation, node: Join) -> dict[str, str]:
    """The payload of a part without a match: nulls stand for the right side."""
    found = {name: f"__l{i}" for i, name in enumerate(node.left.schema.names)}
    if node.kind == "left":
        for name, new in node.right_columns.items():
            found[new] = f"CAST(NULL AS {t.dialect.type(node.right.schema[name].type.arrow)})"
    return found


def _pairs(t: Translation, node: Join, repeat: str) -> str:
    """The pairs of a left join: each from `matched`, as often as its left event occurs."""
    if node.kind != "left":
        return ""
    pair = HistoryRelation("", node.paired)
    columns = ", ".join(t.columns(pair))
    repeated = f"SELECT __pair_le AS le, __pair_re AS re, {columns}, {repeat} AS __time FROM matched"
    return f"\nUNION ALL\nSELECT {t.all(pair)} FROM ({repeated}) pairs"


def clip(t: Translation, node: Clip) -> None:
    """Every left event up to the first start of a right one inside it."""
    left, right = t.of(node), t.of(node, 1)
    own = ["le", "re", *t.columns(left)]
    payload = "".join(f", {name}" for name in t.columns(left))
    t.give(
        node,
        f"""WITH lefts AS (
  SELECT {", ".join(own)}, count(*) AS __times FROM {left.name} GROUP BY {", ".join(own)}
), clipped AS (
  SELECT {", ".join(f"l.{name}" for name in own)}, l.__times, min(r.le) AS __clip
  FROM lefts l LEFT JOIN {right.name} r ON {_equal_keys(t, node, _own(t, node))}r.le > l.le AND r.le < l.re
  GROUP BY {", ".join(f"l.{name}" for name in own)}, l.__times
), repeated AS (
  SELECT *, {t.dialect.explode}({t.dialect.series}(1, __times)) AS __time FROM clipped
)
SELECT le, least(re, __clip) AS re{payload} FROM repeated""",
    )
