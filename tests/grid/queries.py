"""Rows of the grid that differ in the query: operators, windows, modules, patterns, loops, SQL."""

# ruff: noqa: ARG005 - every query gets both streams
from __future__ import annotations

from tests.grid.features import Feature, operators

import headrace as hr
from headrace.testing.intents.samples import (
    TEXTS,
    Each,
    InOrder,
    Later,
    Merged,
    PayloadChecksum,
    Seen,
    SeenInTime,
    TallyEach,
    capped,
    halved,
)

__all__ = ["QUERIES"]

col = hr.col
NO_STATE = {"state": "the query has no state", "stage": "the query has no stages"}


def grouped(stream: hr.Stream, window: object) -> hr.Stream:
    """An aggregate over a window, by group."""
    return stream.group_by("k").window(window).aggregate(n=hr.count(), s=hr.sum("x"), top=hr.max("i"))  # type: ignore[arg-type]


SPANS = operators(
    "span",
    {
        "where and select": lambda a, b: a.where(col("i") > 0).select("k", i=col("i") + 1, x=-col("x")),
        "shift and union": lambda a, b: a.shift(2).union(b),
        "udf": lambda a, b: a.where(halved("x") > 0.5).select("k", "i", x=capped("x")),
        "explode": lambda a, b: a.with_columns(i=hr.array("i", 3)).explode("i"),
        "chop": lambda a, b: a.cap_duration(15).chop(4),
    },
    lacks=NO_STATE,
)
LIFETIMES = operators(
    "lifetimes",
    {
        "distinct": lambda a, b: a.distinct("k", "i"),
        "coalesce": lambda a, b: a.select("k").coalesce(),
        "alter lifetime": lambda a, b: a.alter_lifetime(duration=col("i") + 2).group_by("k").aggregate(n=hr.count()),
        "final": lambda a, b: a.group_by("k").aggregate(n=hr.count()).final(),
    },
)
JOINS = operators(
    "join",
    {
        "join": lambda a, b: a.join(b, on="k", where=col("x") < col("x_right")),
        "left join": lambda a, b: a.left_join(b, on=("k", "i")),
        "full join": lambda a, b: a.full_join(b, on="i"),
        "theta join": lambda a, b: a.join(b, where=col("i") < col("i_right")).select("k", "x"),
        "semi join": lambda a, b: a.semi_join(b, on="k"),
        "anti join": lambda a, b: a.anti_join(b, on="k", where=col("i") >= col("i_right")),
        "clip": lambda a, b: a.clip(b, on="k"),
        "table join": lambda a, b: a.join_table(TEXTS, on="k").group_by("name").aggregate(n=hr.count()),
        "self join": lambda a, b: a.join(a.shift(2), on="k").select("k", "i", x=col("x_right")),
    },
)
WINDOWS = operators(
    "window",
    {
        "tumbling": lambda a, b: grouped(a, hr.tumbling(4)),
        "hopping": lambda a, b: grouped(a, hr.hopping(6, every=2)),
        "jumping": lambda a, b: grouped(a, hr.hopping(3, every=5)),
        "sliding": lambda a, b: grouped(a, hr.sliding(6)),
        "snapshot": lambda a, b: grouped(a, hr.snapshot()),
        "session": lambda a, b: grouped(a.cap_duration(2), hr.session(3)),
        "cut session": lambda a, b: grouped(a.cap_duration(2), hr.session(3, longest=12)),
        "count by start": lambda a, b: grouped(a, hr.count_by_start(3)),
        "count by end": lambda a, b: grouped(a.cap_duration(5), hr.count_by_end(2)),
        "landmark": lambda a, b: grouped(a, hr.landmark(0, every=4)),
        "fixed": lambda a, b: grouped(a, hr.fixed(4, 16)),
        "delta": lambda a, b: grouped(a, hr.delta(col("x") - col("first.x"), 3)),
        "slides of tuples": lambda a, b: grouped(a, hr.sliding(4, every=2)),
        "every instant": lambda a, b: a.group_by("k").aggregate(n=hr.count(), s=hr.sum("x")),
        "no groups": lambda a, b: a.window(hr.tumbling(3)).aggregate(n=hr.count(), s=hr.sum("x")),
    },
)
AGGREGATES = operators(
    "aggregate",
    {
        "in order": lambda a, b: (
            a.group_by("k").window(hr.tumbling(4)).aggregate(f=hr.first("x"), l=hr.last("i"), t=hr.concat("k", "-"))
        ),
        "quantiles": lambda a, b: a.group_by("k").window(hr.tumbling(4)).aggregate(m=hr.median("x"), v=hr.var("x")),
        "distinct count": lambda a, b: a.window(hr.tumbling(4)).aggregate(d=hr.distinct_count("x")),
        "sketches": lambda a, b: a.window(hr.tumbling(4)).aggregate(
            d=hr.approx_distinct("x"), t=hr.top_frequent("k", 2)
        ),
        "top": lambda a, b: a.group_by("k").window(hr.tumbling(4)).top(2, by=["x", "i"]),
        "ranks": lambda a, b: a.group_by("k").over(by=["x", "i"]).aggregate(place=hr.row_number()),
        "two levels": lambda a, b: (
            grouped(a, hr.tumbling(2)).group_by("n").window(hr.tumbling(6)).aggregate(keys=hr.count(), top=hr.max("s"))
        ),
        "group apply": lambda a, b: a.group_by("k").apply(
            lambda g: g.window(hr.session(4)).aggregate(n=hr.sum("i"), s=hr.avg("x"))
        ),
        "shared stages": lambda a, b: grouped(a, hr.tumbling(4)).join(grouped(b, hr.tumbling(4)), on="k"),
    },
)
MODULES = operators(
    "module",
    {
        "uda": lambda a, b: a.group_by("k").window(hr.tumbling(4)).aggregate(c=Seen().of("i", "x")),
        "uda with times": lambda a, b: a.group_by("k").window(hr.tumbling(4)).aggregate(c=SeenInTime().of("i", "x")),
        "incremental uda": lambda a, b: (
            a.group_by("k").window(hr.snapshot()).aggregate(c=PayloadChecksum().of("i", "x"))
        ),
        "merging uda": lambda a, b: a.group_by("k").window(hr.hopping(6, every=3)).aggregate(c=Merged().of("i", "x")),
        "ordered uda": lambda a, b: a.group_by("k").window(hr.tumbling(4)).aggregate(c=InOrder().of("i", "x")),
        "udo": lambda a, b: a.group_by("k").window(hr.tumbling(4)).operate(Each(), "i", "x"),
        "udo with times": lambda a, b: a.group_by("k").window(hr.tumbling(4)).operate(Later(), "i", "x"),
        "incremental udo": lambda a, b: a.group_by("k").window(hr.snapshot()).operate(TallyEach(), "i", "x"),
    },
)
_RISING = hr.pattern("A B+", define={"B": col("x") >= hr.prev("x")})
PATTERNS = operators(
    "pattern",
    {
        "pattern": lambda a, b: a.group_by(by=col("k")).match(_RISING, n=hr.count(), s=hr.sum("B.x")),
        "pattern within": lambda a, b: a.group_by(by=col("k")).match(
            _RISING.within(6).skip("to next row"), n=hr.count()
        ),
        "all matches": lambda a, b: a.group_by(by=col("k")).match(
            hr.pattern("A B", define={"B": col("i") > 0}).all_matches().within(4), n=hr.count(), s=hr.sum("x")
        ),
        "absence": lambda a, b: a.group_by(by=col("k")).match(
            hr.pattern("A !C", define={"C": col("i") <= 0}, within=4).skip("to next row"), s=hr.sum("A.x")
        ),
    },
)


