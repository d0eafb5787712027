"""The queries of NEXMark: each a function of the streams it needs.

In SQL these are queries of tables that only grow. Here the window of an answer is its lifetime, so it needs no column.
A table that only grows is a stream whose events never end (`set_duration(hr.INFINITY)`): the history has SQL's answer
at every instant, and SQL's last answer consists of the rows that never end. That concerns q4, q18 and q19; for all
other queries, every row of the history is a row of SQL's answer.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from examples.nexmark.streams import House

import headrace as hr
from headrace import Stream, col
from headrace.expr import Expr

__all__ = ["QUERIES", "Ranked", "build_query", "directory", "offers", "sales"]


def q0(bids: Stream) -> Stream:
    """Every bid, unchanged: the cost of the engine without a computation."""
    return bids.select("auction", "bidder", "price", "date_time")


def q1(bids: Stream) -> Stream:
    """What are the prices in euros?"""
    return bids.select("auction", "bidder", "date_time", price=col("price") * 0.908)


def q2(bids: Stream) -> Stream:
    """What is offered for these five items?"""
    return bids.where(col("auction").isin(1007, 1020, 2001, 2019, 2087)).select("auction", "price")


def q3(persons: Stream, auctions: Stream) -> Stream:
    """Who sells things of category 10 in Oregon, Idaho or California, and under which number?

    A join pairs events while both last: the answer holds while the auction is open.
    """
    local = persons.where(col("state").isin("or", "id", "ca"))
    wanted = auctions.where(col("category") == 10).select("seller", auction=col("id"))
    return wanted.join(local, on={"seller": "id"}).select("name", "city", "state", id=col("auction"))


def offers(auctions: Stream, bids: Stream) -> Stream:
    """Bids on open auctions: each stands from when it is made until the auction ends.

    The join limits a bid that never ends to its auction's lifetime. A bid made before the auction opened is no offer.
    """
    made = bids.select("auction", "bidder", "price", bid_date_time=col("date_time")).set_duration(hr.INFINITY)
    return auctions.join(made, on={"id": "auction"}, where=col("bid_date_time") >= col("date_time"))


def sales(auctions: Stream, bids: Stream, *, lowest: bool = False) -> Stream:
    """The winning bid of each auction at the instant the auction ends: the bid that leads then.

    Of equal prices the earliest bid wins. With `lowest` the auction goes to the lowest bid.
    """
    order = ["price", "bid_date_time"]
    leading = offers(auctions, bids).group_by("id").top(1, by=order, descending=[not lowest, False])
    ended = auctions.point_at_end().select(ended=col("id"))
    return leading.extend(1).join(ended, on={"id": "ended"})  # one instant more, to meet the end


def q4(auctions: Stream, bids: Stream) -> Stream:
    """What is the average selling price of each category, over all auctions that have ended so far?"""
    sold = sales(auctions, bids).set_duration(hr.INFINITY)
    return sold.group_by("category").window(hr.snapshot()).aggregate(avg=hr.avg("price"))


def q5(bids: Stream) -> Stream:
    """Which auctions had the most bids in the last ten seconds, every two seconds?

    The windows overlap, and a join must not mix them: they are cut to two seconds each, so that they do not overlap,
    for the join with the largest count.
    """
    counts = bids.group_by("auction").window(hr.hopping("10 s", every="2 s")).aggregate(num=hr.count())
    apart = counts.set_duration("2 s")
    most = apart.window(hr.snapshot()).aggregate(most=hr.max("num"))
    return apart.join(most, on={"num": "most"}).select("auction", "num").set_duration("10 s")


def q6(auctions: Stream, bids: Stream, *, lowest: bool = False) -> Stream:
    """What did each seller get on average for an item and the ten sold before it, in the order of the winning bids?

    The winner is known when the auction ends, so a sale is moved back a day, longer than any auction lasts, and joined
    with its bid; the average starts at that bid's time. A better bid that arrives later retracts earlier answers.
    """
    known = sales(auctions, bids, lowest=lowest).select("seller", "id", "bidder", "price", "bid_date_time")
    known = known.shift("-1 day").set_duration("1 day")
    same = {"auction": "id", "bidder": "bidder", "price": "price", "date_time": "bid_date_time"}
    sold = bids.join(known, on=same).select("seller", "price", "date_time").set_duration(hr.INFINITY)
    latest = sold.group_by("seller").top(11, by="date_time")
    return latest.group_by("seller").window(hr.snapshot()).aggregate(avg=hr.avg("price"))


def q7(bids: Stream) -> Stream:
    """What is the highest bid of each ten seconds? Of equal ones, the earliest."""
    highest = bids.window(hr.tumbling("10 s")).top(1, by=["price", "date_time"], descending=[True, False])
    return highest.select("auction", "price", "bidder", "date_time")


def q8(persons: Stream, auctions: Stream) -> Stream:
    """Who opened an auction within the same ten seconds in which they registered?"""
    period = hr.tumbling("10 s")
    new = persons.point_at_start().group_by("id", "name").window(period).aggregate(registered=hr.count())
    selling = auctions.point_at_start().group_by("seller").window(period).aggregate(opened=hr.count())
    return new.join(selling, on={"id": "seller"}).select("id", "name")


def q9(auctions: Stream, bids: Stream) -> Stream:
    """Which bid won each auction?"""
    return sales(auctions, bids).select(
        "id", "item_name", "description", "initial_bid", "reserve", "date_time", "expires", "seller", "category",
        "auction", "bidder", "price", "bid_date_time",
    )  # fmt: skip


def q14(bids: Stream) -> Stream:
    """Which bids are worth one to fifty million euros, by day or night, and how many c's are in `extra`?"""
    hour, price = col("date_time").hour(), col("price") * 0.908
    time_type = (
        hr.when(hour.between(8, 18))
        .then(hr.lit("dayTime"))
        .when((hour <= 6) | (hour >= 20))
        .then(hr.lit("nightTime"))
        .otherwise(hr.lit("otherTime"))
    )
    return bids.where((price > 1_000_000) & (price < 50_000_000)).select(
        "auction", "bidder", "date_time",
        price=price,
        bidTimeType=time_type,
        c_counts=col("extra").length() - col("extra").replace("c", "").length(),
    )  # fmt: skip


