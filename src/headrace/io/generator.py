"""The generator: example streams with chosen kinds of disorder.

A stream is generated in two steps: first the events with their times, then their delivery. Each row has a delay, and
the table is in the order of arrival. A delayed row arrives at most `max_delay` after its own time. So no row before it
is newer than its time plus `max_delay`, and an input that advances with that delay (rule 3.2) finds no row late. Rows
chosen by `late` have a longer delay. A revised trade is first delivered with a wrong price; later, within the same
bound, it is deleted and inserted with the right price.

The seed determines everything: the same configuration gives the same bytes.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from headrace.errors import EventError, SchemaError, SinkError, nearest
from headrace.io.encode import iso_texts, rows_to_jsonl
from headrace.io.files import local_path
from headrace.io.formats import Format
from headrace.schema import Type
from headrace.time import CHRONON, DurationLike, TimeLike, duration
from headrace.time import ticks as to_ticks

__all__ = [
    "Auctions",
    "StreamFacts",
    "Ticks",
    "auctions",
    "bids",
    "expected_cht",
    "facts",
    "persons",
    "plain_ticks",
    "rows_of",
    "sync_times",
    "ticks",
    "write_files",
]

Longs = NDArray[np.int64]
Floats = NDArray[np.float64]

_SECOND = 1_000_000
_DATETIME = Type.DATETIME.arrow
_ROWS_PER_LULL = 500
_CITIES = ("Bergen", "Lyon", "Osaka", "Porto", "Quito", "Riga", "Split", "Turku")


@dataclass(frozen=True)
class Ticks:
    """Trades of some symbols; `disorder`, `late`, `revisions` are shares of the trades, `lulls` a share of the time."""

    rows: int
    seed: int = 0
    symbols: int = 10
    start: TimeLike = "2024-01-02T09:30:00Z"
    rate_per_second: float = 1000.0
    disorder: float = 0.0
    max_delay: DurationLike = "5 s"
    late: float = 0.0
    revisions: float = 0.0
    lulls: float = 0.0
    volatility: float = 0.0005

    def __post_init__(self) -> None:
        _check_counts(rows=self.rows, symbols=self.symbols - 1)
        _check_rate(self.rate_per_second)
        _check_shares(disorder=self.disorder, late=self.late, revisions=self.revisions, lulls=self.lulls)
        if self.disorder + self.late > 1 or self.lulls == 1:
            raise SchemaError(
                "disorder and late together, or lulls alone, leave nothing", given=str(self), allowed="below 1"
            )
        if duration(self.max_delay) < 1:
            raise SchemaError("max_delay must be positive", given=self.max_delay, instead="'5 s'")


@dataclass(frozen=True)
class Auctions:
    """An auction house, after NEXMark: of 50 events one is a person, three are auctions, the others bids.

    The share `hot` of the bids goes to a few popular auctions.
    """

    rows: int
    seed: int = 0
    start: TimeLike = "2024-01-02T09:30:00Z"
    rate_per_second: float = 1000.0
    disorder: float = 0.0
    max_delay: DurationLike = "5 s"
    hot: float = 0.5
    open_for: DurationLike = "60 s"
    categories: int = 5

    def __post_init__(self) -> None:
        _check_counts(rows=self.rows, categories=self.categories - 1)
        _check_rate(self.rate_per_second)
        _check_shares(disorder=self.disorder, hot=self.hot)
        if duration(self.max_delay) < 1 or duration(self.open_for) < 1:
            raise SchemaError("max_delay and open_for must be positive", given=str(self), instead="'5 s'")


@dataclass(frozen=True)
class StreamFacts:
    """Counts of a physical stream's rows: all, by kind, out of order, and late."""

    rows: int
    inserts: int
    retractions: int
    out_of_order: int
    late: int
    largest_delay: int
    first: int | None
    last: int | None

    @property
    def revised(self) -> int:
        """The number of corrected events: each has one retraction."""
        return self.retractions


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if count < 0:
            raise SchemaError(f"{name} is too small", given=count, allowed="a count")


def _check_rate(rate: float) -> None:
    if not 0 < rate <= _SECOND:
        raise SchemaError("rate_per_second is out of range", given=rate, allowed=f"more than 0, at most {_SECOND}")


def _check_shares(**shares: float) -> None:
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise SchemaError(f"{name} is a share", given=share, allowed="0 to 1")


# Trades.


