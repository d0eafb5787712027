"""Aggregates that add up, over runs of tuples: the difference of two running sums, however long the run is."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from headrace.changes import Changes
from headrace.columnar import Int64s, to_numpy
from headrace.expr import evaluate
from headrace.operators.aggregate.accumulators import PART
from headrace.operators.aggregate.answers import answers
from headrace.operators.per_window.content import AggregateContent, Outputs
from headrace.operators.per_window.divide import Windows
from headrace.plan.nodes import Aggregate

__all__ = ["RunSums"]

_WINDOW = "__window"


class RunSums:
    """Counts, sums, averages and variances of runs."""

    def __init__(self, content: AggregateContent) -> None:
        assert content.layout is not None
        self.content, self.layout = content, content.layout

    @classmethod
    def of(cls, node: Aggregate) -> RunSums | None:
        """For a node whose aggregates can all be subtracted; None for others."""
        return cls(AggregateContent(node)) if node.by_sums else None

    def of_tuples(self, tuples: Changes) -> dict[str, Int64s]:
        """The sums that each tuple adds."""
        no_keys = pa.table({"__none": pa.nulls(len(tuples))}).select([])
        sums = self.layout.sums_table(tuples, no_keys)
        return {name: to_numpy(sums.column(name)) for name in sums.column_names}

    def outputs(
        self,
        windows: Windows,
        first: Int64s,
        last: Int64s,
        tuples: Changes,
        carried: Mapping[str, Int64s] | None = None,
    ) -> Outputs:
        """The answers of all runs `first .. last`; `carried` has the sums of each group's earlier tuples."""
        sums, before = self.of_tuples(tuples), carried or {}
        columns = {_WINDOW: np.arange(len(first)), PART: np.zeros(len(first), np.int8)}
        for name in dict.fromkeys([*sums, *before]):
            # Sums may overflow: the differences of wrapped sums are still right.
            total = np.r_[np.int64(0), np.cumsum(sums[name])] if name in sums else np.zeros(len(tuples) + 1, np.int64)
            added = total[last + 1] - total[first]
            columns[name] = added + before[name][windows.group] if name in before else added
        results = answers(pa.table(columns), self.layout, _WINDOW)
        table = pa.table({_WINDOW: results.column(_WINDOW)})
        for name, inner in zip(self.content.built_in, self.layout.node.split[0], strict=True):
            table = table.append_column(name, results.column(inner))
        outputs = self.content.outputs_over
        schema = pa.schema([self.content.node.schema.arrow.field(name) for name in outputs])
        payload = pa.Table.from_arrays([evaluate(expr, table) for expr in outputs.values()], schema=schema)
        of = to_numpy(results.column(_WINDOW))
        return Outputs(of, windows.le[of], windows.re[of], payload)