RANKS = {
    "rank1": col("price") < 10_000,
    "rank2": (col("price") >= 10_000) & (col("price") < 1_000_000),
    "rank3": col("price") >= 1_000_000,
}


def _bids_by_rank() -> dict[str, Expr]:
    """How many bids there are, and how many of each rank of prices: an aggregate ignores nulls."""
    ranked = {f"{rank}_bids": hr.count(where=holds) for rank, holds in RANKS.items()}
    return {"total_bids": hr.count(), **ranked}


def _distinct_by_rank(what: str, column: str) -> dict[str, Expr]:
    """How many different values a column has, and how many among the bids of each rank."""
    ranked = {f"{rank}_{what}": hr.distinct_count(column, where=holds) for rank, holds in RANKS.items()}
    return {f"total_{what}": hr.distinct_count(column), **ranked}


def q15(bids: Stream) -> Stream:
    """How many bids, bidders and auctions are there each day, in all and by the rank of the price?"""
    return bids.window(hr.tumbling("1 day")).aggregate(
        **_bids_by_rank(), **_distinct_by_rank("bidders", "bidder"), **_distinct_by_rank("auctions", "auction")
    )


def q16(bids: Stream) -> Stream:
    """The same for each channel, and in which minute did its last bid of the day come?"""
    return bids.group_by("channel").window(hr.tumbling("1 day")).aggregate(
        minute=hr.max("date_time").date_trunc("minute"),
        **_bids_by_rank(), **_distinct_by_rank("bidders", "bidder"), **_distinct_by_rank("auctions", "auction"),
    )  # fmt: skip


def q17(bids: Stream) -> Stream:
    """How many bids has each auction each day, and what are their prices like?"""
    return bids.group_by("auction").window(hr.tumbling("1 day")).aggregate(
        **_bids_by_rank(),
        min_price=hr.min("price"), max_price=hr.max("price"), avg_price=hr.avg("price"), sum_price=hr.sum("price"),
    )  # fmt: skip


def q18(bids: Stream) -> Stream:
    """What is the last bid of each bidder on each auction?

    A bid is the last one until the next. Two bids of the same instant do not clip each other: `extra` decides.
    """
    pair = ["bidder", "auction"]
    lasting = bids.set_duration(hr.INFINITY).clip(bids, on=pair)
    return lasting.group_by(*pair).top(1, by="extra", descending=False)


class Ranked(hr.Operator):
    """Every bid with its place: the highest price first, of equal ones the earliest."""

    input = "bidder LONG, price LONG, channel STRING, url STRING, date_time DATETIME, extra STRING"
    output = "bidder LONG, price LONG, channel STRING, url STRING, date_time DATETIME, extra STRING, rank_number LONG"

    def compute(self, bids: list[Any]) -> list[tuple[Any, ...]]:
        """The bids in order, numbered."""
        ordered = sorted(bids, key=lambda bid: (-bid.price, bid.date_time))
        return [(*bid, place) for place, bid in enumerate(ordered, start=1)]


def q19(bids: Stream) -> Stream:
    """Which are the ten highest bids on each auction, and in which order?"""
    order = ["price", "date_time", "extra"]
    highest = bids.set_duration(hr.INFINITY).group_by("auction").top(10, by=order, descending=[True, False, False])
    return highest.group_by("auction").window(hr.snapshot()).operate(Ranked())


def q20(auctions: Stream, bids: Stream) -> Stream:
    """Which bids are made on things of category 10, and what are these? The auction has opened; it may have ended."""
    things = auctions.where(col("category") == 10).set_duration(hr.INFINITY)
    return bids.join(things, on={"auction": "id"}).select(
        "auction", "bidder", "price", "channel", "url", "item_name", "description", "initial_bid", "reserve", "expires",
        "seller", "category",
        bid_date_time=col("date_time"), bid_extra=col("extra"),
        auction_date_time=col("date_time_right"), auction_extra=col("extra_right"),
    )  # fmt: skip


@hr.udf
def directory(url: str, number: int) -> str | None:
    """A part of a URL, divided by slashes: `https:` is part 0."""
    parts = url.split("/")
    return parts[number] if number < len(parts) else None


def q22(bids: Stream) -> Stream:
    """What are the directories of the URL?"""
    dirs = {f"dir{i}": directory("url", i + 2) for i in (1, 2, 3)}
    return bids.select("auction", "bidder", "price", "channel", **dirs)


QUERIES: dict[str, Callable[..., Stream]] = {
    query.__name__: query
    for query in (q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q14, q15, q16, q17, q18, q19, q20, q22)
}  # fmt: skip


def build_query(name: str, house: House, **options: Any) -> Stream:
    """The query with this name, over the streams of a house."""
    query = QUERIES[name]
    needs = [stream for stream in inspect.signature(query).parameters if stream in House._fields]
    return query(**{stream: getattr(house, stream) for stream in needs}, **options)
