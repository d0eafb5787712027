"""Is a query right? Its live answer beside batch SQL over the history, on its own data and on made-up streams."""

from __future__ import annotations

from headrace.errors import PlanError
from headrace.events import history_diff
from headrace.history.duckdb import DuckDBHistory
from headrace.host.local import run_local
from headrace.io.origins import Events, Files
from headrace.plan.nodes import Node, Output, Source, walk
from headrace.testing.checks import Shape, Violation, check_output
from headrace.testing.generators.generate import Pattern
from headrace.testing.generators.traits import Traits, anything
from headrace.testing.intents.text import read_traits
from headrace.testing.order import Order, check_order
from headrace.testing.verify import Report, verify_node

__all__ = ["verify", "verify_own_data"]


def verify(
    node: Node,
    *,
    seeds: int = 100,
    over: Traits | str = anything,
    seed: int = 0,
    own_data: bool = True,
    shape: Shape = "interval",
    order: Order = "corrections",
    pattern: Pattern | None = None,
) -> Report:
    """Raise a `Violation` if the query is wrong on its own data, or on one of so many streams; tell what was tried."""
    if seeds < 0:
        raise PlanError("seeds is how many streams are made up", given=seeds, allowed="0, 1, 2, …", instead="seeds=100")
    if own_data:
        verify_own_data(node, shape=shape, order=order)
    traits = read_traits(over) if isinstance(over, str) else over
    report = verify_node(node, over=traits, seed=seed, cases=seeds, shape=shape, order=order, pattern=pattern)
    for failure in report.failures:
        raise Violation(str(failure))
    return report


def verify_own_data(node: Node, *, shape: Shape = "interval", order: Order = "corrections") -> int | None:
    """Run a query over its own inputs, live and as history; how many rows both give, or None if its inputs do not end.

    What a live query gives is checked as well: no promise is broken, and every correction finds what it corrects.
    """
    sources = [n for n in walk(node) if isinstance(n, Source)]
    if not all(isinstance(source.origin, (Events, Files)) for source in sources):
        return None
    live = run_local([Output(node, "out")]).results["out"]
    oracle = DuckDBHistory()
    try:
        history = oracle.cht(node)
    finally:
        oracle.close()
    check_output(live.events(), shape)
    check_order(live.events(), order)
    cht = live.cht()
    rows: int = cht.num_rows
    difference = history_diff(cht, history, names=("live", "history"))
    if difference:
        raise Violation(f"over its own data the live answer is not that of the history: {difference}")
    return rows
