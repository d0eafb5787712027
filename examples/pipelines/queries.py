"""The pipelines: each takes the folder that `data.write` has filled, and returns a stream."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import headrace as hr
from headrace import col

__all__ = ["PIPELINES"]


def in_the_air(data: Path) -> hr.Stream:
    """How many flights of each carrier are in the air, at every instant?"""
    flights = hr.read_csv(data / "flights.csv", lifetime=hr.interval("dep", "arr"), progress=hr.advance("30 min"))
    return flights.group_by("carrier").window(hr.snapshot()).aggregate(flights=hr.count())


def revised_arrivals(data: Path) -> hr.Stream:
    """How many flights of each carrier are expected a quarter of an hour late or more, by what is known by then?"""
    arrivals = hr.read_changes(
        data / "arrivals.csv", key="flight", encoding="upsert", at="reported", progress=hr.ordered(),
        deletes=col("expected") == col("reported"),
    )  # fmt: skip
    late = arrivals.where(col("expected") - col("planned") >= "15 min")
    return late.group_by("carrier").window(hr.snapshot()).aggregate(late=hr.count())


def flights_and_weather(data: Path) -> hr.Stream:
    """How many minutes late are flights that leave in fog, and others, day by day?"""
    flights = hr.read_csv(data / "flights.csv", lifetime=hr.point("dep"), progress=hr.advance("30 min"))
    weather = hr.read_csv(data / "weather.csv", lifetime=hr.edge("ts", key="airport"), progress=hr.ordered())
    both = flights.join(weather, on={"origin": "airport"})
    days = both.group_by("fog").window(hr.tumbling("1 day"))
    return days.aggregate(minutes=hr.avg(col("arr") - col("planned")) / 60_000_000, flights=hr.count())


def sessions(data: Path) -> hr.Stream:
    """Visits: how many clicks, and did the user book? Late clicks join or lengthen visits already shown."""
    clicks = hr.read_json(data / "clicks.json", lifetime=hr.point("ts"), progress=hr.advance("15 min"))
    visits = clicks.group_by("user").window(hr.session("30 min"))
    return visits.aggregate(clicks=hr.count(), booked=hr.count(where=col("page") == "/book") > 0)


def temperatures(data: Path) -> hr.Stream:
    """The time-weighted average of every sensor, hour by hour, and a row without one when it falls silent."""
    sensors = hr.read_parquet(
        data / "sensors.parquet", lifetime=hr.edge("ts", key="sensor"), progress=hr.advance("2 min")
    )
    known = sensors.cap_duration("15 min")
    hours = known.group_by("sensor").window(hr.tumbling("1 h")).aggregate(celsius=hr.time_weighted_avg("celsius"))
    silent = known.select("sensor").coalesce().point_at_end()
    return hours.union(silent.with_columns(celsius=hr.lit(None).cast("DOUBLE")))


def three_delays(data: Path) -> hr.Stream:
    """Three flights of a carrier in a row that arrive late, and then one on time."""
    flights = hr.read_csv(data / "flights.csv", lifetime=hr.point("arr"), progress=hr.advance("6 h"))
    late = col("arr") - col("planned") > "15 min"
    shape = hr.pattern("Late{3} Good", define={"Late": late, "Good": ~late})
    return flights.group_by("carrier").match(shape, first=hr.first("Late.flight"), good=hr.last("Good.flight"))


def reachable(data: Path) -> hr.Stream:
    """Which airports can be reached from Berlin within a day, and when?"""
    flights = hr.read_csv(data / "flights.csv", lifetime=hr.point("dep"), progress=hr.advance("30 min"))
    legs = flights.select("origin", "dest", "dep", "arr").set_duration("1 day")

    def further(trips: hr.Stream) -> hr.Stream:
        """A trip that goes on with a flight after its arrival, and still arrives within a day."""
        both = trips.join(legs, on={"dest": "origin"}, where=col("dep_right") >= col("arr"))
        within = both.where(col("arr_right") - col("dep") <= "1 day")
        return within.select("origin", "dep", dest="dest_right", arr="arr_right")

    return hr.recurse(legs.where(col("origin") == "BER"), further).distinct("dest")


def top_routes(data: Path) -> hr.Stream:
    """The five routes with most flights, each day."""
    flights = hr.read_csv(data / "flights.csv", lifetime=hr.point("dep"), progress=hr.advance("30 min"))
    routes = flights.group_by("origin", "dest").window(hr.tumbling("1 day")).aggregate(flights=hr.count())
    return routes.top(5, by="flights")


PIPELINES: dict[str, Callable[[Path], hr.Stream]] = {
    pipeline.__name__: pipeline
    for pipeline in (
        in_the_air, revised_arrivals, flights_and_weather, sessions, temperatures, three_delays, reachable, top_routes,
    )
}  # fmt: skip
