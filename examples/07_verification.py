"""Verification: is a query right when events arrive late, out of order and revised?

First a query that passes on generated streams, then a module that fails, with the smallest stream that shows it; a
process that dies on purpose; and the live query as batch SQL over stored input.
"""

from typing import Any

import headrace as hr
from headrace import col
from headrace.testing import Violation, assert_same_history, run_scripted

trades = hr.events(
    """
    kind    | le | re | re_new | symbol | price | quantity
    insert  | 1  | 4  |        | A      | 10.0  | 1
    insert  | 13 | 15 |        | B      | 50.0  | 2
    insert  | 3  | 12 |        | A      | 20.0  | 3
    retract | 3  | 12 | 8      | A      | 20.0  | 3
    """,
    batches=[2, 2],
)
vwap = (
    trades.group_by("symbol")
    .window(hr.tumbling(10))
    .aggregate(vwap=hr.sum(col("price") * col("quantity")) / hr.sum("quantity"), n=hr.count())
)

# On its own data and on generated streams, the live answer must equal that of the history.
report = vwap.verify(seeds=10, over="disordered & revised")
print(f"{report.cases} streams, {report.rows} rows, {sum(report.checks.values())} checks: all passed")


class Largest(hr.IncrementalAggregate):
    """The largest price, with a mistake: when it is removed, the state does not know the next one."""

    input = "price DOUBLE"
    output = "DOUBLE"

    def initial(self) -> float | None:
        return None

    def add(self, state: float | None, prices: list[float | None]) -> float | None:
        return max((price for price in [state, *prices] if price is not None), default=None)

    def remove(self, state: float | None, prices: list[Any]) -> float | None:  # noqa: ARG002 - that is the mistake
        return state

    def compute(self, state: float | None) -> float | None:
        return state


try:
    trades.window(hr.tumbling(10)).aggregate(largest=Largest()).verify(seeds=40, over="revised & no_ctis", seed=1)
except Violation as violation:
    print(violation)
else:
    raise SystemExit("the mistake was not found")

# A process that dies in the middle of its second batch: the output does not show it.
run = run_scripted(
    {
        "orders": """
        kind   | le | re | item
        insert | 1  | 5  | lamp
        pause  |    |    |
        insert | 3  | 9  | lamp
        abort  |    |    |
        insert | 4  | 9  | desk
        """
    },
    lambda orders: orders.group_by("item").window(hr.snapshot()).aggregate(n=hr.count()),
)
print(f"restarts: {run.restarts}")
assert_same_history(
    run,
    """
    le | re | item | n
    1  | 3  | lamp | 1
    3  | 5  | lamp | 2
    5  | 9  | lamp | 1
    4  | 9  | desk | 1
    """,
)

# The live query as batch SQL over all stored input, here in DuckDB; the default is Spark.
assert_same_history(vwap.history(engine="duckdb").cht(), vwap)
at_once = trades.window(hr.snapshot()).aggregate(n=hr.count())
print(at_once.history(engine="duckdb").statements[-1].query)
