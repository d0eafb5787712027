"""Deep plans made from a number: five operators and more over two streams, all kinds among them.

Every stream in between has the columns `k STRING, i LONG, x DOUBLE`, so that any operator can follow any other.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import headrace as hr
from headrace import col

__all__ = ["WRITTEN", "deep_plan"]

Pair = tuple[hr.Stream, hr.Stream]


class Middle(hr.Aggregate):
    """The middle value of a window."""

    input = "value DOUBLE"
    output = "DOUBLE"

    def compute(self, values: list[Any]) -> Any:
        return values[len(values) // 2]


class Widest(hr.Operator):
    """The longest event of a window, cut to it, and how many there were."""

    time_sensitive = True
    input = "i LONG, x DOUBLE"
    output = "i LONG, x DOUBLE"

    def compute(self, events: list[Any], _: Any) -> Any:
        longest = max(events, key=lambda e: (e.re - e.le, e.le))
        yield self.event(longest.le, longest.re, len(events), longest.x)


def _back(stream: hr.Stream) -> hr.Stream:
    return stream.select("k", "i", "x")


def _window(draw: random.Random) -> Any:
    return draw.choice([
        hr.snapshot(), hr.count_by_start(draw.randrange(1, 4)), hr.count_by_end(draw.randrange(1, 4)),
        hr.session(draw.randrange(1, 6)), hr.tumbling(draw.randrange(2, 9)), hr.hopping(6, draw.randrange(2, 9)),
    ])  # fmt: skip


def _span(draw: random.Random, s: hr.Stream, _: hr.Stream) -> hr.Stream:
    return draw.choice([
        lambda: s.where((col("i") > -3) | col("x").is_null()), lambda: s.shift(draw.randrange(-4, 5)),
        lambda: s.extend(draw.randrange(-2, 5)), lambda: s.cap_duration(draw.randrange(1, 9)),
        lambda: s.set_duration(draw.randrange(1, 7)), s.point_at_end,
        lambda: s.select("k", i=col("i") + 1, x=-col("x")), lambda: s.where(hr.start() % 5 != 0),
        lambda: s.where(hr.end() - hr.start() > 1), lambda: s.alter_lifetime(start=hr.start() + 1, duration=col("i")),
        lambda: s.cap_duration(12).chop(draw.randrange(2, 7)),
        lambda: s.select("k", "x", i=hr.array("i", draw.randrange(3))).explode("i").select("k", "i", "x"),
    ])()  # fmt: skip


def _aggregate(draw: random.Random, s: hr.Stream, _: hr.Stream) -> hr.Stream:
    made = s.group_by("k").window(_window(draw)).aggregate(
        i=draw.choice([hr.count(), hr.sum("i"), hr.max("i")]), x=draw.choice([hr.avg("x"), hr.min("x"), hr.last("x")])
    )  # fmt: skip
    return _back(made)


def _module(draw: random.Random, s: hr.Stream, _: hr.Stream) -> hr.Stream:
    if draw.random() < 0.5:
        return _back(s.group_by("k").window(_window(draw)).aggregate(i=hr.count(), x=Middle().of("x")))
    policy = {"clipping": draw.choice(["left", "full"]), "timestamping": draw.choice(["align", "clip"])}
    return _back(s.group_by("k").window(_window(draw), **policy).operate(Widest(), "i", "x"))


def _join(draw: random.Random, s: hr.Stream, other: hr.Stream) -> hr.Stream:
    kind = draw.choice(["join", "left_join", "anti_join", "clip"])
    if kind == "clip":
        return s.clip(other, on="k")
    joined = getattr(s, kind)(other, on="k", where=draw.choice([None, col("i") <= col("i_right")]))
    return joined if kind == "anti_join" else joined.select("k", "i", x=col("x_right") + col("x"))


def _group(draw: random.Random, s: hr.Stream, other: hr.Stream) -> hr.Stream:
    first, second = draw.choice([_aggregate, _module, _span]), draw.choice([_join, _aggregate, _merge])
    if draw.random() < 0.5:
        return _back(s.group_by("k").apply(lambda g: second(draw, first(draw, g, g), g)))
    nested = lambda g: _back(g.group_by("i").apply(lambda h: first(draw, h, h)))  # noqa: E731 - one of a pair
    return _back(s.group_by("k").apply(nested)).union(other)


def _merge(draw: random.Random, s: hr.Stream, _: hr.Stream) -> hr.Stream:
    return draw.choice([s.coalesce, s.distinct, lambda: _back(s.top(2, by="i"))])()


def deep_plan(number: int, depth: int = 5) -> Callable[[Pair], hr.Stream]:
    """A plan of at least that many operators on the way from one of the streams to the output."""

    def build(streams: Pair) -> hr.Stream:
        draw = random.Random(number)
        current, others = streams[0], [*streams]
        for _ in range(depth + number % 2):
            step = draw.choice([_span, _aggregate, _aggregate, _module, _join, _join, _group, _merge])
            current = step(draw, current, draw.choice(others))
            others.append(current)
        return current

    return build


def _windows_of_joins(streams: Pair) -> hr.Stream:
    a, b = streams
    left = _back(a.join(b, on="k").group_by("k").window(hr.tumbling(5)).aggregate(i=hr.count(), x=hr.sum("x")))
    joined = b.left_join(a.shift(2), on="k").group_by("k").window(hr.session(3))
    right = _back(joined.aggregate(i=hr.max("i"), x=hr.avg("x")))
    return left.join(right, on="k").group_by("k").window(hr.snapshot()).aggregate(n=hr.count(), x=hr.max("x_right"))


def _module_over_snapshot_over_left_join(streams: Pair) -> hr.Stream:
    a, b = streams
    joined = a.left_join(b, on="k").select("k", "i", x=col("x_right"))
    counted = _back(joined.group_by("k").window(hr.snapshot()).aggregate(i=hr.count(), x=hr.max("x")))
    return counted.group_by("k").window(hr.tumbling(7), clipping="full").operate(Widest(), "i", "x").extend(3)


def _groups_in_groups(streams: Pair) -> hr.Stream:
    def inner(group: hr.Stream) -> hr.Stream:
        counted = group.window(hr.snapshot()).aggregate(n=hr.count())
        return group.join(counted).where(col("n") > 1)

    def outer(group: hr.Stream) -> hr.Stream:
        return group.group_by("i").apply(inner).union(group.shift(2).group_by("i").apply(inner))

    return streams[0].group_by("k").apply(outer).coalesce()


#: The plans that are named in what is asked of the engine.
WRITTEN: dict[str, Callable[[Pair], hr.Stream]] = {
    "join of windows of joins": _windows_of_joins,
    "a module over a snapshot over a left join": _module_over_snapshot_over_left_join,
    "groups in groups": _groups_in_groups,
}
