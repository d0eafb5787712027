"""Runs batches of a checkpoint again, from the state before them, as they ran: for traces.

A batch that is run again is what a restart after a crash runs: the commit before it has the state, its plan has what it
read, and judging the same rows after the same promises gives the same late rows. So its number, its input and its
answers are those of the batch that ran. Nothing of the checkpoint is changed, and its query may run meanwhile: the
commits are pinned, and what the batches write is in a temporary directory.

A batch can be run again as long as its commit and the one before it are kept, and its sources still have its rows, or
they were recorded (`start(..., record="1 h")`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.display.words import counted
from headrace.errors import CheckpointError, SourceError, TraceError
from headrace.host.driving.checkpoint import Checkpoint, difference
from headrace.host.driving.outputs import planned_outputs
from headrace.host.driving.plan import Plan
from headrace.host.driving.publish import mark_published
from headrace.host.driving.recording import recorded_inputs
from headrace.host.driving.spooled import frame_files, spooled_source
from headrace.host.driving.tapped import TappedBatch, TappedRun
from headrace.host.driving.upgrade import TOGETHER
from headrace.host.local.live import LocalHost
from headrace.host.saved.folder import SavedCheckpoint
from headrace.io.origins import AdapterRead, FrameRead, SparkRead
from headrace.io.sinks import Nowhere, Sink
from headrace.io.temporary import TemporaryFolder
from headrace.optimizer import RULES
from headrace.pieces import Data
from headrace.plan.nodes import Diverted, Final, Node, Output, Source, sources_of
from headrace.stages.cut import Line, cut
from headrace.stages.egress import prepared
from headrace.stages.measures import Tap
from headrace.store.cleanup import pinned
from headrace.store.log import COMMITS, FLOORS, Commit
from headrace.store.storage import LocalStorage, Storage

__all__ = ["BatchRange", "Replay", "kept_batches", "output_names"]

#: A stream, and its sink where that matters: an upsert by a key is part of the query.
Pair = tuple[Node, Sink | None]
_OUTPUT = re.compile(r"\d+ Output (?!diverted )(.*)", re.DOTALL)
#: The most ways of writing its outputs that are tried to find the query of a checkpoint.
_MOST_FORMS = 81


@dataclass(frozen=True)
class BatchRange:
    """The numbers of batches, from the first to the last."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}..{self.last}"

    @property
    def numbers(self) -> range:
        """All of them."""
        return range(self.first, self.last + 1)


def kept_batches(folder: SavedCheckpoint) -> BatchRange | None:
    """The batches whose commits, and the states before them, are kept; None if there are none."""
    floor = folder.log.floor()
    batches = [batch for batch in folder.log.batches() if batch >= floor]
    whole = batches[:1] == [0]
    first = batches[0 if whole else 1 :][:1]  # of the oldest other commit the state before it is gone
    return BatchRange(first[0], batches[-1]) if first else None


def output_names(about: Mapping[str, Any]) -> list[str]:
    """The names of the outputs of a checkpoint's query, from what is known of it; those of diverted rows are none."""
    return [found[1] for line in about["plan"] if (found := _OUTPUT.fullmatch(line)) is not None]


