"""Queries as bytes, for workers.

Users' functions are pickled by value (`cloudpickle`). Pickling recurses, and a plan may be thousands of operators deep;
so operators are pickled one by one, inputs first, and refer to each other by number.

Functions and classes of modules are pickled by name; the modules' names are recorded, so that they can be shipped.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from pyspark.cloudpickle import CloudPickler

from headrace.host.driving.plan import Job
from headrace.io.origins import AdapterRead, Files
from headrace.plan.nodes import Node, Source, walk

__all__ = ["PackedJob", "named_modules", "pack_job", "packed_part", "unpack_job"]


@dataclass(frozen=True)
class PackedJob:
    """A query as bytes, and the names of the modules that unpacking it imports."""

    data: bytes
    modules: frozenset[str]


class _Packer(CloudPickler):
    """Pickles one object; nodes that were pickled before are numbers."""

    def __init__(self, file: io.BytesIO, numbers: Mapping[int, int], modules: set[str]) -> None:
        super().__init__(file)  # type: ignore[no-untyped-call]
        self._numbers, self._modules = numbers, modules

    def persistent_id(self, obj: Any) -> int | None:
        return self._numbers.get(id(obj)) if isinstance(obj, Node) else None

    def reducer_override(self, obj: Any) -> Any:
        reduced = super().reducer_override(obj)  # type: ignore[no-untyped-call]
        if isinstance(obj, ModuleType):
            self._modules.add(obj.__name__)
        elif reduced is NotImplemented and isinstance(obj, type | FunctionType):
            self._modules.add(obj.__module__)
        return reduced


class _Unpacker(pickle.Unpickler):
    def __init__(self, data: bytes, nodes: list[Node]) -> None:
        super().__init__(io.BytesIO(data))
        self._nodes = nodes

    def persistent_load(self, number: int) -> Node:
        return self._nodes[number]


def packed_part(value: Any, numbers: Mapping[int, int], modules: set[str]) -> bytes:
    """One object as bytes, with numbers instead of nodes, by their ids; the modules that it names are added."""
    file = io.BytesIO()
    _Packer(file, numbers, modules).dump(value)  # type: ignore[no-untyped-call]
    return file.getvalue()


def pack_job(job: Job) -> PackedJob:
    """The query as bytes."""
    nodes = list(walk(*job.line.outputs))
    numbers: dict[int, int] = {}
    modules: set[str] = set()
    parts = []
    for number, node in enumerate(nodes):
        parts.append(packed_part(node, numbers, modules))
        numbers[id(node)] = number
    return PackedJob(pickle.dumps((parts, packed_part(job, numbers, modules))), frozenset(modules))


def named_modules(output: Node) -> frozenset[str]:
    """The names of the modules that a plan's operators, and its sources of files and adapters, name."""
    numbers: dict[int, int] = {}
    modules: set[str] = set()
    for number, node in enumerate(list(walk(output))):
        if not isinstance(node, Source) or isinstance(node.origin, Files | AdapterRead):  # not the rows of others
            packed_part(node, numbers, modules)
        numbers[id(node)] = number
    return frozenset(modules)


def unpack_job(data: bytes) -> Job:
    """The query that the driver has packed."""
    parts, last = pickle.loads(data)  # noqa: S301 - written by `pack_job`
    nodes: list[Node] = []
    for part in parts:
        nodes.append(_Unpacker(part, nodes).load())
    job = _Unpacker(last, nodes).load()
    assert isinstance(job, Job)
    return job
