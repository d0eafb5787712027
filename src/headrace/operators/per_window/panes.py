"""Partial states of algebraic modules: one for the events of a batch that share a group and a run of windows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.changes import Changes
from headrace.columnar import canonical_floats, factorize
from headrace.expr import evaluate
from headrace.modules import ModuleCall
from headrace.modules.merged import state_text
from headrace.operators.per_window.calling import Caller, Failure
from headrace.operators.per_window.divide import Windows
from headrace.operators.per_window.items import Calls, Members
from headrace.plan.panes import Panes
from headrace.plan.windows import Grid
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["panes"]


def panes(node: Panes, changes: Changes) -> Changes:
    """One event per group and run of windows, which overlaps the same windows as the events in it."""
    window = node.aggregate.window
    assert isinstance(window, Grid)
    first, last = window.first(changes.le), window.last(changes.le, changes.re)
    in_a_window = first <= last
    if not in_a_window.all():
        changes, first, last = changes.filter(in_a_window), first[in_a_window], last[in_a_window]
    if len(changes) == 0:
        return Changes.empty(node.schema)
    names = [name for name, _ in node.aggregate.keys]
    keys = pa.table({"first": first, "last": last})
    for name, expr in node.aggregate.keys:
        keys = keys.append_column(f"key {name}", evaluate(expr, changes.payload))
    keys = canonical_floats(keys)
    codes, rows = factorize(keys)
    le, re = np.full(len(rows), INFINITY, np.int64), np.full(len(rows), NEG_INFINITY, np.int64)
    np.minimum.at(le, codes, changes.le)
    np.maximum.at(re, codes, changes.re)
    run_keys = keys.take(pa.array(rows))
    key_columns = run_keys.select([f"key {name}" for name in names]).rename_columns(names)
    runs = Windows(np.arange(len(rows)), le, re, re)
    columns = [run_keys.column(f"key {name}") for name in names]
    states = [_states(node, call, changes, codes, runs, key_columns) for call in node.calls.values()]
    columns += [pa.array(column, pa.string()) for column in states]
    return Changes.inserts(le, re, pa.Table.from_arrays(columns, schema=node.schema.arrow))


def _states(
    node: Panes, call: ModuleCall, changes: Changes, codes: NDArray[np.int64], runs: Windows, keys: pa.Table
) -> list[str]:
    """The state of each run's items, as text."""
    module = call.module
    values = {name: evaluate(expr, changes.payload) for name, expr in call.mapping.items()}
    events = Changes(changes.le, changes.re, changes.weight, canonical_floats(pa.table(values)))
    caller = Caller(module, node.aggregate.policy)
    calls = Calls(caller, node.aggregate, list(values), runs, Members(codes, np.arange(len(changes)), events), keys)
    states = []
    for number, items in enumerate(calls.items(np.arange(len(runs)))):
        state = caller.start_state(items)
        if isinstance(state, Failure):
            calls.fail(number, state)
        states.append(state_text(state))
    return states
