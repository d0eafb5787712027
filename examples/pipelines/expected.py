"""What pandas says: every pipeline again, over all rows at once, without a thought of the order in which they came."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pandas as pd

__all__ = ["EXPECTED", "difference"]

TICK, DAY = pd.Timedelta("1us"), pd.Timedelta("1 day")


def _csv(path: Path, *dates: str) -> pd.DataFrame:
    return pd.read_csv(path, parse_dates=list(dates))


def _flights(data: Path) -> pd.DataFrame:
    return _csv(data / "flights.csv", "dep", "planned", "arr")


def _alive(rows: pd.DataFrame, key: str, name: str) -> pd.DataFrame:
    """How many rows of each key are alive between neighbouring ends of theirs, where any is."""
    found = []
    for value, group in rows.groupby(key):
        ends = sorted({*group["le"], *group["re"]})
        for le, re in itertools.pairwise(ends):
            count = int(((group["le"] <= le) & (group["re"] > le)).sum())
            if count:
                found.append({"le": le, "re": re, key: value, name: count})
    return pd.DataFrame(found)


def in_the_air(data: Path) -> pd.DataFrame:
    """Counts between departures and arrivals."""
    return _alive(_flights(data).rename(columns={"dep": "le", "arr": "re"}), "carrier", "flights")


def revised_arrivals(data: Path) -> pd.DataFrame:
    """Every report holds until the next of its flight; the last one is the arrival."""
    rows = _csv(data / "arrivals.csv", "planned", "reported", "expected").sort_values("reported", kind="stable")
    rows = rows.drop_duplicates(["flight", "reported"], keep="last")
    rows = rows.assign(le=rows["reported"], re=rows.groupby("flight")["reported"].shift(-1))
    late = rows[(rows["expected"] != rows["reported"]) & (rows["expected"] - rows["planned"] >= pd.Timedelta("15 min"))]
    return _alive(late, "carrier", "late")


def flights_and_weather(data: Path) -> pd.DataFrame:
    """The report before a departure, of its airport."""
    weather = _csv(data / "weather.csv", "ts").sort_values("ts")
    flights = _flights(data).sort_values("dep")
    both = pd.merge_asof(flights, weather, left_on="dep", right_on="ts", left_by="origin", right_by="airport")
    both = both.assign(minutes=(both["arr"] - both["planned"]) / pd.Timedelta("1 min"), le=both["dep"].dt.floor("D"))
    found = both.groupby(["le", "fog"]).agg(minutes=("minutes", "mean"), flights=("flight", "size")).reset_index()
    return found.assign(re=found["le"] + DAY)


def sessions(data: Path) -> pd.DataFrame:
    """A visit starts with a click at least half an hour after the one before."""
    gap = pd.Timedelta("30 min")
    clicks = pd.read_json(data / "clicks.json", lines=True, convert_dates=["ts"]).sort_values("ts", kind="stable")
    new = clicks.groupby("user")["ts"].diff().fillna(gap) >= gap
    clicks = clicks.assign(visit=new.groupby(clicks["user"]).cumsum())
    found = clicks.groupby(["user", "visit"]).agg(
        le=("ts", "min"), last=("ts", "max"), clicks=("page", "size"), booked=("page", lambda p: (p == "/book").any())
    )
    return found.reset_index().assign(re=lambda rows: rows["last"] + gap).drop(columns=["visit", "last"])


def _average(data: Path) -> pd.DataFrame:
    """Every reading counts as long as it holds, at most a quarter of an hour."""
    rows = pd.read_parquet(data / "sensors.parquet").sort_values("ts")
    until = rows.groupby("sensor")["ts"].shift(-1)
    rows = rows.assign(
        until=until.clip(upper=rows["ts"] + pd.Timedelta("15 min")).fillna(rows["ts"] + pd.Timedelta("15 min"))
    )
    found = []
    for sensor, group in rows.groupby("sensor"):
        for hour in pd.date_range(group["ts"].min().floor("h"), group["until"].max(), freq="h"):
            end = hour + pd.Timedelta("1 h")
            inside = group[(group["ts"] < end) & (group["until"] > hour)]
            weights = inside["until"].clip(upper=end) - inside["ts"].clip(lower=hour)
            if len(inside):
                mean = (inside["celsius"] * (weights / TICK)).sum() / (weights / TICK).sum()
                found.append({"le": hour, "re": end, "sensor": sensor, "celsius": mean})
    return pd.DataFrame(found)


def _silent(data: Path) -> pd.DataFrame:
    """A quarter of an hour after each reading that has no other one within it."""
    rows = pd.read_parquet(data / "sensors.parquet").sort_values("ts")
    pause = rows.groupby("sensor")["ts"].shift(-1) - rows["ts"]
    le = rows["ts"][~(pause <= pd.Timedelta("15 min"))] + pd.Timedelta("15 min")
    return pd.DataFrame({"le": le, "re": le + TICK, "sensor": rows.loc[le.index, "sensor"]})


def temperatures(data: Path) -> pd.DataFrame:
    """Averages, and rows without one where a sensor fell silent."""
    return pd.concat([_average(data), _silent(data)])


def three_delays(data: Path) -> pd.DataFrame:
    """In the order of arrivals, for each carrier."""
    found = []
    flights = _flights(data).sort_values("arr", kind="stable")
    for carrier, group in flights.groupby("carrier"):
        late = (group["arr"] - group["planned"] > pd.Timedelta("15 min")).tolist()
        for at in range(3, len(late)):
            if late[at - 3 : at + 1] == [True, True, True, False]:
                first, good = group.iloc[at - 3], group.iloc[at]
                row = {"carrier": carrier, "first": first["flight"], "good": good["flight"]}
                found.append({"le": good["arr"], "re": good["arr"] + TICK, **row})
    return pd.DataFrame(found)


def reachable(data: Path) -> pd.DataFrame:
    """Trips of one flight, of two, and so on; then the times at which there is any, airport by airport."""
    legs = _flights(data)[["origin", "dest", "dep", "arr"]]
    found = new = legs[legs["origin"] == "BER"].assign(last=legs["dep"])
    while len(new):
        both = new.merge(legs, left_on="dest", right_on="origin", suffixes=("", "_next"))
        both = both[(both["dep_next"] >= both["arr"]) & (both["arr_next"] - both["dep"] <= DAY)]
        new = both.assign(dest=both["dest_next"], arr=both["arr_next"], last=both["dep_next"])
        new = new[["origin", "dest", "dep", "arr", "last"]].drop_duplicates()
        found = pd.concat([found, new])
    trips = found.assign(le=found["last"], re=found["dep"] + DAY).sort_values("le")
    pause = trips["le"] > trips.groupby("dest")["re"].transform(lambda ends: ends.cummax().shift())
    spans = trips.assign(span=pause.groupby(trips["dest"]).cumsum()).groupby(["dest", "span"])
    return spans.agg(le=("le", "min"), re=("re", "max")).reset_index().drop(columns="span")


def top_routes(data: Path) -> pd.DataFrame:
    """Of equal counts, the first names."""
    flights = _flights(data)
    counts = flights.assign(le=flights["dep"].dt.floor("D")).groupby(["le", "origin", "dest"]).size()
    rows = (
        counts.rename("flights").reset_index().sort_values(["flights", "origin", "dest"], ascending=[False, True, True])
    )
    return rows.groupby("le").head(5).assign(re=lambda found: found["le"] + DAY)


EXPECTED: dict[str, Callable[[Path], pd.DataFrame]] = {
    function.__name__: function
    for function in (
        in_the_air, revised_arrivals, flights_and_weather, sessions, temperatures, three_delays, reachable, top_routes,
    )
}  # fmt: skip


def difference(answer: pd.DataFrame, expected: pd.DataFrame) -> str:
    """The first row that only one of the two has; nothing if they agree."""
    names = sorted(answer.columns)
    if names != sorted(expected.columns):
        return f"columns {names}, not {sorted(expected.columns)}"
    ours, theirs = (
        frame[names].round(6).astype(object).sort_values(names, key=lambda c: c.astype(str)).to_numpy().tolist()
        for frame in (answer, expected)
    )
    for row, right in zip(ours, theirs, strict=False):
        if any(a != b and not (pd.isna(a) and pd.isna(b)) for a, b in zip(row, right, strict=True)):
            return f"{row}, not {right}"
    return "" if len(ours) == len(theirs) else f"{len(ours)} rows, not {len(theirs)}"
