"""Generated trades with disorder and corrections, and an answer that does not depend on how they arrive.

The generator delivers trades out of order, and some with a wrong price that is corrected later. For any batches and any
number of buckets, the history of the answer is the same, to the last digit.
"""

import headrace as hr
from headrace import col
from headrace.io.generator import Ticks, facts, ticks

table = ticks(Ticks(rows=5_000, seed=11, symbols=4, rate_per_second=100, disorder=0.3, revisions=0.05))
print(facts(table))

trades = hr.events(table, progress=hr.advance(delay="5 s"))
vwap = (
    trades.group_by("symbol")
    .window(hr.hopping("20 s", every="5 s"))
    .aggregate(vwap=hr.sum(col("price") * col("quantity")) / hr.sum("quantity"), n=hr.count())
)

at_once = vwap.cht()
in_pieces = vwap.cht(batch_rows=100, buckets=3)
print(at_once.slice(0, 8).to_pandas().to_string())
assert at_once.equals(in_pieces)
