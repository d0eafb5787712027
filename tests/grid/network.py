"""Columns of the grid: calls of a service fail, are slow, lose their answers, or are made twice."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from functools import wraps
from typing import Any

import pyarrow as pa
from tests.fixtures.tcp_proxy import NetworkFault, TcpProxy
from tests.grid.disruptions import Disruption
from tests.grid.rivals import replaced
from tests.grid.servers import place_of
from tests.grid.world import Cell

from headrace.errors import HeadraceError
from headrace.io import adapter
from headrace.io.adapter import DeliveryId, SinkAdapter
from headrace.io.origins import AdapterRead
from headrace.plan.nodes import Output, sources_of

__all__ = ["NETWORK"]

#: Seconds for which a service is away, and for which a query waits for one that stays away.
AWAY, PATIENCE = 0.7, 0.3


def disturbed(cell: Cell, *faults: NetworkFault) -> HeadraceError | None:
    """A life whose calls of services are disturbed: gives the typed error that ended it, if one did.

    It names the topic, the table or the place on the object store.
    """
    cell.network += faults
    with TcpProxy.disturbed(*faults):
        return cell.refused(names=place_of(cell.folder).mark)


def a_call(cell: Cell) -> int:
    """A random call of those that the undisturbed run makes; of the first half after an attempt that made too few."""
    return 1 + cell.draw.randrange(max(1, cell.place.calls >> cell.attempt))


def calls(what: Any, times: int = 1) -> Callable[[Cell], None]:
    """Something happens to random calls."""

    def disturb(cell: Cell) -> None:
        disturbed(cell, *(NetworkFault(what, a_call(cell)) for _ in range(times)))

    return disturb


def all_slow(cell: Cell) -> None:
    """Every call takes a while."""
    disturbed(cell, NetworkFault("slow"))


def away_and_back(cell: Cell) -> None:
    """The service is away from a random call on, and comes back while the query waits."""
    disturbed(cell, NetworkFault("away", a_call(cell), AWAY))


def away(cell: Cell) -> None:
    """The service is away from a random call on, and the query ends with an error; then it is there again."""
    with replaced(adapter, "PATIENCE", PATIENCE):
        disturbed(cell, NetworkFault("away", a_call(cell), 1e9))


def adapter_twice(cell: Cell) -> None:
    """Every range is read twice, and every part of a batch is delivered twice."""
    with ExitStack() as patches:
        for owner in {type(sink) for _, sink in cell.feature.pairs(cell.folder) if isinstance(sink, SinkAdapter)}:
            patches.enter_context(replaced(owner, "deliver", _twice_delivered(owner.deliver)))
        for owner in _adapters(cell):
            patches.enter_context(replaced(owner, "read", _twice_read(owner.read)))
        cell.live()


def _adapters(cell: Cell) -> set[Any]:
    outputs = [Output(stream.node, "out") for stream, _ in cell.feature.pairs(cell.folder)]
    return {type(s.origin.adapter) for s in sources_of(*outputs) if isinstance(s.origin, AdapterRead)}


def _twice_delivered(deliver: Callable[..., None]) -> Callable[..., None]:
    @wraps(deliver)
    def twice(self: Any, delivery: DeliveryId, rows: pa.Table) -> None:
        deliver(self, delivery, rows)
        deliver(self, delivery, rows)

    return twice


def _twice_read(read: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(read)
    def twice(self: Any, partition: str, start: int, end: int, columns: Sequence[str]) -> Generator[Any, None, Any]:
        for _ in read(self, partition, start, end, columns):
            pass
        return (yield from read(self, partition, start, end, columns))

    return twice


NEEDS = ("services",)
NETWORK = [
    Disruption("network: a call fails", "network", calls("fails"), needs=NEEDS),
    Disruption("network: three calls fail", "network", calls("fails", 3), needs=NEEDS),
    Disruption("network: an answer is lost", "network", calls("answer lost"), needs=NEEDS),
    Disruption("network: three answers are lost", "network", calls("answer lost", 3), needs=NEEDS),
    Disruption("network: slow", "network", all_slow, needs=NEEDS),
    Disruption("network: away, and back", "network", away_and_back, needs=NEEDS),
    Disruption("network: away for good", "network", away, needs=NEEDS),
    Disruption("calls of adapters made twice", "network", adapter_twice, needs=("adapter",)),
]
