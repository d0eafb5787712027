"""Queries as bytes, for workers.

Users' functions are pickled by value (`cloudpickle`). Pickling recurses, and a plan may be thousands of operators deep;
so operators are pickled one by one, inputs first, and refer to each other by number.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from pyspark.cloudpickle import CloudPickler

from headrace.host.driving.plan import Job
from headrace.plan.nodes import Node, walk

__all__ = ["pack_job", "unpack_job"]


class _Packer(CloudPickler):
    """Pickles one object; nodes that were pickled before are numbers."""

    def __init__(self, file: io.BytesIO, numbers: dict[int, int]) -> None:
        super().__init__(file)  # type: ignore[no-untyped-call]
        self._numbers = numbers

    def persistent_id(self, obj: Any) -> int | None:
        return self._numbers.get(id(obj)) if isinstance(obj, Node) else None


class _Unpacker(pickle.Unpickler):
    def __init__(self, data: bytes, nodes: list[Node]) -> None:
        super().__init__(io.BytesIO(data))
        self._nodes = nodes

    def persistent_load(self, number: int) -> Node:
        return self._nodes[number]


def _packed(value: Any, numbers: dict[int, int]) -> bytes:
    file = io.BytesIO()
    _Packer(file, numbers).dump(value)  # type: ignore[no-untyped-call]
    return file.getvalue()


def pack_job(job: Job) -> bytes:
    """The query as bytes."""
    nodes = list(walk(*job.line.outputs))
    numbers: dict[int, int] = {}
    parts = []
    for number, node in enumerate(nodes):
        parts.append(_packed(node, numbers))
        numbers[id(node)] = number
    return pickle.dumps((parts, _packed(job, numbers)))


def unpack_job(data: bytes) -> Job:
    """The query that the driver has packed."""
    parts, last = pickle.loads(data)  # noqa: S301 - written by `pack_job`
    nodes: list[Node] = []
    for part in parts:
        nodes.append(_Unpacker(part, nodes).load())
    job = _Unpacker(last, nodes).load()
    assert isinstance(job, Job)
    return job