class Replay:
    """The batches of a checkpoint that are to be run again: by default all that are kept."""

    def __init__(
        self, place: str | Path, pairs: Sequence[Pair], batches: BatchRange | None = None, *, apart: bool = False
    ) -> None:
        self._folder = SavedCheckpoint(place, keep=True)
        self.batches = self._checked(batches)
        self.buckets = int(self._commit(self.batches.last).record["buckets"])
        self.line = _line_of(self._folder, pairs, self.buckets, apart=apart)

    def line_of_output(self, number: int) -> Line:
        """The part of the plan that an output depends on, with the rows that its sources have diverted."""
        output = self.line.outputs[number]
        sources = sources_of(output)
        sides = [o for o in self.line.outputs if isinstance(o.input, Diverted) and o.input.source in sources]
        return cut((output, *sides), self.buckets)

    @property
    def rows(self) -> int:
        """The rows that the batches read of services and streams, about."""
        plans = [Plan.from_json(self._commit(number).record["plan"]) for number in self.batches.numbers]
        return sum(part.end - part.start for plan in plans for parts in plan.ranges.values() for part in parts)

    def _checked(self, batches: BatchRange | None) -> BatchRange:
        kept = kept_batches(self._folder)
        if kept is not None and batches is None:
            return kept
        if kept is None or batches is None or not kept.first <= batches.first <= batches.last <= kept.last:
            raise TraceError(
                "these batches cannot be run again: what they need is not kept",
                given="all batches" if batches is None else f"batches {batches}",
                allowed=f"batches {kept}" if kept is not None else "none: no batch is kept with the state before it",
                instead=f"batches {kept}; a query keeps more with start(..., record='1 h')" if kept is not None else "",
            )
        return batches

    def _commit(self, batch: int) -> Commit:
        return self._folder.log.read(batch)

    @contextmanager
    def run(self, tap: Tap) -> Iterator[Iterator[TappedBatch]]:
        """Run the batches, one by one; the tap sees every step."""
        with ExitStack() as stack:
            first, last = self.batches.first, self.batches.last
            commits = {
                number: self._pinned(stack, number) for number in range(max(0, first - 1), last + 1)
            }  # they stay while this runs
            own = LocalStorage(stack.enter_context(TemporaryFolder()), durable=False)
            files = _begin_after(own, commits[first - 1]) if first else ()
            run = TappedRun(self.line, self.buckets, _Overlay(own, self._folder.storage, files), tap)
            stack.callback(run.close)
            yield (self._again(run, commits[number]) for number in self.batches.numbers)

    def _pinned(self, stack: ExitStack, batch: int) -> Commit:
        commit = stack.enter_context(pinned(self._folder.log, batch))
        if commit is None:  # removed since
            self._checked(self.batches)
            raise TraceError("a batch was removed meanwhile", given=f"batch {batch}", instead="the same again")
        return commit

    def _again(self, run: TappedRun, commit: Commit) -> TappedBatch:
        plan = Plan.from_json(commit.record["plan"])
        inputs = recorded_inputs(self.line, self._folder.storage, commit)
        left = replace(
            plan,
            files={source: files for source, files in plan.files.items() if source not in inputs},
            ranges={source: parts for source, parts in plan.ranges.items() if source not in inputs},
        )
        self._check_inputs(commit.batch, left)
        run.driver.max_trips = commit.record.get("trips")
        try:
            return run.run(left, inputs)
        except SourceError as error:
            raise TraceError(
                f"batch {commit.batch} cannot be run again: {error.message}",
                given=f"batch {commit.batch}",
                instead=_RECORD,
            ) from error

    def _check_inputs(self, batch: int, plan: Plan) -> None:
        """Raise if files or rows of a batch are no longer there."""
        sources = {source.fingerprint: source for source in self.line.sources}
        for files in plan.files.values():
            for file in files:
                state = file.state()
                if state != "same":
                    now = "is gone" if state == "missing" else "was changed since it was read"
                    raise _gone(batch, f"{file.path} {now}", "the file as it was, with its time of modification")
        for source, parts in plan.ranges.items():
            origin = sources[source].origin
            assert isinstance(origin, AdapterRead)
            reached = origin.adapter.offsets({part.partition: part.end for part in parts})
            for part in parts:
                kept = reached.get(part.partition)
                if kept is None or part.start < kept.first or part.end > kept.end:
                    has = "nothing of it" if kept is None else f"{kept.first:,} to {kept.end:,}"
                    wanted = f"{origin}, {part.partition}: offsets {part.start:,} to {part.end:,}"
                    raise _gone(batch, wanted, f"offsets that are still there: {has}")


_RECORD = "batches whose input is there"


def _gone(batch: int, given: str, allowed: str) -> TraceError:
    return TraceError(f"the input of batch {batch} is no longer there", given=given, allowed=allowed, instead=_RECORD)


def _begin_after(storage: Storage, commit: Commit) -> Collection[str]:
    """Let a store begin with a commit of another; return the files that it names."""
    storage.create(f"{FLOORS}/{commit.batch:012d}", b"")
    mark_published(storage, commit.batch)
    storage.create(f"{COMMITS}/{commit.batch:012d}", commit.packed())
    return commit.files.keys()


