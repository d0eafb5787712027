"""Windows of the calendar equal their twins, batch by batch, and the history in batch SQL (rule 5.1)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing.strategies import SCHEMA, batch_sizes, buckets, physical_streams, without_ids
from headrace.testing.verify.differential import differential_reference
from headrace.time import INFINITY, duration, ticks

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: A zone, and a time around which its clocks change: by an hour, at midnight, past midnight, by a whole day.
PLACES = (
    ("UTC", "2024-02-25"), ("Europe/Berlin", "2024-03-27"), ("America/Sao_Paulo", "2017-10-11"),
    ("America/St_Johns", "2006-10-25"), ("Pacific/Apia", "2011-12-25"),
)  # fmt: skip
#: Sizes, hops, and the ticks that a step of the drawn times is, so that windows have some.
SPANS = (
    ("1 day", "1 day", "7 h"), ("1 day", "1 week", "19 h"), ("3 days", "1 day", "11 h"), ("40 days", "1 day", "31 h"),
    ("1 week", "1 week", "2 d"), ("1 month", "1 month", "9 d"), ("1 quarter", "1 month", "13 d"),
    ("1 year", "1 year", "100 d"),
)  # fmt: skip
HALF = settings(max_examples=max(5, settings().max_examples // 2))
AGGREGATES = {
    "n": hr.count(), "s": hr.sum("i"), "a": hr.avg("x"), "low": hr.min("x"), "high": hr.max("i"),
    "f": hr.first("x"), "v": hr.var("x"),
}  # fmt: skip


@st.composite
def dated(draw: st.DrawFn, base: str, step: str, max_events: int = 8) -> hr.Stream:
    """A physical stream whose times are dates."""
    events: list[dict[str, Any]] = draw(physical_streams(max_events=max_events))
    assume(events)
    first, by = ticks(base), duration(step)

    def moved(time: int) -> Any:
        return time if time == INFINITY else EPOCH + timedelta(microseconds=first + time * by)

    rows = [
        {
            name: moved(value) if name in ("le", "re", "re_new") else value
            for name, value in row.items()
            if value is not None
        }
        for row in without_ids(events)
    ]
    return hr.events(rows, SCHEMA, batches=draw(batch_sizes(len(rows))))


@st.composite
def cases(draw: st.DrawFn) -> tuple[hr.Stream, Any]:
    zone, base = draw(st.sampled_from(PLACES))
    size, hop, step = draw(st.sampled_from(SPANS))
    origin = draw(st.sampled_from([None, "2001-02-03T05:30"]))
    return draw(dated(base, step)), hr.hopping(size, hop, origin, zone=zone)


@HALF
@given(cases(), st.booleans(), st.sets(st.sampled_from(sorted(AGGREGATES)), min_size=1), buckets())
def test_differential_aggregates(case: tuple[hr.Stream, Any], grouped: bool, names: set[str], n: int):
    stream, window = case
    divided = (stream.group_by("k") if grouped else stream).window(window)
    out = divided.aggregate(**{name: AGGREGATES[name] for name in sorted(names)})
    differential_reference(out.node, buckets=n)
    assert hr.same_history(out.cht(), out.history("duckdb").cht())


@HALF
@given(cases(), buckets())
def test_differential_contents_and_top(case: tuple[hr.Stream, Any], n: int):
    stream, window = case
    for out in (stream.window(window).contents(start="w"), stream.group_by("k").window(window).top(2, "x")):
        differential_reference(out.node, buckets=n)
        assert hr.same_history(out.cht(), out.history("duckdb").cht())


def test_a_window_whose_end_a_zone_skipped():
    """Samoa had no 30 December 2011: the twin looked for its half past five on the day after."""
    stream = hr.events("le | re | k\n2011-12-29T16:00 | 2011-12-29T17:00 | a\n2012-01-03 | 2012-01-04 | a")
    out = stream.window(hr.tumbling("1 day", "2001-02-03T05:30", zone="Pacific/Apia")).aggregate(n=hr.count())
    differential_reference(out.node)
    assert out.cht()["re"].to_pylist()[0] == datetime(2011, 12, 30, 10, tzinfo=UTC)
