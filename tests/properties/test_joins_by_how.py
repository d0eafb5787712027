"""Right, full and semi joins, and keys that are expressions: as defined, event by event (rule 4)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.testing.strategies import SCHEMA, batch_sizes, buckets, physical_streams, tables
from headrace.testing.verify.differential import differential_reference

Row = dict[str, Any]
Match = Callable[[Row, Row], bool]


@st.composite
def streams(draw: st.DrawFn) -> hr.Stream:
    events = draw(physical_streams(max_events=8))
    return hr.events(tables(events), SCHEMA, batches=draw(batch_sizes(len(events))))


def _less(a: Any, b: Any) -> bool:
    return a is not None and b is not None and a < b


def _rest(i: int) -> int:
    """The remainder of 2, with the sign of the number."""
    return -(abs(i) % 2) if i < 0 else i % 2


#: Keys and a condition, and what they mean for a pair of rows.
MEETINGS: dict[str, tuple[Any, Any, Match]] = {
    "key": ("k", None, lambda a, b: a["k"] is not None and a["k"] == b["k"]),
    "nothing": ((), None, lambda _a, _b: True),
    "computed": (col("i") % 2, None, lambda a, b: None not in (a["i"], b["i"]) and _rest(a["i"]) == _rest(b["i"])),
    "pair": ([(col("i") + 1, "i")], None, lambda a, b: None not in (a["i"], b["i"]) and a["i"] + 1 == b["i"]),
    "condition": ("k", col("i") < col("i_right"), lambda a, b: a["k"] == b["k"] is not None and _less(a["i"], b["i"])),
    "null": ((), col("k").is_null() & (col("i_right") > 0), lambda a, b: a["k"] is None and _less(0, b["i"])),
}


def _free(row: Row, others: list[Row], *, covered: bool) -> list[tuple[int, int]]:
    """The longest stretches of a lifetime during which some, or none, of the others lasts."""
    inside = [t for other in others for t in (other["le"], other["re"]) if row["le"] < t < row["re"]]
    times = sorted({row["le"], row["re"], *inside})
    found: list[tuple[int, int]] = []
    for start, end in pairwise(times):
        if any(other["le"] <= start < other["re"] for other in others) is covered:
            merged = found and found[-1][1] == start
            found[-1:] = [(found[-1][0], end)] if merged else [*found[-1:], (start, end)]
    return found


def _expected(how: str, left: list[Row], right: list[Row], match: Match) -> list[tuple]:
    def meet(a: Row, b: Row) -> bool:
        return a["le"] < b["re"] and b["le"] < a["re"] and match(a, b)

    def values(row: Row | None) -> tuple:
        return tuple(None if row is None else row[name] for name in "kix")

    if how == "semi":
        return [(*part, *values(a)) for a in left for part in _free(a, [b for b in right if meet(a, b)], covered=True)]
    pairs = [
        (max(a["le"], b["le"]), min(a["re"], b["re"]), *values(a), *values(b))
        for a in left for b in right if meet(a, b)
    ]  # fmt: skip
    alone_left = [
        (*part, *values(a), *values(None))
        for a in left for part in _free(a, [b for b in right if meet(a, b)], covered=False)
    ]  # fmt: skip
    alone_right = [
        (*part, *values(None), *values(b))
        for b in right for part in _free(b, [a for a in left if meet(a, b)], covered=False)
    ]  # fmt: skip
    return pairs + (alone_left if how == "full" else []) + alone_right


@given(streams(), streams(), st.sampled_from(sorted(MEETINGS)), st.sampled_from(["right", "full", "semi"]), buckets())
def test_oracle_joins_by_how(left: hr.Stream, right: hr.Stream, meeting: str, how: Any, n: int):
    on, where, match = MEETINGS[meeting]
    shared = isinstance(on, str)  # the key appears once, so the right one is copied to show both
    joined = left.join(right.with_columns(k_right="k") if shared else right, on, where, how)
    found = joined.select("k", "i", "x", *(() if how == "semi" else ("k_right", "i_right", "x_right")))
    run = hr.run({"left": left, "right": right, "found": found}, buckets=n)
    expected = _expected(how, run.cht("left").to_pylist(), run.cht("right").to_pylist(), match)
    if shared and how != "semi":
        expected = [(*row[:2], row[5] if row[2] is None else row[2], *row[3:]) for row in expected]
    shown = [tuple(row.values()) for row in run.cht("found").to_pylist()]
    assert sorted(map(repr, shown)) == sorted(map(repr, expected))


@settings(max_examples=max(5, settings().max_examples // 2))
@given(streams(), streams(), st.sampled_from(sorted(MEETINGS)), st.sampled_from(["right", "full", "semi"]), buckets())
def test_differential_joins_by_how(left: hr.Stream, right: hr.Stream, meeting: str, how: Any, n: int):
    on, where, _ = MEETINGS[meeting]
    differential_reference(left.join(right, on, where, how).node, buckets=n)


@settings(max_examples=max(5, settings().max_examples // 2))
@given(streams(), st.sampled_from(["right", "full", "semi"]), buckets())
def test_differential_joins_within_groups(stream: hr.Stream, how: Any, n: int):
    def query(group: hr.Stream) -> hr.Stream:
        return group.join(group.shift(2).where(col("i") > 0), on=col("x") > 0.0, how=how)

    differential_reference(stream.group_by(g="k").apply(query).node, buckets=n)
