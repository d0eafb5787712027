"""Modules by name: averages and chart patterns of the package headrace-finance, over trades that arrive out of order.

The modules contain no code for disorder, corrections or Spark; users need only their names.
"""

import headrace as hr
from headrace.io.generator import Ticks, ticks

print(hr.modules())

# Averages over trades; a third of them arrives out of order, and some have a wrong price that is corrected.
trades = hr.events(
    ticks(Ticks(rows=3_000, seed=7, symbols=3, rate_per_second=50, disorder=0.3, revisions=0.05)),
    progress=hr.advance(delay="10 s"),
)
averages = (
    trades.group_by("symbol")
    .window(hr.tumbling("20 s"), clipping="right")
    .aggregate(
        vwap=hr.module("finance.vwap"),
        twap=hr.module("finance.twap"),
        trend=hr.module("finance.ema", alpha=0.2),
        trades=hr.count(),
    )
)
print(averages.cht().slice(0, 6).to_pandas().to_string())
assert averages.cht(batch_rows=97, buckets=3).equals(averages.cht())

# A W: two equal lows with a high between them. It is found, and retracted when an out-of-order price destroys it.
prices = hr.events(
    """
    kind   | le | re | price
    insert | 10 | 11 | 9.0
    insert | 20 | 21 | 5.0
    insert | 30 | 31 | 8.0
    insert | 40 | 41 | 5.1
    insert | 50 | 51 | 9.5
    insert | 61 | 62 | 9.6
    insert | 35 | 36 | 2.0
    """,
    batches=[6, 1],
)
patterns = prices.window(hr.tumbling(60)).operate(hr.module("finance.w_pattern", rise=0.1))
output = patterns.run().events()
print(output.to_pandas().to_string())
assert output["kind"].to_pylist()[:2] == ["insert", "retract"]
assert patterns.cht().num_rows == 0
