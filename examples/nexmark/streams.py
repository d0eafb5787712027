"""The three streams of an auction house: read from files, or generated.

A person exists from registration on, an auction lasts for as long as it is open, a bid is an instant. Bids at
the very moment an auction expires still count, so its lifetime is `[date_time, expires + 1 ms)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

import headrace as hr
from headrace.io import generator
from headrace.io.generator import Auctions
from headrace.time import DurationLike, duration

__all__ = ["HOUSE", "House", "generated", "physical", "read", "replay"]

PERSON = "id LONG, name STRING, city STRING, state STRING, date_time DATETIME"
AUCTION = (
    "id LONG, item_name STRING, description STRING, initial_bid LONG, reserve LONG, "
    "date_time DATETIME, expires DATETIME, seller LONG, category LONG, extra STRING"
)
BID = "auction LONG, bidder LONG, price LONG, channel STRING, url STRING, date_time DATETIME, extra STRING"

#: A small house, busy enough that every query has an answer, around midnight, so that there are two days.
HOUSE = Auctions(
    rows=2_000, seed=7, start="2024-01-01T23:59:15Z", rate_per_second=20, disorder=0.3, max_delay="5 s", hot=0.2,
    open_for="20 s",
)  # fmt: skip


class House(NamedTuple):
    """The three streams of an auction house."""

    persons: hr.Stream
    auctions: hr.Stream
    bids: hr.Stream


def read(folder: str | Path) -> House:
    """The house whose events are in `person.csv`, `auction.csv` and `bid.csv`, all of them."""
    at = Path(folder)
    return House(
        persons=hr.read_csv(str(at / "person.csv"), PERSON, lifetime=hr.edge("date_time", key="id")),
        auctions=hr.read_csv(
            str(at / "auction.csv"), AUCTION, lifetime=hr.interval("date_time", "expires")
        ).extend("1 ms"),
        bids=hr.read_csv(str(at / "bid.csv"), BID, lifetime=hr.point("date_time")),
    )  # fmt: skip


def generated(config: Auctions = HOUSE, revised: float = 0.1) -> House:
    """A generated house: its events arrive out of order, and a share of them is corrected later."""
    return replay(physical(config, revised), config.max_delay)


def replay(
    tables: Mapping[str, pa.Table], delay: DurationLike, batches: Mapping[str, Sequence[int]] | None = None
) -> House:
    """Tables of physical events as streams; `batches` sets how many rows of each arrive together."""
    sizes = batches or {}
    return House(**{
        name: hr.events(tables[name], progress=hr.advance(delay), batches=sizes.get(name, ()))
        for name in House._fields
    })  # fmt: skip


def physical(config: Auctions = HOUSE, revised: float = 0.1) -> dict[str, pa.Table]:
    """The events of a generated house as they arrive: inserts, and the retractions that correct them.

    A share `revised` of the persons is first entered with a wrong state, of the bids with a wrong price, and as many
    auctions are withdrawn before they expire. No correction breaks the promise of an input that advances with the
    generator's `max_delay`.
    """
    rng = np.random.default_rng([config.seed, 50])
    delay = duration(config.max_delay)
    persons, auctions, bids = _persons(config), _auctions(config), _bids(config, rng)

    states = pc.index_in(persons["state"], pa.array(_STATES)).to_numpy()
    wrong_states = pa.array(_STATES).take(pa.array((states + 1) % len(_STATES)))
    ends = pc.cast(auctions["expires"], pa.int64()).to_numpy() + duration("1 ms")
    return {
        "persons": _mistaken(_inserts(persons), "state", wrong_states, revised, delay, rng),
        "auctions": _withdrawn(_inserts(auctions, ends), revised, delay, rng),
        "bids": _mistaken(_inserts(bids, 1), "price", pc.multiply(bids["price"], 3), revised, delay, rng),
    }


# The generator's events, with the columns that NEXMark has and the generator leaves out.

Longs = NDArray[np.int64]
_FIRST = 1000  # of all ids
_STATES = ("or", "id", "ca", "wa", "az", "wy")
_CHANNELS = ("Apple", "Google", "Facebook", "Baidu", "channel-17", "channel-4711")
_WORDS = ("acacia", "brook", "cicada", "delta", "echo", "fjord", "", "cc")


def _persons(config: Auctions) -> pa.Table:
    table = generator.persons(config)
    state = pa.array(_STATES).take(pc.cast(_modulo(table["id"], len(_STATES)), pa.int64()))
    return pa.table({
        "id": pc.add(table["id"], _FIRST),
        "name": table["name"],
        "city": table["city"],
        "state": state,
        "date_time": table["ts"],
    })  # fmt: skip


def _auctions(config: Auctions) -> pa.Table:
    table = generator.auctions(config)
    number = pc.cast(table["id"], pa.string())
    # Every other auction is that of a hot seller, as in NEXMark.
    hot = pc.multiply(pc.divide(table["seller"], 100), 100)
    seller = pc.if_else(pc.equal(_modulo(table["id"], 2), 0), hot, table["seller"])
    return pa.table({
        "id": pc.add(table["id"], _FIRST),
        "item_name": pc.binary_join_element_wise("item", number, " "),
        "description": pc.binary_join_element_wise("the", number, "th thing for sale", " "),
        "initial_bid": pc.multiply(table["initial"], 10_000),
        "reserve": pc.multiply(table["reserve"], 10_000),
        "date_time": table["ts"],
        "expires": table["expires"],
        "seller": pc.add(seller, _FIRST),
        "category": pc.add(pc.cast(table["category"], pa.int64()), 10),
        "extra": pc.binary_join_element_wise("lot", number, "-"),
    })  # fmt: skip


def _bids(config: Auctions, rng: np.random.Generator) -> pa.Table:
    table = generator.bids(config)
    words = [pa.array(_WORDS).take(pa.array(rng.integers(0, len(_WORDS), len(table)))) for _ in range(3)]
    # Now and then somebody bids on an auction that has not opened yet.
    early = pa.array(np.where(rng.random(len(table)) < 0.05, 10, 0))
    return pa.table({
        "auction": pc.add(pc.add(table["auction"], early), _FIRST),
        "bidder": pc.add(table["bidder"], _FIRST),
        # Whole numbers from thousands to hundreds of millions, and few enough that some bids are equal.
        "price": pc.multiply(pc.power(pc.cast(pc.ceil(pc.divide(table["price"], 100.0)), pa.int64()), 3), 5_000),
        "channel": pa.array(_CHANNELS).take(pa.array(rng.integers(0, len(_CHANNELS), len(table)))),
        "url": pc.binary_join_element_wise("https://www.nexmark.com", *words, "item.htm?query=1", "/"),
        "date_time": table["ts"],
        "extra": pc.binary_join_element_wise(*words, " "),
    })  # fmt: skip


def _modulo(numbers: pa.ChunkedArray, by: int) -> pa.ChunkedArray:
    return pc.subtract(numbers, pc.multiply(pc.divide(numbers, by), by))


# Physical events and their corrections.


def _inserts(rows: pa.Table, ends: Longs | int = hr.INFINITY) -> pa.Table:
    """Rows that start at their `date_time`; `ends` is when they end, or how many ticks they last."""
    le = pc.cast(rows["date_time"], pa.int64()).to_numpy()
    if isinstance(ends, int):
        ends = np.full(len(rows), ends) if ends == hr.INFINITY else le + ends
    return _events("insert", le, ends, pa.nulls(len(rows), pa.int64()), rows)


def _events(kind: str, le: Longs, re: Longs, re_new: Longs | pa.Array, rows: pa.Table) -> pa.Table:
    control = {"kind": pa.repeat(kind, len(rows)), "le": le, "re": re, "re_new": re_new}
    return pa.table({**control, **{name: rows[name] for name in rows.column_names}})


def _mistaken(
    events: pa.Table, column: str, wrong: pa.Array, share: float, delay: int, rng: np.random.Generator
) -> pa.Table:
    """A share of the events first comes with a wrong value; later it is deleted, and inserted with the right one."""
    mistaken = rng.random(len(events)) < share
    place = events.column_names.index(column)
    first = events.set_column(place, column, pc.if_else(pa.array(mistaken), wrong, events[column]))
    chosen = np.flatnonzero(mistaken)
    le = events["le"].to_numpy()[chosen]
    deleted = _retracted(first.take(pa.array(chosen)), le)
    when = _later(events, chosen, le, delay, rng)
    return _in_order([(first, np.arange(len(events))), (deleted, when), (events.take(pa.array(chosen)), when)])


def _withdrawn(events: pa.Table, share: float, delay: int, rng: np.random.Generator) -> pa.Table:
    """A share of the events is corrected to end earlier."""
    chosen = np.flatnonzero(rng.random(len(events)) < share)
    le, re = (events[name].to_numpy()[chosen] for name in ("le", "re"))
    ends = le + 1 + (rng.random(len(chosen)) * (re - le - 1)).astype(np.int64)
    shortened = _retracted(events.take(pa.array(chosen)), ends)
    return _in_order([(events, np.arange(len(events))), (shortened, _later(events, chosen, ends, delay, rng))])


def _retracted(events: pa.Table, ends: Longs) -> pa.Table:
    payload = events.drop_columns(["kind", "le", "re", "re_new"])
    return _events("retract", events["le"].to_numpy(), events["re"].to_numpy(), ends, payload)


def _later(events: pa.Table, chosen: Longs, sync: Longs, delay: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Places in the order of arrival behind the chosen events, where a change at `sync` is not yet late."""
    highest = np.maximum.accumulate(events["le"].to_numpy())
    limit = np.searchsorted(highest, sync + delay, side="right")
    return rng.uniform(0.01, 0.99, len(chosen)) * (limit - chosen) + chosen


def _in_order(parts: list[tuple[pa.Table, NDArray[np.float64] | Longs]]) -> pa.Table:
    """All events by their places; of those with the same place, the earlier part first."""
    places = np.concatenate([place for _, place in parts])
    return pa.concat_tables([events for events, _ in parts]).take(pa.array(np.argsort(places, kind="stable")))
