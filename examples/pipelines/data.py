"""Three days of flights, weather, clicks and sensors, as files of the order in which rows were reported.

Flights are announced when they leave, and their arrivals are revised on the way. Some rows are reported late; the files
have them where they were reported, not where they belong.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

__all__ = ["write"]

AIRPORTS = ("BER", "MUC", "FRA", "HAM", "VIE", "ZRH", "AMS", "CDG", "LHR", "MAD", "FCO", "CPH")
CARRIERS = ("AW", "BL", "CN", "DX")
FIRST_DAY = pd.Timestamp("2024-05-01", tz="UTC")
DAYS = 3


def write(folder: Path, seed: int = 7) -> None:
    """Write `flights.csv`, `arrivals.csv`, `weather.csv`, `clicks.json` and `sensors.parquet` into `folder`."""
    rng = np.random.default_rng(seed)
    flights = _flights(rng)
    _late(rng, flights, "dep", "20 min").to_csv(folder / "flights.csv", index=False, date_format="%Y-%m-%dT%H:%M:%SZ")
    _arrivals(rng, flights).to_csv(folder / "arrivals.csv", index=False, date_format="%Y-%m-%dT%H:%M:%SZ")
    _weather(rng).to_csv(folder / "weather.csv", index=False, date_format="%Y-%m-%dT%H:%M:%SZ")
    clicks = _late(rng, _clicks(rng), "ts", "10 min")
    clicks.to_json(folder / "clicks.json", orient="records", lines=True, date_format="iso", date_unit="s")
    _late(rng, _sensors(rng), "ts", "1 min").to_parquet(folder / "sensors.parquet", index=False)


def _late(rng: np.random.Generator, rows: pd.DataFrame, time: str, most: str) -> pd.DataFrame:
    """The rows in the order of their reports: a tenth of them is late, by up to `most`."""
    delay = pd.Timedelta(most) * rng.random(len(rows)) * (rng.random(len(rows)) < 0.1)
    return rows.iloc[np.argsort((rows[time] + delay).to_numpy(), kind="stable")].reset_index(drop=True)


def _times(rng: np.random.Generator, count: int) -> pd.Series:
    """Sorted times of the three days, to the second, more by day than by night."""
    days, hours = rng.integers(0, DAYS, count), rng.beta(2.5, 2.0, count) * 24
    seconds = np.sort(days * 86_400 + hours * 3_600).astype("int64")
    return pd.Series(FIRST_DAY + pd.to_timedelta(seconds, unit="s"))


def _flights(rng: np.random.Generator, count: int = 900) -> pd.DataFrame:
    origin, dest = rng.integers(0, len(AIRPORTS), count), rng.integers(1, len(AIRPORTS), count)
    dep = _times(rng, count)
    planned = 60 + 5 * rng.integers(0, 30, count)
    delay = np.where(rng.random(count) < 0.35, rng.integers(16, 90, count), rng.integers(-10, 15, count))
    carrier = np.array(CARRIERS)[rng.integers(0, len(CARRIERS), count)]
    return pd.DataFrame(
        {
            "flight": [f"{code}{100 + number}" for number, code in enumerate(carrier)],
            "carrier": carrier,
            "origin": np.array(AIRPORTS)[origin],
            "dest": np.array(AIRPORTS)[(origin + dest) % len(AIRPORTS)],
            "dep": dep,
            "planned": dep + pd.to_timedelta(planned, unit="min"),
            "arr": dep + pd.to_timedelta(planned + delay, unit="min"),
        }
    )


def _arrivals(rng: np.random.Generator, flights: pd.DataFrame) -> pd.DataFrame:
    """What is reported about arrivals: the planned one at the departure, then up to three estimates, then the last."""
    reports = [flights.assign(reported=flights["dep"], expected=flights["planned"])]
    length = flights["arr"] - flights["dep"]
    for share in (0.25, 0.5, 0.75):
        chosen = rng.random(len(flights)) < 0.5
        guess = flights["arr"] + pd.to_timedelta(rng.integers(-20, 20, len(flights)), unit="min")
        reports.append(flights.assign(reported=flights["dep"] + length * share, expected=guess)[chosen])
    reports.append(flights.assign(reported=flights["arr"], expected=flights["arr"]))
    rows = pd.concat(reports)[["flight", "carrier", "planned", "reported", "expected"]]
    for name in ("reported", "expected"):
        rows[name] = rows[name].dt.floor("s")
    return rows.sort_values(["reported", "flight"], kind="stable").reset_index(drop=True)


def _weather(rng: np.random.Generator) -> pd.DataFrame:
    """A report of every airport, about every hour."""
    hours = pd.Series(FIRST_DAY + pd.to_timedelta(np.arange(-1, 24 * DAYS + 4), unit="h"))
    reports = [
        pd.DataFrame(
            {
                "airport": airport,
                "ts": hours + pd.to_timedelta(rng.integers(0, 600, len(hours)), unit="s"),
                "wind": rng.gamma(4, 4, len(hours)).round(1),
                "fog": rng.random(len(hours)) < 0.15,
            }
        )
        for airport in AIRPORTS
    ]
    return pd.concat(reports).sort_values("ts", kind="stable").reset_index(drop=True)


def _clicks(rng: np.random.Generator, count: int = 4_000) -> pd.DataFrame:
    pages = np.array(["/", "/search", "/offer", "/book", "/help"])
    return pd.DataFrame(
        {
            "user": [f"u{number:02d}" for number in rng.integers(0, 60, count)],
            "ts": _times(rng, count),
            "page": pages[rng.integers(0, len(pages), count)],
        }
    )


def _sensors(rng: np.random.Generator, count: int = 8_000) -> pd.DataFrame:
    """Temperatures of eight sensors, when they change; each is silent now and then."""
    rows = pd.DataFrame(
        {
            "sensor": [f"s{number}" for number in rng.integers(0, 8, count)],
            "ts": _times(rng, count),
            "celsius": (20 + 5 * rng.standard_normal(count)).round(1),
        }
    )
    return rows.drop_duplicates(["sensor", "ts"]).reset_index(drop=True)