def _line_of(folder: SavedCheckpoint, pairs: Sequence[Pair], buckets: int, *, apart: bool) -> Line:
    """The plan of a checkpoint's query, from its streams; `CheckpointError` if they are another query."""
    about = folder.about()
    names = output_names(about)
    if len(names) != len(pairs):
        raise CheckpointError(
            f"the query of this checkpoint has {counted(len(names), 'output')}",
            given=counted(len(pairs), "stream"),
            allowed=", ".join(names),
            instead="all its streams, in the order of the start",
        )
    lines, left_out = [], about.get("left_out", ())
    rules = [rule for rule in RULES if rule.__name__ not in left_out] if left_out else ()
    for nodes in _all_forms(pairs):
        outputs = [Output(node, name) for node, name in zip(nodes, names, strict=True)]
        sinks: list[Sink] = [Nowhere() for _ in outputs]
        alone = apart or TOGETHER in left_out
        plan = planned_outputs(_PlansAgain(), Checkpoint(folder.place), outputs, sinks, apart=alone, rules=rules)
        lines.append(cut(plan, buckets))
        if lines[-1].fingerprint == about["fingerprint"]:
            return lines[-1]
    own = [f"{lines[0].levels[node.fingerprint]} {node.describe()}" for node in lines[0].nodes]
    raise CheckpointError(
        f"the checkpoint belongs to another query:\n{difference(about['plan'], own)}",
        given=folder.place,
        instead="the query as it was when these batches ran",
    )


def _all_forms(pairs: Sequence[Pair]) -> Iterator[Sequence[Node]]:
    """The plans of all outputs, those first in which all are alike, or all that are printed."""
    each = [_forms(node, sink) for node, sink in pairs]
    last = [len(forms) - 1 for forms in each]
    printed = [end if sink is None else 0 for end, (_, sink) in zip(last, pairs, strict=True)]
    alike = (
        [forms[min(kind, end)] for forms, end in zip(each, ends, strict=True)]
        for kind, ends in product(range(3), (last, printed))
    )
    return islice(chain(alike, product(*each)), _MOST_FORMS)


def _forms(node: Node, sink: Sink | None) -> list[Node]:
    """The plans of an output: of early answers and of final ones; printed answers may be final twice."""
    if sink is not None:
        return [prepared(node, sink), prepared(Final(node), sink)]
    return [node, Final(node), Final(Final(node))]


class _PlansAgain(LocalHost):
    """Makes the plan of a query of any host again; rows that only Spark can read are recorded, or in the checkpoint."""

    def __init__(self) -> None:
        self._spools: dict[str, Path] = {}

    def stored(self, source: Source, place: Checkpoint) -> Source:
        origin = source.origin
        if not isinstance(origin, FrameRead) or origin.streaming:
            return source
        return replace(source, origin=frame_files(origin, place.place))

    def fed(self, source: Source, place: Checkpoint) -> Source:
        if not isinstance(source.origin, SparkRead):
            return source
        spool = place.folder("spool", "sources that only Spark can read") / f"spark-{len(self._spools)}"
        return spooled_source(source, self._spools.setdefault(source.fingerprint, spool))


class _Overlay(Storage):
    """A store of its own that reads some files of another one, too."""

    def __init__(self, own: Storage, below: Storage, files: Collection[str]) -> None:
        self._own, self._below, self._files = own, below, files

    @property
    def place(self) -> str:
        return self._own.place

    def create(self, key: str, data: Data, *, lasting: bool = True) -> bool:
        return self._own.create(key, data, lasting=lasting)

    def _of(self, key: str) -> Storage:
        return self._below if key in self._files else self._own

    def read(self, key: str) -> pa.Buffer:
        return self._of(key).read(key)

    def mapped(self, key: str) -> pa.Buffer | None:
        return self._of(key).mapped(key)

    def length(self, key: str) -> int:
        return self._of(key).length(key)

    def keys(self, folder: str, after: str = "") -> list[str]:
        return self._own.keys(folder, after)

    def sizes(self, folder: str = "") -> dict[str, int]:
        return self._own.sizes(folder)

    def remove(self, key: str) -> None:
        self._own.remove(key)