def links(b: hr.Stream) -> hr.Stream:
    return b.select(src=col("i"), dst=(col("i") * 2 + hr.when(col("x") > 4).then(1).otherwise(0)) % 5)


def reached(a: hr.Stream, b: hr.Stream) -> hr.Stream:
    """A loop across buckets: nodes that can be reached along links."""
    steps = links(b)
    seeds = a.where(col("i") < 2).select(node=col("i"))
    return hr.recurse(seeds, lambda f: f.join(steps, on={"node": "src"}).select(node=col("dst")))


def nearest(a: hr.Stream, b: hr.Stream) -> hr.Stream:
    """A loop whose results later input retracts: the least value that arrives at each node."""
    steps = links(b)

    def step(f: hr.Stream) -> hr.Stream:
        moved = f.join(steps, on={"node": "src"}).select(node=col("dst"), x=col("x"))
        return moved.group_by("node").window(hr.snapshot()).aggregate(x=hr.min("x"))

    return hr.recurse(a.where(col("i") < 2).select(node=col("i"), x=col("x")), step)


def inside(a: hr.Stream, b: hr.Stream) -> hr.Stream:
    """A loop inside a bucket: every group has its own."""
    own = links(b)

    def of_group(g: hr.Stream) -> hr.Stream:
        seeds = g.where(col("i") < 2).select(node=col("i"))
        return hr.recurse(seeds, lambda f: f.join(own, on={"node": "src"}).select(node=col("dst")))

    return a.group_by("k").apply(of_group)


LOOPS = operators("loop", {"loop across buckets": reached, "revising loop": nearest, "loop in a bucket": inside})
_MEAN = """
CREATE AGGREGATE mean_of(next DOUBLE): DOUBLE {
    TABLE state(total DOUBLE, n INT);
    INITIALIZE: { INSERT INTO state VALUES (next, 1); }
    ITERATE: { UPDATE state SET total = total + next, n = n + 1; }
    TERMINATE: { INSERT INTO RETURN SELECT total / n FROM state; }
};
"""
_EACH = """
CREATE AGGREGATE decaying(next DOUBLE): DOUBLE {
    TABLE state(mean DOUBLE);
    INITIALIZE: { INSERT INTO state VALUES (next); INSERT INTO RETURN VALUES (next); }
    ITERATE: { UPDATE state SET mean = 0.25 * next + 0.75 * mean; INSERT INTO RETURN SELECT mean FROM state; }
};
"""
SQL = operators(
    "sql",
    {
        "sql aggregate": lambda a, b: hr.sql(
            _MEAN + "SELECT k, mean_of(x) AS mean FROM a [TUMBLING 4 ticks] GROUP BY k", a=a
        ),
        "sql running aggregate": lambda a, b: hr.sql(_EACH + "SELECT k, decaying(x) AS mean FROM a GROUP BY k", a=a),
        "sql set operation": lambda a, b: hr.sql("SELECT k, i FROM a EXCEPT SELECT k, i FROM b", a=a, b=b),
        "sql sub-query": lambda a, b: hr.sql("SELECT k, i FROM a WHERE i IN (SELECT i FROM b)", a=a, b=b),
        "sql join": lambda a, b: hr.sql(
            "SELECT a.k AS k, count(*) AS i FROM a JOIN b ON a.i = b.i GROUP BY a.k", a=a, b=b
        ),
    },
)
QUERIES: list[Feature] = [
    *SPANS, *LIFETIMES, *JOINS, *WINDOWS, *AGGREGATES, *MODULES, *PATTERNS, *LOOPS, *SQL,
]  # fmt: skip
