"""Compare a query's live answer with batch SQL over the history, on its own data and on random streams."""

from __future__ import annotations

from functools import partial
from typing import Any

from headrace.errors import PlanError, Undecided
from headrace.events import history_diff
from headrace.history.duckdb import DuckDBHistory
from headrace.host.local import run_local
from headrace.io.origins import Events, Files
from headrace.meter import Work, working
from headrace.plan.nodes import Node, Output, Source, sources_of
from headrace.testing.checks import Shape, Violation, check_output
from headrace.testing.generators.generate import Pattern
from headrace.testing.generators.traits import Traits, anything
from headrace.testing.intents.text import read_traits
from headrace.testing.order import Order, check_order
from headrace.testing.verify import VerificationReport, verify_node

__all__ = ["verify", "verify_own_data"]

#: Rows per small batch, which makes corrections show, and the most rows worth the time.
_FEW_ROWS, _MOST_ROWS = 2, 2_000
_ROW_BYTES = 16


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
) -> VerificationReport:
    """Raise a `Violation` if the query is wrong on its own data or on a random stream; return the report."""
    if type(seeds) is not int or seeds < 0:
        raise PlanError("seeds is the number of random streams", given=seeds, allowed="0, 1, 2, …", instead="seeds=100")
    traits = over if isinstance(over, Traits) else read_traits(over)
    with working("verify") as work:
        if own_data:
            verify_own_data(node, shape=shape, order=order)
        work.total_cases, tell = seeds, partial(_show, work)
        report = verify_node(
            node, over=traits, seed=seed, cases=seeds, shape=shape, order=order, pattern=pattern, tell=tell
        )
    for failure in report.failures:
        raise Violation(str(failure))
    return report


def _show(work: Work, report: VerificationReport) -> None:
    work.cases = report.cases


def verify_own_data(node: Node, *, shape: Shape = "interval", order: Order = "corrections") -> int | None:
    """Run a query over its own inputs, live and as history; return the number of rows of both.

    None if its inputs do not end, or if late rows are not stored. The query runs in its own batches and in small ones.
    Its output is checked as well: it breaks no promise, and every correction names an existing event.
    """
    sources = sources_of(node)
    if not all(isinstance(source.origin, (Events, Files)) for source in sources):
        return None
    oracle = DuckDBHistory()
    try:
        history = oracle.cht(node)
    except Undecided:
        return None
    finally:
        oracle.close()
    rows: int = history.num_rows
    for batch_rows in (None, _FEW_ROWS):
        live = run_local([Output(node, "out")], batch_rows=batch_rows).results["out"]
        check_output(live.events(), shape)
        check_order(live.events(), order)
        difference = history_diff(live.cht(), history, names=("live", "history"))
        if difference:
            small = f", in batches of {batch_rows} rows," if batch_rows else ""
            raise Violation(f"over its own data{small} the live answer is not that of the history: {difference}")
        if _rows(sources) > _MOST_ROWS:
            break
    return rows


def _rows(sources: list[Source]) -> int:
    """The number of rows of the inputs; for files, estimated from their size."""
    return sum(_size(source.origin) for source in sources)


def _size(origin: Any) -> int:
    if isinstance(origin, Events):
        return int(origin.table.num_rows)
    return sum(file.size // _ROW_BYTES for file in origin.files())
