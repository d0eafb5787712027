"""Random plans for property tests: every stream has the columns of `strategies.SCHEMA`, so any two can be united.

Like `strategies` it needs hypothesis.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from headrace.api.checks import instants_may_meet
from headrace.api.inputs import events
from headrace.api.stream import Stream
from headrace.api.windows import hopping
from headrace.expr import (
    Expr,
    approx_distinct,
    array,
    avg,
    col,
    collect,
    count,
    distinct_count,
    first,
    geometric_mean,
    last,
    lit,
    max,
    median,
    min,
    percentile_disc,
    quantile,
    stddev,
    sum,
    top_frequent,
    udf,
    var,
    when,
)
from headrace.expr.in_order import concat
from headrace.expr.times import end, start
from headrace.plan.windows import Grid
from headrace.testing.strategies import SCHEMA, Event, batch_sizes, physical_streams, tables

__all__ = ["aggregates", "grids", "meets", "plans", "sources", "spans"]


@udf
def _size(values: list[float]) -> int:
    return len(values)


@udf(takes="ARRAY<STRING>, STRING", returns="STRING", nulls="pass")
def _foremost(values: list[str], otherwise: str | None) -> str | None:
    return values[0] if values else otherwise


@udf
def _halved(x: float) -> float:
    return x / 2


_WHOLE = (
    count(), count("x"), count("k"), sum("i"), min("i"), max("i"), first("i"), last("i"), sum("i") + count(),
    max("i") - min("i"), distinct_count("x"), distinct_count("k"), approx_distinct("i"), _size(collect("x")),
)  # fmt: skip
_FLOATS = (
    sum("x"), avg("x"), avg("i"), var("x"), var("i"), stddev("x"), stddev("i"), min("x"), max("x"), first("x"),
    last("x"), sum("x") / count("x"), var(col("x") * 0.5), sum(col("x") + col("i")), max("x") - min("x"), median("x"),
    quantile("x", 0.3), quantile("i", 0.9), percentile_disc("x", 0.4), sum("x", where=col("i") > 0),
    median("i") - first("i"), geometric_mean("x"), geometric_mean("i"), median(_halved("x")), _halved(sum("x")),
)  # fmt: skip
_TEXTS = (min("k"), max("k"), first("k"), last("k"), concat("k", "-"), _foremost(top_frequent("k", 2), max("k")))
_PREDICATES = (
    col("i") > 0, col("x") >= 0.0, col("k") == "a", col("x").is_null(), col("k").is_not_null(), lit(True),
    (col("i") > 0) | (col("x") < 1.0),
)  # fmt: skip
_MAPS: tuple[dict[str, Expr], ...] = (
    {"k": col("k"), "i": col("i") + 1, "x": -col("x")},
    {"k": col("k").coalesce("z"), "i": col("i"), "x": col("x")},
    {"k": when(col("i") > 1).then(lit("a")).otherwise("k"), "i": col("i").coalesce(1), "x": col("x")},
    {"k": lit("a"), "i": col("i"), "x": lit(0.5)},
)


def sources(events_: Sequence[Event], sizes: tuple[int, ...]) -> Stream:
    """A stream of drawn events, in batches of these sizes."""
    return events(tables(events_), SCHEMA.arrow, batches=sizes)


@st.composite
def _source(draw: st.DrawFn, max_events: int) -> Stream:
    drawn = draw(physical_streams(max_events=max_events))
    return sources(drawn, draw(batch_sizes(len(drawn))))


def grids() -> st.SearchStrategy[Grid]:
    """Tumbling, hopping and jumping windows, with origins."""
    return st.builds(hopping, st.integers(1, 12), st.integers(1, 12), st.integers(-7, 7))


def _in_order(stream: Stream) -> Stream:
    return stream if stream.schema == SCHEMA else stream.select("k", "i", "x")


@st.composite
def aggregates(draw: st.DrawFn, below: Stream) -> Stream:
    """A windowed aggregate, with one, several or no keys."""
    keys = draw(st.sampled_from([("k",), ("k",), (), ("k", "i"), ("i",), ("x",), ("i", "k")]))
    choices = {"k": _TEXTS, "i": _WHOLE, "x": _FLOATS}
    named = {name: draw(st.sampled_from(some)) for name, some in choices.items() if name not in keys}
    return _in_order(below.group_by(*keys).window(draw(grids())).aggregate(**named))


@st.composite
def spans(draw: st.DrawFn, below: Stream) -> Stream:
    """One operator without state."""
    kinds = [
        "where", "select", "shift", "set_duration", "extend", "point_at_start", "point_at_end", "cap_duration",
        "event_times", "alter_lifetime", "chop", "explode",
    ]  # fmt: skip
    kind = draw(st.sampled_from(kinds))
    number = draw(st.integers(-6, 6))
    if kind == "where":
        return below.where(draw(st.sampled_from(_PREDICATES)))
    if kind == "select":
        return below.select(**draw(st.sampled_from(_MAPS)))
    if kind == "event_times":
        moment = draw(st.sampled_from([start(), end()]))
        return below.where(moment % 2 == 0) if number < 0 else below.select("k", i=moment, x=col("x"))
    if kind == "alter_lifetime":
        later = below.alter_lifetime(start=start() + number, end=end() + 1)
        return later if number % 2 else below.alter_lifetime(duration=col("i") + 2)
    if kind == "explode":
        lists = below.with_columns(more=array("i", number, "i")).explode("more", outer=number < 0)
        return lists.select("k", i="more", x="x")
    if kind == "chop":
        return below.cap_duration(9).chop(abs(number) + 1, number)
    if kind == "set_duration":
        return below.set_duration(abs(number) + 1)
    if kind == "cap_duration":
        return below.cap_duration(abs(number) + 1)
    if kind in ("point_at_start", "point_at_end"):
        return below.point_at_start() if kind == "point_at_start" else below.point_at_end()
    return below.shift(number) if kind == "shift" else below.extend(number)


@st.composite
def meets(draw: st.DrawFn, left: Stream, right: Stream) -> Stream:
    """Two streams that meet; pairs only by several keys, so that depth does not multiply them."""
    kind = draw(st.sampled_from(["join", "left_join", "anti_join", "clip", "full_join", "semi_join"]))
    if kind == "clip":
        return left.clip(right, draw(st.sampled_from(["k", ("k", "i"), ()])))
    with instants_may_meet():
        if kind == "semi_join":
            return left.semi_join(right, draw(st.sampled_from(["k", [("k", "k"), (col("i") % 2, col("i") % 2)]])))
        if kind == "anti_join":
            return left.anti_join(right, "k", draw(st.sampled_from([None, col("i") >= col("i_right")])))
        joined = getattr(left, kind)(right, ("k", "i"))
    return joined.select("k", "i", x=col("x_right"))


@st.composite
def plans(draw: st.DrawFn, *, depth: int = 4, max_events: int = 10) -> Stream:
    """A random composition over one or two sources."""
    first_source = draw(_source(max_events))
    streams = [first_source, draw(_source(max_events // 2))] if draw(st.booleans()) else [first_source]
    current = first_source
    for _ in range(draw(st.integers(1, depth))):
        kind = draw(st.sampled_from(["span", "span", "aggregate", "union", "meet", "coalesce", "final"]))
        if kind == "span":
            current = draw(spans(current))
        elif kind == "aggregate":
            current = draw(aggregates(current))
        elif kind == "union":
            current = current.union(draw(st.sampled_from(streams)))
        elif kind == "meet":
            current = draw(meets(current, draw(st.sampled_from(streams))))
        elif kind == "coalesce":
            current = current.coalesce()
        else:
            current = current.final()
        streams.append(current)
    return current
