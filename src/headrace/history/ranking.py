"""The top of a ranking, places in it, and what events see of those around them, as SQL over a window's content.

`ranked` has the content with the place of each event, `__rank`. A frame is the run of places from `__first` to
`__last`, which the standard's own frames find. Then one event of a frame is a join on its place, and an aggregate is a
GROUP BY over a join with the run.
"""

# ruff: noqa: S608 - SQL is what is made here, and every name in it is the plan's own, quoted

from __future__ import annotations

from collections.abc import Sequence

from headrace.expr import AggregateCall
from headrace.history.per_window import call_sql, keyed, window_columns
from headrace.history.translation import Translation
from headrace.plan.around import Around, Distance
from headrace.plan.nodes import Aggregate, Top

__all__ = ["top"]


def top(t: Translation, node: Top) -> None:
    """The first few rows of each window."""
    keys, windows = keyed(t, node)
    below = t.of(node)
    window = window_columns(keys, node)
    order = zip(node.by, node.directions, strict=True)
    ranks = [f"{t.over(expr, below)} {'DESC' if down else 'ASC'} NULLS LAST" for expr, down in order]
    peers = f"ORDER BY {', '.join(ranks)}"
    ranks += [f"{column} ASC NULLS LAST" for column in t.columns(below)]
    sorting = f"ORDER BY {', '.join(ranks)}"
    values = {name: t.quote(column) for name, column in below.columns.items()}
    values |= {name: key for key, (name, _) in zip(keys, node.keys, strict=True) if name not in below.schema}
    values |= {name: f"CAST(__place{i} AS BIGINT)" for i, (name, _) in enumerate(node.places)}
    values |= {name: f"__place{i}" for i, (name, place) in enumerate(node.places) if isinstance(place, Around)}
    distinct = [*window, *(t.over(expr, below) for expr in node.distinct)]
    each = [*window, *(t.over(expr, below) for expr in node.each)]
    numbers = {
        "row_number": f"row_number() OVER (PARTITION BY {', '.join(each)} {sorting})",
        "rank": f"rank() OVER (PARTITION BY {', '.join(each)} {peers})",
        "dense_rank": f"dense_rank() OVER (PARTITION BY {', '.join(each)} {peers})",
        "copy": f"row_number() OVER (PARTITION BY {', '.join([*each, *t.columns(below)])} {sorting})",
    }
    places = "".join(
        f", {numbers[place]} AS __place{i}" for i, (_, place) in enumerate(node.places) if not isinstance(place, Around)
    )
    chosen = "content"
    if node.distinct:
        chosen = "chosen"
        windows += f""", compared AS (
  SELECT *, row_number() OVER (PARTITION BY {", ".join(distinct)} {sorting}) AS __nth FROM content
), chosen AS (
  SELECT * FROM compared WHERE __nth = 1
)"""
    seen, source = _seen(t, node, window, peers) if node.around else ("", "ranked")
    t.give(
        node,
        f"""WITH {windows}, ranked AS (
  SELECT *, {numbers["row_number"]} AS __rank{places} FROM {chosen}
){seen}
SELECT __wle AS le, __wre AS re, {t.named(values, node.schema)} FROM {source}
WHERE __rank > {node.skip} AND __rank <= {node.skip + node.k}""",
    )


def _seen(t: Translation, node: Top, window: Sequence[str], peers: str) -> tuple[str, str]:
    """Common table expressions behind `ranked`, and what has all columns and those of the frames."""
    around = [(i, place) for i, (_, place) in enumerate(node.places) if isinstance(place, Around)]
    bounds = []
    for i, place in around:
        order = "ORDER BY __rank ROWS" if place.unit == "rows" else f"{peers} RANGE"
        if place.measures:
            order = f"ORDER BY {_number(t, node)} {'DESC' if node.directions[0] else 'ASC'} NULLS LAST RANGE"
        frame = f"BETWEEN {_side(place.start, 'PRECEDING')} AND {_side(place.end, 'FOLLOWING')}"
        over = f"OVER (PARTITION BY {', '.join(window)} {order} {frame})"
        bounds += [f"min(__rank) {over} AS __first{i}", f"max(__rank) {over} AS __last{i}"]
    found = [
        f"""framed AS (
  SELECT *, {", ".join(bounds)} FROM ranked
)"""
    ]
    found += [f"seen{i} AS (\n{_answers(t, node, window, i, place)}\n)" for i, place in around]
    columns = ", ".join(["framed.*", *(f"seen{i}.__place{i}" for i, _ in around)])
    joins = " ".join(
        f"JOIN seen{i} ON {_same(window, 'framed', f'seen{i}')} AND framed.__rank = seen{i}.__of" for i, _ in around
    )
    found.append(f"""surrounded AS (
  SELECT {columns} FROM framed {joins}
)""")
    return "".join(f", {part}" for part in found), "surrounded"


def _answers(t: Translation, node: Top, window: Sequence[str], i: int, place: Around) -> str:
    """The answer of a frame for each event."""
    below = t.of(node)
    of = ", ".join(f"{column} AS {column}_of" for column in window)
    events = f"(SELECT {of}, __rank AS __of, __first{i} AS __first, __last{i} AS __last FROM framed) e"
    others = f"(SELECT {', '.join([*window, *t.columns(below)])}, __rank AS le FROM framed) o"
    same = " AND ".join(f"{column}_of IS NOT DISTINCT FROM {column}" for column in window)
    own = [*(f"{column}_of AS {column}" for column in window), "__of"]
    groups = ", ".join([*(f"{column}_of" for column in window), "__of"])
    if place.nth is not None:
        wanted = f"__first + {place.nth - 1}" if place.nth > 0 else f"__last + {place.nth + 1}"
        answer = t.over(place.value, below)
        joined = f"le = {wanted} AND le BETWEEN __first AND __last"
        return (
            f"  SELECT {', '.join(own)}, {answer} AS __place{i} FROM {events} LEFT JOIN {others} ON {same} AND {joined}"
        )
    call = place.value
    assert isinstance(call, AggregateCall)
    aggregate = Aggregate(node.input, node.keys, node.window, ((f"p{i}", call),))
    answer = "count(le)" if call.argument is None else call_sql(t, aggregate, call)
    return f"""  SELECT {", ".join(own)}, {answer} AS __place{i}
  FROM {events} LEFT JOIN {others} ON {same} AND le BETWEEN __first AND __last
  GROUP BY {groups}"""


def _number(t: Translation, node: Top) -> str:
    """The order in a type in which the distances of frames cannot overflow."""
    below = t.of(node)
    key = t.over(node.by[0], below)
    return f"CAST({key} AS {t.dialect.wide if node.by[0].type(below.schema).is_integer else 'DOUBLE'})"


def _same(window: Sequence[str], left: str, right: str) -> str:
    return " AND ".join(f"{left}.{column} IS NOT DISTINCT FROM {right}.{column}" for column in window)


def _side(distance: Distance, unbounded: str) -> str:
    if distance is None:
        return f"UNBOUNDED {unbounded}"
    if distance == 0:
        return "CURRENT ROW"
    number = f"CAST({abs(distance)!r} AS DOUBLE)" if isinstance(distance, float) else str(abs(distance))
    return f"{number} {'PRECEDING' if distance < 0 else 'FOLLOWING'}"
