"""Timelines: every event is drawn once, in its place, whatever its values are."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.display.axis import Axis
from headrace.display.timeline import Timeline
from headrace.errors import PlanError, SinkError

SVG = "{http://www.w3.org/2000/svg}"
ORDERS = """
    kind    | le | re | re_new | order
    insert  | 1  | ∞  |        | 17
    retract | 1  | ∞  | 10     | 17
    retract | 1  | 10 | 5      | 17
    insert  | 4  | 9  |        | 18
    insert  | 6  | 8  |        | 19
    retract | 6  | 8  | 12     | 19
    insert  | 2  | 8  |        | 21
    retract | 2  | 8  | 2      | 21
    cti     | 6  |    |        |
"""


def parsed(timeline: Timeline) -> ET.Element:
    assert "nan" not in re.sub(r">[^<]*<", "><", timeline.svg).lower()
    assert "inf" not in re.sub(r">[^<]*<", "><", timeline.svg).lower()
    return ET.fromstring(timeline.svg)  # noqa: S314 - our own


def texts(timeline: Timeline) -> list[str]:
    return ["".join(element.itertext()) for element in parsed(timeline).iter(f"{SVG}text")]


def events(timeline: Timeline) -> list[ET.Element]:
    return [group for group in parsed(timeline).iter(f"{SVG}g") if group.get("class") == "event"]


def starts(timeline: Timeline) -> list[float]:
    """The pixels of the starts, from top to bottom."""
    return [float(next(g.iter(f"{SVG}circle")).get("cx", "")) for g in events(timeline)]


def test_lifetimes_and_corrections_are_drawn():
    timeline = hr.events(ORDERS).plot(title="Orders")
    assert repr(timeline) == "Timeline of 4 events, 2 corrected, 1 withdrawn; .save('timeline.svg') writes it"
    words = texts(timeline)
    assert [w for w in words if w.startswith("[")] == ["[1, 5)", "[2, 8)", "[4, 9)", "[6, 12)"]
    assert "CTI 6" in words
    assert "Orders" in words
    assert len(events(timeline)) == 4
    struck = [t.text for t in parsed(timeline).iter(f"{SVG}tspan") if t.get("text-decoration") == "line-through"]
    assert struck == ["21"]
    dashed = [i for i, group in enumerate(events(timeline)) if "stroke-dasharray" in ET.tostring(group, "unicode")]
    assert dashed == [0, 1]  # the part of 17 that was taken back, and 21


def test_corrected_values_show_the_old_one():
    prices = hr.events("le | price\n 3 | 10\n 14 | 16\n 33 | 20\n 12 | 40")
    timeline = prices.window(hr.hopping(20, every=10)).aggregate(avg=hr.avg("price")).plot()
    words = texts(timeline)
    assert "13 → 22" in words
    assert "16 → 28" in words
    assert "10" in words


def test_small_inputs_arrive_row_by_row_and_drawn_batches_stay():
    drawn = "kind|le|re|re_new|x\ninsert|1|9||1\nretract|1|9|5|1\n"
    assert "1 corrected" in hr.events(drawn).plot().summary
    assert hr.events(drawn, batches=[2]).plot().summary == "1 event"
    assert hr.events(drawn).plot(batch_rows=10).summary == "1 event"


def test_groups_share_rows_and_have_a_colour():
    rows = [{"le": t, "re": t + 4, "user": user, "n": t} for user in ("ann", "bob") for t in (0, 50, 100)]
    timeline = hr.events(rows).plot("user")
    assert [w for w in texts(timeline) if w in ("ann", "bob")] == ["ann", "bob"]
    heights = {next(g.iter(f"{SVG}circle")).get("cy") for g in events(timeline)}
    colours = {next(g.iter(f"{SVG}circle")).get("fill") for g in events(timeline)}
    assert len(heights) == len(colours) == 2
    assert len(events(timeline)) == 6


def test_pictures_are_bounded_and_say_what_is_missing():
    many = hr.events([{"le": i, "re": i + 50, "k": i % 7} for i in range(5000)])
    timeline = many.plot("k", rows=20, batch_rows=5000)
    assert timeline.summary == "5,000 events"
    assert len(timeline.svg) < 500_000
    note = next(w for w in texts(timeline) if w.startswith("… and"))
    missing = int(note.split()[2].replace(",", ""))
    assert len(events(timeline)) + missing == 5000
    part = many.plot(start=100, end=103, rows=60, batch_rows=5000)
    assert len(events(part)) == 52
    assert not [w for w in texts(part) if w.startswith("… and")]


def test_dates_are_dates():
    stream = hr.events(
        """
        le                   | re                   | x
        2024-05-01T12:00:10Z | 2024-05-01T12:01:00Z | 1
        2024-05-01T12:00:20Z | 2024-05-01T12:01:00Z | 2
        """
    )
    words = texts(stream.plot())
    assert "12:00:10 – 12:01:00" in words
    assert "2024-05-01" in words


def test_texts_are_escaped():
    stream = hr.events([{"le": 1, "re": 5, "t": "<b>&\x00\x1b\ud7ff"}])
    timeline = stream.plot(title="<i>")
    assert "<b>" not in timeline.svg
    assert "<i>" not in timeline.svg
    assert any("<b>&" in words for words in texts(timeline))


def test_notebooks_show_it_and_save_writes_it(tmp_path: Path):
    timeline = hr.events(ORDERS).plot()
    assert timeline._repr_svg_() in timeline._repr_html_()
    timeline.save(tmp_path / "orders.svg")
    assert (tmp_path / "orders.svg").read_text(encoding="utf-8") == timeline.svg
    with pytest.raises(SinkError, match="SVG"):
        timeline.save(tmp_path / "orders.png")
    with pytest.raises(SinkError, match="cannot be written"):
        timeline.save(tmp_path / "none" / "orders.svg")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"by": "ordr"}, "order"),
        ({"rows": 0}, "1 to 500"),
        ({"width": True}, "400 to 4000"),
        ({"start": 5, "end": 5}, "before the end"),
        ({"buckets_": 5}, "buckets"),
    ],
)
def test_mistakes_are_said_before_anything_runs(options: dict[str, Any], says: str):
    with pytest.raises(PlanError, match=says):
        hr.events(ORDERS).plot(**options)


def test_nothing_to_draw():
    timeline = hr.events(ORDERS).where(col("order") > 100).plot()
    assert "no events" in texts(timeline)
    assert timeline.summary == "0 events"


_TIMES = st.integers(-(2**59), 2**59) | st.integers(-20, 20)
_ROWS = st.lists(st.tuples(_TIMES, st.integers(1, 2**58) | st.integers(1, 9) | st.none(), st.text(max_size=5)))


@given(rows=_ROWS, by=st.booleans(), width=st.integers(400, 1200))
def test_every_event_is_drawn_in_the_order_of_its_start(rows: list[tuple[int, int | None, str]], by: bool, width: int):
    records = [{"le": le, "re": hr.INFINITY if d is None else le + d, "t": t} for le, d, t in rows]
    stream = hr.events(records, "t STRING")
    timeline = stream.plot("t" if by else (), width=width, rows=500, batch_rows=3)
    places = starts(timeline)
    assert len(places) == len(rows)
    assert all(0 <= x <= width for x in places)
    if not by:
        assert places == sorted(places)


@given(start=_TIMES, size=st.integers(1, 2**59), dates=st.booleans())
def test_an_axis_names_a_few_round_times_in_order(start: int, size: int, dates: bool):
    axis = Axis(start, start + size, 50.0, 850.0, dates)
    marks = axis.ticks()
    assert len(marks) <= 20
    assert all(start <= t <= start + size for t in marks)
    pixels = [axis.x(t) for t in marks]
    assert pixels == sorted(pixels)
    assert all(axis.label(t) for t in marks)