def ticks(config: Ticks) -> pa.Table:
    """Trades as physical events in arrival order: `kind, le, re, re_new, symbol, ts, price, quantity`."""
    trades = _Trades.of(config)
    revised = np.flatnonzero(trades.revised)
    arrival = np.concatenate([trades.arrival, trades.revision[revised], trades.revision[revised]])
    # Stable: with equal arrivals, the first delivery, then the deletion, then the correction.
    order = np.argsort(arrival, kind="stable")
    trade = np.concatenate([np.arange(config.rows), revised, revised])[order]
    step = np.repeat([0, 1, 2], [config.rows, len(revised), len(revised)])[order]
    price = np.where((step < 2) & trades.revised[trade], trades.wrong[trade], trades.price[trade])
    le = trades.ts[trade]
    kinds = pa.DictionaryArray.from_arrays((step == 1).astype(np.int8), ["insert", "retract"]).cast(pa.string())
    times = {"kind": kinds, "le": le, "re": le + CHRONON, "re_new": pa.array(le, mask=step != 1)}
    return pa.table({**times, **trades.payload(trade, price)})


def plain_ticks(config: Ticks) -> pa.Table:
    """The same trades without wrong prices, as plain rows in arrival order: `symbol, ts, price, quantity`."""
    trades = _Trades.of(config)
    order = np.argsort(trades.arrival, kind="stable")
    return pa.table(trades.payload(order, trades.price[order]))


@dataclass(frozen=True)
class _Trades:
    """Trades by time, with the arrivals of each trade and of its correction."""

    config: Ticks
    ts: Longs
    symbol: Longs
    price: Floats
    wrong: Floats
    quantity: NDArray[np.int32]
    arrival: Longs
    revised: NDArray[np.bool_]
    revision: Longs

    @classmethod
    def of(cls, config: Ticks) -> _Trades:
        rng = np.random.default_rng(config.seed)
        n = config.rows
        ts = _times(rng, n, to_ticks(config.start), config.rate_per_second, config.lulls)
        symbol = rng.integers(0, config.symbols, n)
        price = _walk(rng, symbol, config.symbols, config.volatility)
        quantity = rng.integers(1, 1000, n, dtype=np.int32)
        arrival, late = _arrivals(rng, ts, config.disorder, duration(config.max_delay), config.late)
        revised = (rng.random(n) < config.revisions) & ~late
        wrong = np.round(price * rng.uniform(1.01, 1.1, n), 2)
        # Between the first delivery and the bound.
        revision = arrival + (rng.random(n) * (ts + duration(config.max_delay) - arrival)).astype(np.int64)
        return cls(config, ts, symbol, price, wrong, quantity, arrival, revised, revision)

    def payload(self, rows: Longs, price: Floats) -> dict[str, Any]:
        names = pa.array([f"S{i:0{len(str(self.config.symbols - 1))}d}" for i in range(self.config.symbols)])
        return {
            "symbol": names.take(pa.array(self.symbol[rows])),
            "ts": _datetimes(self.ts[rows]),
            "price": price,
            "quantity": self.quantity[rows],
        }


def _datetimes(times: Longs) -> pa.Array:
    return pa.array(times).cast(_DATETIME)


