"""What is computed for a statement, in this process or in another, and how it travels there.

Pickling recurses, and a plan may be thousands of operators deep; so operators are pickled one by one, inputs first, and
refer to each other by number. Tables of an answer are sent as Arrow streams, which have no more rows than they show.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import pyarrow as pa

from headrace.api.analyzed import explain_analyzed
from headrace.api.running import run_quietly
from headrace.plan.nodes import Node, walk
from headrace.server.access import Limits
from headrace.sql.peek import Computed, Order, computed, current

__all__ = ["AnalyzeJob", "AskJob", "ComputeJob", "RowsJob", "SelectAnswer", "pack", "unpack"]


@dataclass(frozen=True)
class SelectAnswer:
    """The rows of a SELECT, and what is known about rows that it did not use."""

    table: pa.Table
    losses: str


@dataclass(frozen=True)
class ComputeJob:
    """A plan to compute, with the options of the run."""

    node: Node
    options: Mapping[str, Any]

    def over(self, node: Node) -> Self:
        """The same job over another plan."""
        return replace(self, node=node)

    def run(self) -> Any:
        """Compute it in this process."""
        raise NotImplementedError


@dataclass(frozen=True)
class AskJob(ComputeJob):
    """A SELECT: the present answer, which is the rows that hold now of a relation, else the history so far."""

    relation: bool
    order: Order
    limits: Limits

    def run(self) -> SelectAnswer:
        run = run_quietly({"out": self.node}, **self.options)
        result = run.results["out"]
        table = current(result, self.order) if self.relation else result.cht()
        self.limits.check_reply(table)
        return SelectAnswer(table, run.losses() if run.lost else "")


@dataclass(frozen=True)
class RowsJob(ComputeJob):
    """The rows that a statement takes into a table."""

    how: Computed
    limits: Limits

    def run(self) -> pa.Table:
        table = computed(self.node, self.how, self.options)
        if table.nbytes > self.limits.statement_memory:
            raise self.limits.out_of_memory()
        return table


@dataclass(frozen=True)
class AnalyzeJob(ComputeJob):
    """EXPLAIN ANALYZE."""

    liveliness: bool

    def run(self) -> str:
        return explain_analyzed(self.node, liveliness=self.liveliness, **self.options)


# --- as bytes --------------------------------------------------------------------------------------------------------


class _JobPacker(pickle.Pickler):
    """Pickles one object; nodes that were pickled before are numbers, and tables are Arrow streams."""

    def __init__(self, file: io.BytesIO, numbers: Mapping[int, int]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._numbers = numbers

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, Node):
            return self._numbers.get(id(value))
        return _arrow(value) if isinstance(value, pa.Table) else None


class _JobUnpacker(pickle.Unpickler):
    def __init__(self, data: bytes, nodes: list[Node]) -> None:
        super().__init__(io.BytesIO(data))
        self._nodes = nodes

    def persistent_load(self, found: Any) -> Any:
        if isinstance(found, int):
            return self._nodes[found]
        with pa.ipc.open_stream(found) as stream:
            return stream.read_all()


def _arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(memoryview(sink.getvalue()))


def _packed(value: Any, numbers: Mapping[int, int]) -> bytes:
    file = io.BytesIO()
    try:
        _JobPacker(file, numbers).dump(value)
    except (pickle.PicklingError, AttributeError, TypeError):  # a function of a module, which has no name of its own
        from headrace.host.spark.packing import packed_part  # start-up: few plans need it

        return packed_part(value, numbers, set())
    return file.getvalue()


def pack(value: Any, *roots: Node) -> bytes:
    """A value as bytes; `roots` are the plans in it."""
    numbers: dict[int, int] = {}
    parts = []
    for number, node in enumerate(walk(*roots)):
        parts.append(_packed(node, numbers))
        numbers[id(node)] = number
    return pickle.dumps((list(sys.path), parts, _packed(value, numbers)))


def unpack(data: bytes) -> Any:
    """The value of bytes that another process of this server has packed."""
    path, parts, value = pickle.loads(data)  # noqa: S301 - of this server
    sys.path.extend(one for one in path if one not in sys.path)
    nodes: list[Node] = []
    for part in parts:
        nodes.append(_JobUnpacker(part, nodes).load())
    return _JobUnpacker(value, nodes).load()
