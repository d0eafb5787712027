"""Patterns over events in their order: break-ins, a W of prices, and money on its way through several accounts.

A pattern is a regular expression over variables; the condition of a variable may use all events of the match so far.
Matches are events: out-of-order input corrects them, and other queries can use them.
"""

import headrace as hr
from headrace import col, count
from headrace.io.generator import Ticks, ticks

# Three failed log-ins or more, then one that works, within ten minutes. The failure at 12:02 arrives last.
logins = hr.events(
    """
    le                  | user | ok
    2026-03-01T12:00:00 | ann  | false
    2026-03-01T12:01:00 | bob  | false
    2026-03-01T12:03:00 | ann  | false
    2026-03-01T12:04:00 | ann  | true
    2026-03-01T12:05:00 | bob  | true
    2026-03-01T12:02:00 | ann  | false
    """,
    batches=[5, 1],
)
broken_in = hr.pattern("F{3,} S", define={"F": ~col("ok"), "S": col("ok")}, within="10 min")
alarms = logins.group_by("user").match(broken_in, failures=count("F"))
print(alarms.cht().to_pandas().to_string())
assert alarms.cht().select(["user", "failures"]).to_pylist() == [{"user": "ann", "failures": 3}]
assert hr.same_history(alarms.cht(), alarms.cht(batch_rows=1, buckets=3))

# A W: two falls and two rises that return to the start, counted in steps; trades arrive out of order and are corrected.
trades = hr.events(
    ticks(Ticks(rows=3_000, seed=7, symbols=3, rate_per_second=50, disorder=0.3, revisions=0.05)),
    progress=hr.advance(delay="10 s"),
)
up = col("price") >= hr.prev("price")
w = hr.pattern("U D+ U+ D+ U+", define={"U": up, "D": ~up}, where=count("D") == count("U") - 1, within="30 s")
found = trades.group_by("symbol").match(w, steps=count(), high=hr.first("price"), low=hr.min("D.price"))
print(found.cht().slice(0, 5).to_pandas().to_string())
print(found.explain())
assert found.cht(batch_rows=97, buckets=3).equals(found.cht())
assert found.history("duckdb").cht().num_rows == found.cht().num_rows

# Money that is passed on within the hour through two accounts, with other transfers in between: all such chains.
transfers = hr.events(
    """
    le                  | source | target | amount
    2026-03-01T12:00:00 | a      | b      | 900
    2026-03-01T12:05:00 | x      | y      | 10
    2026-03-01T12:10:00 | b      | c      | 880
    2026-03-01T12:20:00 | b      | d      | 890
    2026-03-01T12:30:00 | c      | e      | 870
    2026-03-01T12:40:00 | d      | e      | 885
    """
)
chain = (
    hr.pattern()
    .then("A")
    .then("Other", repeat="*")
    .then("B", (col("source") == col("A.target")) & (col("amount") > col("A.amount") * 0.9))
    .then("Other", repeat="*")
    .then("C", (col("source") == col("B.target")) & (col("amount") > col("B.amount") * 0.9))
    .within("1 h")
    .all_matches()
)
ways = transfers.match(
    chain, origin=col("A.source"), over=col("B.source"), then=col("C.source"), target=col("C.target")
)
print(ways.cht().to_pandas().to_string())
assert sorted(ways.cht()["then"].to_pylist()) == ["c", "d"]