def _times(rng: np.random.Generator, rows: int, start: int, rate: float, lulls: float = 0.0) -> Longs:
    """Strictly increasing times at this rate, with silences that take the share `lulls` of the time."""
    gaps = rng.exponential(_SECOND / rate, rows)
    if lulls and rows:
        silences = rng.choice(rows, max(1, rows // _ROWS_PER_LULL), replace=False)
        lengths = rng.exponential(1.0, len(silences))
        gaps[silences] += lengths * (gaps.sum() * lulls / (1 - lulls) / lengths.sum())
    steps = np.arange(rows)
    times = np.cumsum(gaps).astype(np.int64)
    return start + np.maximum.accumulate(times - steps) + steps if rows else np.empty(0, dtype=np.int64)


def _walk(rng: np.random.Generator, symbol: Longs, symbols: int, volatility: float) -> Floats:
    """A random walk of prices for each symbol."""
    first = rng.uniform(10, 500, symbols)
    order = np.argsort(symbol, kind="stable")
    moves = np.cumsum(rng.normal(0.0, volatility, len(symbol)))
    counts = np.bincount(symbol, minlength=symbols)
    before = np.concatenate([[0.0], moves])[np.cumsum(counts) - counts]
    price = np.empty(len(symbol))
    price[order] = first[symbol[order]] * np.exp(moves - np.repeat(before, counts))
    return np.maximum(np.round(price, 2), 0.01)


def _arrivals(
    rng: np.random.Generator, ts: Longs, disorder: float, max_delay: int, late: float = 0.0
) -> tuple[Longs, NDArray[np.bool_]]:
    """The arrival of each row, and which rows are delayed beyond the bound."""
    draw = rng.random(len(ts))
    delay = rng.integers(1, max_delay, len(ts), endpoint=True)
    is_late = (draw >= disorder) & (draw < disorder + late)
    delay = np.where(is_late, delay + max_delay, np.where(draw < disorder, delay, 0))
    return ts + delay, is_late


# The auction house.


def persons(config: Auctions) -> pa.Table:
    """Buyers and sellers: `id, name, city, ts`, in arrival order."""
    house = _House.of(config)
    ids = np.arange(len(house.person_ts))
    rng = np.random.default_rng([config.seed, 1])
    city = pa.array(_CITIES).take(pa.array(rng.integers(0, len(_CITIES), len(ids))))
    names = pc.binary_join_element_wise("person ", pa.array(ids).cast(pa.string()), "")
    table = pa.table({"id": ids, "name": names, "city": city, "ts": _datetimes(house.person_ts)})
    return _delivered(table, house.person_ts, rng, config)


def auctions(config: Auctions) -> pa.Table:
    """Auctions: `id, seller, category, initial, reserve, ts, expires`, in arrival order."""
    house = _House.of(config)
    ids = np.arange(len(house.auction_ts))
    rng = np.random.default_rng([config.seed, 2])
    initial = rng.integers(1, 1000, len(ids))
    table = pa.table({
        "id": ids,
        "seller": _recent(rng, house.person_ts, house.auction_ts),
        "category": rng.integers(0, config.categories, len(ids), dtype=np.int32),
        "initial": initial,
        "reserve": initial + rng.integers(0, 1000, len(ids)),
        "ts": _datetimes(house.auction_ts),
        "expires": _datetimes(house.auction_ts + duration(config.open_for)),
    })  # fmt: skip
    return _delivered(table, house.auction_ts, rng, config)


def bids(config: Auctions) -> pa.Table:
    """Bids: `auction, bidder, price, ts`, in arrival order."""
    house = _House.of(config)
    rng = np.random.default_rng([config.seed, 3])
    n = len(house.bid_ts)
    auction = _recent(rng, house.auction_ts, house.bid_ts)
    auction = np.where(rng.random(n) < config.hot, auction // 100 * 100, auction)
    table = pa.table({
        "auction": auction,
        "bidder": _recent(rng, house.person_ts, house.bid_ts),
        "price": np.round(np.exp(rng.normal(5.0, 1.0, n)), 2),
        "ts": _datetimes(house.bid_ts),
    })  # fmt: skip
    return _delivered(table, house.bid_ts, rng, config)


@dataclass(frozen=True)
class _House:
    """The times of persons, auctions and bids, from one clock."""

    person_ts: Longs
    auction_ts: Longs
    bid_ts: Longs

    @classmethod
    def of(cls, config: Auctions) -> _House:
        rng = np.random.default_rng(config.seed)
        ts = _times(rng, config.rows, to_ticks(config.start), config.rate_per_second)
        turn = np.arange(config.rows) % 50
        return cls(ts[turn == 0], ts[(turn > 0) & (turn < 4)], ts[turn >= 4])


def _recent(rng: np.random.Generator, known: Longs, at: Longs, reach: int = 1000) -> Longs:
    """For each time, a random one of the last `reach` items known by then, as its number."""
    count = np.searchsorted(known, at, side="right")
    return count - 1 - (rng.random(len(at)) * np.minimum(count, reach)).astype(np.int64)


def _delivered(table: pa.Table, ts: Longs, rng: np.random.Generator, config: Auctions) -> pa.Table:
    arrival, _ = _arrivals(rng, ts, config.disorder, duration(config.max_delay))
    return table.take(pa.array(np.argsort(arrival, kind="stable")))


# By name.


def rows_of(name: str, **options: Any) -> tuple[pa.Table, int]:
    """Plain rows of a kind in arrival order, and the largest delay in ticks; `options` are those of its config.

    Kinds are `trades` and, of an auction house, `persons`, `auctions` and `bids`.
    """
    kind = _KINDS.get(str(name).lower())
    if kind is None:
        raise SchemaError(
            f"there is no generator of {name!r}",
            given=name,
            allowed=", ".join(_KINDS),
            instead=nearest(str(name), list(_KINDS)) or "trades",
        )
    config, generate = kind
    known = [field.name for field in fields(config) if field.name != "revisions"]  # plain rows have no revisions
    for option in options:
        if option not in known:
            raise SchemaError(
                f"{name} have no option {option!r}",
                given=option,
                allowed=", ".join(known),
                instead=nearest(option, known) or "",
            )
    settings = config(**options)
    return generate(settings), duration(settings.max_delay)


_KINDS: dict[str, tuple[Any, Any]] = {
    "trades": (Ticks, plain_ticks),
    "persons": (Auctions, persons),
    "auctions": (Auctions, auctions),
    "bids": (Auctions, bids),
}


# Facts about a stream.


def sync_times(table: pa.Table) -> Longs:
    """The sync time of each physical event (rule 2.4)."""
    earliest = pc.min_element_wise(table["re"], table["re_new"])
    times = pc.if_else(pc.equal(table["kind"], "retract"), earliest, table["le"])
    return np.asarray(times.to_numpy(), dtype=np.int64)


def facts(table: pa.Table, max_delay: DurationLike = "5 s") -> StreamFacts:
    """Facts of a physical stream, for an input that advances with this delay after every event."""
    events = table.filter(pc.not_equal(table["kind"], "cti"))
    if not len(events):
        return StreamFacts(0, 0, 0, 0, 0, 0, None, None)
    le = events["le"].to_numpy()
    highest = np.maximum.accumulate(le)
    delays = np.concatenate([[0], highest[:-1] - sync_times(events)[1:]])
    retractions = int(pc.sum(pc.equal(events["kind"], "retract")).as_py())
    return StreamFacts(
        rows=len(events),
        inserts=len(events) - retractions,
        retractions=retractions,
        out_of_order=int((delays > 0).sum()),
        late=int((delays > duration(max_delay)).sum()),
        largest_delay=max(0, int(delays.max())),
        first=int(le.min()),
        last=int(le.max()),
    )


def expected_cht(table: pa.Table) -> pa.Table:
    """The canonical history of a physical stream (rule 1.4): `le, re` and the payload, sorted.

    By rule 2.1: an insert counts +1; a retraction counts -1 for the old lifetime and, unless it deletes, +1 for the
    new one.
    """
    payload = [name for name in table.column_names if name not in ("kind", "le", "re", "re_new")]
    inserts = table.filter(pc.equal(table["kind"], "insert")).select(["le", "re", *payload])
    retractions = table.filter(pc.equal(table["kind"], "retract"))
    old = retractions.select(["le", "re", *payload])
    new = retractions.filter(pc.not_equal(retractions["re_new"], retractions["le"])).select(["le", "re_new", *payload])
    counted = [(inserts, 1), (old, -1), (new.rename_columns(inserts.column_names), 1)]
    changes = pa.concat_tables([part.append_column("weight", pa.array(np.full(len(part), w))) for part, w in counted])
    left = changes.group_by(inserts.column_names).aggregate([("weight", "sum")])
    weight = left["weight_sum"].to_numpy()
    if (weight < 0).any():
        wrong = left.filter(pa.array(weight < 0)).slice(0, 1).to_pylist()[0]
        raise EventError("a retraction without its event", given=wrong, allowed="to retract what was inserted")
    history = left.select(inserts.column_names).take(pa.array(np.repeat(np.arange(len(left)), weight)))
    return history.sort_by([(name, "ascending") for name in history.column_names])


# Files.


def write_files(table: pa.Table, directory: str, files: int, format: Format | str = "parquet") -> list[str]:
    """Write the table to files, in order of the rows by name and by modification time (in the past); their paths."""
    how = Format(format) if isinstance(format, str) else format
    folder = _folder(directory)
    bounds = np.linspace(0, len(table), files + 1).astype(int)
    oldest = time.time_ns() - files * 1_000_000
    written = []
    for i in range(files):
        target = folder / f"part-{i:05d}.{_ENDING[how.name]}"
        hidden = folder / f".{target.name}"
        _write(table.slice(bounds[i], bounds[i + 1] - bounds[i]), hidden, how)
        os.utime(hidden, ns=(oldest + i * 1_000_000,) * 2)
        hidden.rename(target)  # readers never see a part of a file
        written.append(str(target))
    return written


_ENDING = {"csv": "csv", "json": "jsonl", "parquet": "parquet", "arrow": "arrow"}


def _folder(directory: str) -> Path:
    path = local_path(directory)
    if path is None:
        raise SinkError("files are generated on local disk", given=directory, instead="a local path")
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SinkError(f"cannot create {directory!r}: {error.strerror}", given=directory) from error
    return folder


def _write(table: pa.Table, path: Path, how: Format) -> None:
    if how.name == "parquet":
        pq.write_table(table, path, write_page_checksum=True)
    elif how.name == "json":
        path.write_bytes(rows_to_jsonl(table))
    elif how.name == "csv":
        style = "none" if _is_plain(table, how.delimiter) else "needed"
        options = pacsv.WriteOptions(include_header=how.header, delimiter=how.delimiter, quoting_style=style)
        pacsv.write_csv(_with_iso_times(table), path, options)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)


def _with_iso_times(table: pa.Table) -> pa.Table:
    """Times as text: Arrow's CSV writer is much slower."""
    for i, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and len(table):
            texts = pa.chunked_array([iso_texts(chunk) for chunk in table.column(i).chunks])
            table = table.set_column(i, field.name, texts)
    return table


def _is_plain(table: pa.Table, delimiter: str) -> bool:
    """Whether no text needs quotes: fields without quotes are much faster to read."""
    texts = [column for column in table.columns if pa.types.is_string(column.type)]
    odd = rf'^$|["\r\n\x{{{ord(delimiter):x}}}]'
    return not any(pc.any(pc.match_substring_regex(column, odd)).as_py() for column in texts)
