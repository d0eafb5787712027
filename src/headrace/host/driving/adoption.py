"""Adoption: a new checkpoint that continues what other checkpoints have computed.

Queries that share work run as one, with one checkpoint. When a query joins or leaves, the queries that run together
change, and so does their plan; but operators are identified by their fingerprints, and one that is in the old plan and
in the new one goes on with its state: nothing is computed again. A new checkpoint is made for the new plan. Its first
commit is put together from the last commits of the old checkpoints, its *origins*: the positions of the sources, the
state of the operators that the new plan has, and how far its outputs were promised. Files of state are linked, not
copied, where they are in directories.

**When this is right.** The state of an operator after a batch is a function of the input up to there (the law, rule
1.5: batches never show). So the states of two queries fit together if both have read their common sources up to the
same offsets, from the same beginning, and have heard the same promises: `check_aligned` raises if not. An operator of
the new plan that has state, and that no origin has, is an error, too. What an origin has committed and may not have
delivered, because its process died, is delivered first: the new checkpoint delivers nothing of it.

**All or nothing.** Before its commit a new checkpoint is a directory that nobody uses. The caller records that it takes
the place of its origins (`Adoption.adopted`) after the commit and before the first new batch; then the origins are
removed. A crash before the record leaves the origins as they are.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.errors import CheckpointError
from headrace.host.driving.changed import DIVERTED
from headrace.host.driving.checkpoint import Checkpoint, read_about
from headrace.host.driving.delivery import deliver, deliveries_of
from headrace.host.driving.plan import Job, Plan
from headrace.host.driving.publish import is_published, mark_published
from headrace.io.adapter import SinkAdapter
from headrace.io.removed import REMOVED
from headrace.io.sinks import FileSink, Sink
from headrace.operators.registry import kernel_of
from headrace.plan.nodes import DIVERTED as DIVERTED_ROWS
from headrace.plan.nodes import Node
from headrace.stages.cut import Line
from headrace.stages.declared import declared
from headrace.stages.egress import publish_parts
from headrace.stages.pickled import PICKLED, carries_states, owner_mark
from headrace.stages.stage import segment_names
from headrace.store.blocks import Ledger
from headrace.store.log import COMMITS, EPOCHS, FLOORS, Commit, Log, process_mark
from headrace.store.storage import LocalStorage
from headrace.time import NEG_INFINITY

__all__ = ["Adoption", "adopt", "carried", "check_aligned"]


@dataclass(frozen=True)
class Adoption:
    """What a new checkpoint continues: the checkpoints, and where each of its outputs is in one of them.

    An output is (origin, number of the output there); None for one that has not begun. `adopted` is called when the new
    checkpoint is whole, before its query runs.
    """

    origins: Sequence[Path]
    outputs: Sequence[tuple[int, int] | None]
    adopted: Callable[[], None] = lambda: None

    @property
    def buckets(self) -> int | None:
        """The number of buckets among which the origins have divided their state; None if none has begun."""
        commits = (Log(LocalStorage(path / "store")).last() for path in self.origins)
        return next((int(commit.record["buckets"]) for commit in commits if commit is not None), None)


@dataclass(frozen=True, eq=False)
class _OldCheckpoint:
    path: Path
    storage: LocalStorage
    commit: Commit
    #: The outputs of diverted rows, by the names of their directories.
    diverted: Mapping[str, int]


def adopt(adoption: Adoption, place: Checkpoint, line: Line, buckets: int, sinks: Sequence[Sink]) -> None:
    """Write the first commit of a new checkpoint, unless it has one, or its origins have none."""
    if Log(place.storage).last() is not None:
        return
    origins = [_opened(path) for path in adoption.origins]
    begun = [origin for origin in origins if origin is not None]
    if not begun:
        return
    check_aligned([origin.commit for origin in begun])
    for origin in begun:
        _link_data(origin, place)
    outputs = [None if found is None else (origins[found[0]], found[1]) for found in adoption.outputs]
    _deliver(outputs, line, sinks)
    batch = max(origin.commit.batch for origin in begun) + 1
    epoch = max(origin.commit.epoch for origin in begun)
    record = _record(begun, outputs, place, line, buckets)
    ledger = Ledger()
    for origin in reversed(begun):  # of blocks with the same name those of the first origin count
        part = Ledger.of(origin.commit)
        ledger.files |= part.files
        ledger.blocks |= part.blocks
        ledger.inline |= part.inline
    operators = [state for states in record["state"].values() for state in states.values()]
    ledger.keep(segment_names([*operators, *record["positions"].values()]))
    storage = place.storage
    storage.create(f"{FLOORS}/{batch:012d}", b"")
    storage.create(f"{EPOCHS}/{epoch:08d}-ended", process_mark(ended=True))
    mark_published(storage, batch)
    storage.create(
        f"{COMMITS}/{batch:012d}", Commit(batch, epoch, record, ledger.files, ledger.blocks, ledger.inline).packed()
    )


def _opened(path: Path) -> _OldCheckpoint | None:
    """An origin; None if it has not begun."""
    storage = LocalStorage(path / "store")
    commit = Log(storage).last()
    if commit is None:
        return None
    record = commit.record
    if record["feedback"]:
        raise CheckpointError("changes go round a loop of the query", given=str(path))
    paths = {number: about["path"] for number, about in enumerate(record["outputs"]) if "path" in about}
    return _OldCheckpoint(path, storage, commit, {Path(found).name: number for number, found in paths.items()})


def _deliver(outputs: Sequence[tuple[_OldCheckpoint | None, int] | None], line: Line, sinks: Sequence[Sink]) -> None:
    """Deliver what outputs may lack of the last batches of their origins; they know what they have."""
    for number, found in enumerate(outputs):
        origin, sink = None if found is None else found[0], sinks[number]
        if found is None or origin is None or is_published(origin.storage, origin.commit.batch):
            continue
        assert isinstance(sink, SinkAdapter)
        there = Line((line.outputs[number],) * (found[1] + 1), {}, ())
        owner = str((read_about(LocalStorage(origin.path)) or {})["owner"])
        job = Job("", there, 1, origin.storage, (), adapters={found[1]: sink}, owner=owner)
        for part in deliveries_of(job, origin.commit):
            deliver(job, origin.commit, part)
        for name, side in origin.diverted.items():
            about = origin.commit.record["outputs"][side]
            place = FileSink("final", (), str(origin.path / DIVERTED / name), "jsonl")
            publish_parts(place, DIVERTED_ROWS, origin.commit.batch, about["parts"], None)


def check_aligned(commits: Sequence[Commit]) -> None:
    """`CheckpointError` unless what the commits have in common is at the same place."""
    first, *others = [commit.record for commit in commits]
    for other in others:
        if first["buckets"] != other["buckets"]:
            raise CheckpointError(
                "states are divided among different numbers of buckets",
                given=f"{first['buckets']} and {other['buckets']} buckets",
            )
        for source in first["sources"].keys() & other["sources"].keys():
            for what, name in _COMPARED:
                one, two = (_about(record, what, source, name) for record in (first, other))
                if one != two:
                    raise CheckpointError(
                        f"the queries have read a source differently: other {what} ({name or 'progress'})",
                        given=f"{one} and {two}",
                    )


#: What two queries must agree on for each source that they have in common.
_COMPARED = (("positions", "next"), ("positions", "began"), ("sources", ""), ("keys", ""), ("channels", ""))


def _about(record: Mapping[str, Any], what: str, source: str, name: str) -> Any:
    found = record.get(what, {}).get(source)
    return found["scalars"].get(name) if name and found is not None else found


def _record(
    origins: Sequence[_OldCheckpoint],
    outputs: Sequence[tuple[_OldCheckpoint | None, int] | None],
    place: Checkpoint,
    line: Line,
    buckets: int,
) -> dict[str, Any]:
    records = [origin.commit.record for origin in origins]
    entries = [_output(found) for found in outputs] + _sides(origins, place, line, len(outputs))
    return carried(records, line, buckets, entries)


def carried(
    records: Sequence[Mapping[str, Any]], line: Line, buckets: int, outputs: Sequence[Mapping[str, Any]],
    empty: Collection[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """The record of a commit that continues what others have computed, by the fingerprints of operators and sources.

    Operators in `empty` have had no input yet.
    """
    if any(record["buckets"] != buckets for record in records):
        raise CheckpointError("states are divided among another number of buckets", given=f"{buckets} buckets")
    sources = [source.fingerprint for source in line.sources]

    def of_origins(what: str) -> dict[str, Any]:
        found = {name: about for record in reversed(records) for name, about in record.get(what, {}).items()}
        return {name: about for name, about in found.items() if name in names or "failed" in about}  # and modules

    def of_sources(what: str) -> dict[str, Any]:
        found = {name: record[what][name] for record in reversed(records) for name in record.get(what, ())}
        return {name: found[name] for name in sources if name in found}

    depth, names = range(1, line.depth + 1), {str(source.origin) for source in line.sources}
    trips = {loop: t for record in records for stage in record["stages"].values() for loop, t in stage["trips"].items()}
    wanted = {end.loop.fingerprint for end in line.loops}
    return {
        "plan": Plan().to_json(),
        "time": time.time(),
        "buckets": buckets,
        "query": line.fingerprint,
        "outputs": list(outputs),
        "examples": of_origins("examples"),
        "counts": of_origins("counts"),
        "lateness": of_origins("lateness"),
        "files": of_sources("files"),
        "positions": of_sources("positions"),
        "operators": {f: size for record in records for f, size in record["operators"].items() if f in line.levels},
        "channels": of_sources("channels"),
        "sources": of_sources("sources"),
        "keys": of_sources("keys"),
        "state": _state(records, line, buckets, empty),
        "stages": {
            f"{level}/{bucket}": {
                "token": uuid.uuid4().hex, "trips": {loop: t for loop, t in trips.items() if loop in wanted},
            }
            for level in depth for bucket in range(buckets)
        },
        "feedback": [],
        "circulating": False,
    }  # fmt: skip


def _state(records: Sequence[Mapping[str, Any]], line: Line, buckets: int, unfed: Collection[str]) -> dict[str, Any]:
    """The state of every operator of the new plan; pickled states get their new query as the owner."""
    found: dict[str, Any] = {}
    holding = declared(line)
    for node in line.nodes:
        if node.linear or line.levels[node.fingerprint] == 0:
            continue
        saved = next((r["state"][node.fingerprint] for r in records if node.fingerprint in r["state"]), None)
        if saved is None and node.fingerprint in holding and node.fingerprint not in unfed:
            raise CheckpointError(f"no checkpoint has the state of {node.describe()}", given=node.fingerprint)
        empty: dict[str, Any] = {str(bucket): _unfed(line, node) for bucket in range(buckets)}
        found[node.fingerprint] = {
            bucket: {**state, "traces": _owned(line, node.fingerprint, state["traces"])}
            for bucket, state in (empty if saved is None else saved).items()
        }
    return found


def _unfed(line: Line, node: Node) -> dict[str, Any]:
    """The state of an operator in a bucket before its first batch."""
    kernel = kernel_of(node)
    carries = node.fingerprint in carries_states(line)
    traces = {
        name: trace.saved() | ({PICKLED: {}} if carries or trace.pickled else {})
        for name, trace in kernel.traces.items()
    }
    return {"scalars": kernel.scalars, "traces": traces}


def _owned(line: Line, operator: str, traces: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    mark = owner_mark(line, operator)
    return {name: {**trace, PICKLED: mark} if PICKLED in trace else dict(trace) for name, trace in traces.items()}


def _output(found: tuple[_OldCheckpoint | None, int] | None) -> dict[str, Any]:
    """The entry of an output that has nothing to deliver."""
    origin = None if found is None else found[0]
    if found is None or origin is None:
        return {"cti": NEG_INFINITY, "high": NEG_INFINITY, "deliveries": [], "moved": False}
    about = origin.commit.record["outputs"][found[1]]
    return {"cti": about["cti"], "high": about["high"], "deliveries": [], "moved": False}


def _sides(origins: Sequence[_OldCheckpoint], place: Checkpoint, line: Line, first: int) -> list[dict[str, Any]]:
    """The entries of the outputs of diverted rows, whose directories move to the new checkpoint."""
    assert place.path is not None
    entries = []
    for output in line.outputs[first:]:
        name = output.input.fingerprint
        to = place.path / DIVERTED / name
        origin = next((origin for origin in origins if name in origin.diverted), None)
        if origin is None:
            entries.append({"cti": NEG_INFINITY, "high": NEG_INFINITY, "path": str(to), "parts": [], "moved": False,
                            "batches": 0, "sum": 0, "new": True})  # fmt: skip
            continue
        about = origin.commit.record["outputs"][origin.diverted[name]]
        _link_folder(origin.path / DIVERTED / name, to, place.owner)
        entries.append({**about, "path": str(to), "parts": [], "moved": False})
    return entries


def _link_folder(origin: Path, to: Path, owner: str) -> None:
    """The batches of a directory in another one, which belongs to the new query."""
    to.mkdir(parents=True, exist_ok=True)
    for entry in origin.iterdir():
        if entry.is_dir() and (not entry.name.startswith("_") or entry.name == REMOVED):
            shutil.copytree(entry, to / entry.name, copy_function=os.link, dirs_exist_ok=True)
    (to / "_owner").write_text(owner)


def _link_data(origin: _OldCheckpoint, place: Checkpoint) -> None:
    """The files of state, under the same names in the new checkpoint."""
    storage = place.storage
    assert isinstance(storage, LocalStorage)
    for name in origin.commit.files:
        storage.link(name, origin.storage.path / name)
