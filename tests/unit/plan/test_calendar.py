"""Windows of the calendar: their edges, against the clocks of their zones."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import HistoryError, PlanError, TimeError
from headrace.operators.reference.windows import last_closed_start, open_window_start, windows_over
from headrace.plan.calendar import Calendar, zone_rules
from headrace.plan.windows import ENDLESS, Grid
from headrace.time import INFINITY, ticks

#: Clocks that change at night, at midnight, just after it (back to the day before), by half an hour and by a whole day.
ZONES = (
    "UTC", "Europe/Berlin", "America/Sao_Paulo", "America/St_Johns", "Australia/Lord_Howe", "Pacific/Apia",
    "Africa/Casablanca", "Asia/Kathmandu",
)  # fmt: skip
SPANS = (
    ("1 day", "1 day"), ("1 day", "1 week"), ("3 days", "1 day"), ("1 week", "1 week"), ("1 month", "1 month"),
    ("1 quarter", "1 month"), ("1 year", "1 year"), ("1 month", "1 quarter"),
)  # fmt: skip
ORIGINS = (None, "2024-04-15", "2020-02-28T06:30")


def day(text: str, zone: str = "UTC") -> int:
    """A local time as ticks."""
    return ticks(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)))


def spans(window: Grid, first: str, until: str, zone: str) -> list[tuple[int, int]]:
    le, re = np.array([day(first, zone)]), np.array([day(until, zone)])
    numbers = np.arange(window.first(le)[0], window.last(le, re)[0] + 1)
    return list(zip(window.start(numbers).tolist(), window.end(numbers).tolist(), strict=True))


def hours(window: Grid, first: str, until: str, zone: str) -> list[float]:
    return [(end - start) / 3.6e9 for start, end in spans(window, first, until, zone)]


def test_days_have_23_and_25_hours_where_clocks_change():
    window = hr.tumbling("1 day", zone="Europe/Berlin")
    assert hours(window, "2024-03-30", "2024-04-02", "Europe/Berlin") == [24, 23, 24]
    assert hours(window, "2024-10-26", "2024-10-29", "Europe/Berlin") == [24, 25, 24]


def test_months_quarters_and_years():
    assert [h / 24 for h in hours(hr.tumbling("1 month"), "2024-01-01", "2024-04-01", "UTC")] == [31, 29, 31]
    assert [h / 24 for h in hours(hr.tumbling("1 quarter"), "2023-01-01", "2024-01-01", "UTC")] == [90, 91, 92, 92]
    assert [h / 24 for h in hours(hr.tumbling("1 year"), "2023-01-01", "2025-01-01", "UTC")] == [365, 366]
    assert hours(hr.tumbling("1 month", zone="Europe/Berlin"), "2024-03-01", "2024-04-01", "Europe/Berlin") == [743]


def test_weeks_begin_on_monday():
    ((start, end),) = spans(hr.tumbling("1 week", zone="Asia/Tokyo"), "2024-05-01", "2024-05-02", "Asia/Tokyo")
    assert (start, end) == (day("2024-04-29", "Asia/Tokyo"), day("2024-05-06", "Asia/Tokyo"))


def test_origins_begin_days_at_six_and_years_in_april():
    ((start, end),) = spans(
        hr.tumbling("1 day", "2000-01-01T06:00", zone="Europe/Berlin"), "2024-03-30T08:00", "2024-03-30T09:00",
        "Europe/Berlin",
    )  # fmt: skip
    assert (start, end) == (day("2024-03-30T06:00", "Europe/Berlin"), day("2024-03-31T06:00", "Europe/Berlin"))
    ((start, end),) = spans(hr.tumbling("1 year", "2024-04-01"), "2024-03-01", "2024-03-02", "UTC")
    assert (start, end) == (day("2023-04-01"), day("2024-04-01"))
    instant = datetime(2024, 1, 1, 5, tzinfo=UTC)  # six in Berlin
    assert hr.tumbling("1 day", instant, zone="Europe/Berlin") == hr.tumbling(
        "1 day", "2000-01-01T06:00", zone="Europe/Berlin"
    )


def test_a_day_that_a_zone_left_out_is_no_window():
    """Samoa went from 29 to 31 December 2011."""
    window = hr.tumbling("1 day", zone="Pacific/Apia")
    found = spans(window, "2011-12-28", "2012-01-02", "Pacific/Apia")
    assert [(end - start) / 3.6e9 for start, end in found] == [24] * 4


@given(
    st.sampled_from(ZONES), st.sampled_from(SPANS), st.sampled_from(ORIGINS),
    st.integers(-20_000, 60_000), st.integers(-60, 60), st.integers(1, 100 * 24 * 60),
)  # fmt: skip
def test_differential_numbers_are_those_of_a_walk(
    zone: str, span: tuple[str, str], origin: str | None, at: int, minutes: int, lasts: int
):
    window = hr.hopping(*span, origin, zone=zone)
    changes = zone_rules(zone).changes
    near = changes[at % len(changes)] if changes and at % 2 else at * 86_400_000_000
    le = near + minutes * 60_000_000
    re = le + lasts * 60_000_000
    first, last = window.first(np.array([le])), window.last(np.array([le]), np.array([re]))
    numbers = np.arange(first[0], last[0] + 1)
    walked = sorted(windows_over(window, le, re))
    assert list(zip(window.start(numbers).tolist(), window.end(numbers).tolist(), strict=True)) == walked
    for time in (le, re, *(edge for window_ in walked for edge in window_)):
        closed, begun = window.closed(time), window.begun(time)
        assert window.start_of(closed) == last_closed_start(window, time)
        assert window.start_of(closed + 1) == open_window_start(window, time) == window.cti(time)
        assert window.end_of(closed) <= time < window.end_of(closed + 1)
        assert window.start_of(begun) <= time < window.start_of(begun + 1)
    endless = window.last(np.array([le]), np.array([INFINITY]))[0]
    assert endless - ENDLESS == window.begun(le)
    assert window.end_of(endless) == INFINITY


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: hr.hopping("1 month", every="1 week"), "both"),
        (lambda: hr.tumbling("1 h", zone="Europe/Berlin"), "both"),
        (lambda: hr.hopping("1 day", every="1 h", zone="Europe/Berlin"), "both"),
        (lambda: hr.tumbling("1 day", zone="Europe/Berlim"), "no such time zone"),
        (lambda: hr.tumbling("1 month", "2024-01-31"), "1 to 28"),
        (lambda: hr.tumbling("0 months"), "must be positive"),
        (lambda: hr.tumbling("1 day", zone=7), "no such time zone"),
        (lambda: hr.tumbling("1 month", "0001-01-01T00:00+00:00", zone="America/New_York"), "not in the years"),
        (lambda: hr.tumbling("1 month", "9999-12-31T23:00+00:00", zone="Asia/Tokyo"), "not in the years"),
    ],
)
def test_mixtures_that_make_no_sense_are_refused(make: Callable[[], Grid], says: str):
    with pytest.raises(PlanError, match=says):
        make()


def test_a_month_is_no_duration():
    with pytest.raises(TimeError, match="month"):
        hr.session("1 month")


def test_texts_name_the_calendar():
    assert str(hr.tumbling("12 months")) == "tumbling(1 year, zone=UTC)"
    assert str(hr.hopping("14 d", every="1 week", zone="UTC")) == "hopping(2 weeks, every=1 week, zone=UTC)"
    assert "origin=1970-01-01T06:00:00" in str(hr.tumbling(timedelta(days=1), "2024-01-01T06:00", zone="UTC"))
    window = hr.tumbling("1 day", zone="Europe/Berlin")
    assert isinstance(window, Calendar)
    assert window.mark != hr.tumbling("1 day", zone="Europe/Paris").mark


def test_times_outside_of_the_rules_keep_the_nearest_offset():
    window = hr.tumbling("1 day", zone="Europe/Berlin")
    for year in (1, 1700, 2300, 9999):
        time = (datetime(year, 7, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        number = window.first(np.array([time]))
        assert window.start(number)[0] <= time < window.end(number)[0]
        assert (window.end(number) - window.start(number))[0] == 86_400_000_000


def test_spark_sql_has_no_calendar_windows_yet():
    stream = hr.events([{"le": datetime(2024, 1, 1, tzinfo=UTC), "n": 1}])
    answers = stream.window(hr.tumbling("1 month")).aggregate(n=hr.count())
    with pytest.raises(HistoryError, match="no translation to Spark SQL"):
        answers.history("spark").sql()
    with pytest.raises(PlanError, match="whose times are dates"):
        hr.events([{"le": 1, "n": 1}]).window(hr.tumbling("1 month")).aggregate(n=hr.count())
