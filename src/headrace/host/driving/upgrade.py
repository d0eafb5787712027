"""Upgrades: a changed query continues with the checkpoint of an earlier one.

An upgrade is a **batch of its own** in the log of the checkpoint: it reads nothing, and its commit has the state of the
new query after everything that the old one has read. The commit also has the new description of the query, which then
replaces `headrace.json`. So the upgrade exists from its commit on, and not before: after a crash before it, the old
query continues; after a crash between the commit and the replacement, the next start of any query replaces the
description first (`Checkpoint.settle`). Another driver that is about to commit the same batch is too early, and this
one begins anew from there; or too late, and it stops, because this one has claimed the next epoch.

`keep` takes over the state of the operators that both queries have. The state of an operator after a batch is a
function of its input up to there (rule 1.5). So it is right for an operator with the same fingerprint, whichever
operators are above it. An operator with state about input from before that the checkpoint lacks is refused.

Outputs are known by their places. One whose stream is unchanged continues. One with a place that the old query did not
write to begins with the upgrade: it gets the changes from then on, also those that correct earlier answers. Another
stream into a place of the old query is refused: a place holds one stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from headrace.errors import CheckpointError, HeadraceError, PlanError, Superseded
from headrace.host.driving.adoption import carried
from headrace.host.driving.changed import UPGRADES, QueryChange
from headrace.host.driving.checkpoint import Checkpoint, replace_about
from headrace.host.driving.publish import check_published, mark_published, nothing_more, open_service
from headrace.io.adapter import SinkAdapter
from headrace.io.object_batches import batches_at
from headrace.io.origins import SparkRead
from headrace.io.sinks import FileSink, Sink
from headrace.plan.nodes import Output, sources_of
from headrace.stages.cut import Line
from headrace.stages.egress import claim
from headrace.stages.stage import segment_names
from headrace.store.blocks import Ledger
from headrace.store.log import Commit, Log
from headrace.time import NEG_INFINITY

__all__ = [
    "TOGETHER",
    "WAYS",
    "PlannedQuery",
    "about_of",
    "begin_outputs",
    "check_alike",
    "check_old",
    "check_upgrade",
    "dates_of",
    "earlier_output",
    "freed_if_refused",
    "keep",
    "matched",
    "new_output",
]

#: In the place of a rule: outputs are planned apart, so that the columns that one reads do not change another.
TOGETHER = "together"
#: The names of the rules that a plan may leave out to have the operators of an old plan, in the order of attempts.
_RULES_ABOVE = (
    (), ("filter_before_windows",), ("filter_before_windows", "push_filters"), ("share_windows",),
    ("filter_before_windows", "push_filters", "share_windows"),
)  # fmt: skip
WAYS: tuple[tuple[str, ...], ...] = (*_RULES_ABOVE, *((TOGETHER, *names) for names in _RULES_ABOVE))


@dataclass(frozen=True, eq=False)
class PlannedQuery:
    """A plan of a query, with the sinks of all its outputs, and the rules that it leaves out."""

    line: Line
    sinks: Sequence[Sink]
    buckets: int
    left_out: tuple[str, ...] = ()
    #: Which upgrades are possible, if it is another query than that of its checkpoint.
    offers: str = ""

    def change(self, place: Checkpoint, stored: dict[str, Any], last: Commit | None) -> QueryChange:
        """How it differs from the query of a checkpoint."""
        return QueryChange(stored, last, self.line, self.sinks, place.place)


def check_upgrade(upgrade: str | None, checkpoint: str | None, outputs: Sequence[Output]) -> None:
    """Refuse an upgrade that does not exist, before anything is created."""
    if upgrade is None:
        return
    if upgrade not in UPGRADES:
        raise PlanError("there is no such upgrade", given=repr(upgrade), allowed=", ".join(map(repr, UPGRADES)))
    if checkpoint is None:
        raise PlanError(
            "an upgrade continues a checkpoint", given=f"upgrade={upgrade!r}", instead="checkpoint='a directory'"
        )
    for source in sources_of(*outputs):
        if isinstance(source.origin, SparkRead):
            raise PlanError(
                "a query with a source that only Spark can read cannot be upgraded", given=str(source.origin),
                allowed="files, generated streams, events in memory, services with an adapter",
                instead="a new checkpoint and new sinks",
            )  # fmt: skip


def matched(
    place: Checkpoint, stored: dict[str, Any], last: Commit | None, plan: Callable[[tuple[str, ...]], PlannedQuery]
) -> PlannedQuery:
    """The plan of a query that has the most of an old one: rules that changed the operators below are left out."""
    first = plan(())
    first.change(place, stored, last).check_described()
    for left_out in dict.fromkeys([tuple(stored.get("left_out", ())), *WAYS]):
        planned = plan(left_out)
        if planned.line.fingerprint == stored["fingerprint"] or not planned.change(place, stored, last).missing:
            return planned
    return first


def keep(place: Checkpoint, planned: PlannedQuery, stored: dict[str, Any]) -> None:
    """Continue with the state of the operators that both queries have, and raise if that is not enough."""
    log = Log(place.storage)
    log.claim()
    committed = False
    while not committed:
        last = log.last()
        check_old(place, stored, last)
        change = planned.change(place, stored, last)
        _check_keep(change)
        about = about_of(place, planned, change)
        if last is not None:
            check_published(place.storage, last)
            _check_directories(change)
            with freed_if_refused(change, log.check_owner):
                begin_outputs(change)
                upgraded = _kept(change, last, planned.buckets, log.epoch, about)
        committed = last is None or _commit(log, upgraded)
    replace_about(place.root, about)


def about_of(place: Checkpoint, planned: PlannedQuery, change: QueryChange) -> dict[str, Any]:
    """The content of headrace.json after an upgrade."""
    about = place.description(planned.line, planned.buckets, planned.sinks, planned.left_out)
    services = sorted({*change.services, *about["services"]})
    return about | {"owner": change.stored["owner"], "dates": dates_of(change), "services": services}


def begin_outputs(change: QueryChange) -> None:
    """Claim the directories of outputs, and create what services lack: what fails here leaves the old query as it is.

    A service is opened under a number of an output that no batch has: it has no rows of it, whatever it has of others.
    """
    owner, outputs = change.stored["owner"], change.last.record["outputs"] if change.last is not None else []
    # The outputs of a copy that has not run yet are new, too.
    claim(change.sinks, owner, [old is not None and not outputs[old].get("new") for old in change.old_outputs])
    for number, (sink, old) in enumerate(zip(change.sinks, change.old_outputs, strict=True)):
        if old is not None or not isinstance(sink, SinkAdapter):
            continue
        if sink.written_place in change.services:
            raise CheckpointError(
                f"the checkpoint has written to {sink.written_place} before: another stream, another encoding, or rows "
                "without those that have changed since",
                given=str(sink),
                instead="another topic or table for this output",
            )
        open_service(sink, owner, -1 - number, change.line.outputs[number], -1)


@contextmanager
def freed_if_refused(change: QueryChange, check: Callable[[], object]) -> Iterator[None]:
    """If an upgrade is refused in here, its new directories, which are claimed and empty, are free for other queries.

    `check` raises if another driver may have taken over the checkpoint: it may be about to write into them.
    """
    try:
        yield
    except Superseded:
        raise
    except HeadraceError:
        with suppress(HeadraceError):  # the refusal is what the user sees
            check()
            for sink, old in zip(change.sinks, change.old_outputs, strict=True):
                if old is None and isinstance(sink, FileSink):
                    batches_at(sink.path).release(change.stored["owner"])
        raise


def _check_directories(change: QueryChange) -> None:
    """Refuse directories with an earlier output of this checkpoint: they lack what has changed since."""
    for sink, old in zip(change.sinks, change.old_outputs, strict=True):
        if old is None and isinstance(sink, FileSink) and earlier_output(sink) is not None:
            raise CheckpointError(
                "upgrade='keep' is not possible: the directory of an output has rows already, without those that have "
                "changed since",
                given=sink.path,
                instead="another directory, which begins with the upgrade; or upgrade='backfill', which corrects what "
                "is there",
            )


def dates_of(change: QueryChange) -> list[bool]:
    """Whether each output has dates: a place keeps the form of times with which it began."""
    before = change.stored.get("dates") or [False] * len(change.stored["outputs"])
    pairs = zip(change.sinks, change.old_outputs, strict=True)
    return [sink.dates if old is None else bool(before[old]) for sink, old in pairs]


def _commit(log: Log, commit: Commit) -> bool:
    """Commit the batch of an upgrade; False if another driver has committed that batch meanwhile."""
    if not log.commit(commit):
        return False
    mark_published(log.storage, commit.batch)
    return True


def _check_keep(change: QueryChange) -> None:
    why = change.why_not_keep()
    if not why:
        return
    if change.missing or not change.changed_outputs:
        raise CheckpointError(
            f"upgrade='keep' is not possible: {why}\n{change.operators()}",
            given=change.place,
            allowed="changes above operators with state: another sink, a new output, a filter, other columns",
            instead="upgrade='backfill', which computes the new query over all input",
        )
    raise CheckpointError(
        f"upgrade='keep' is not possible: {why}",
        given=change.place,
        instead="another directory, topic or table for this output, which begins with the upgrade; or "
        "upgrade='backfill', which corrects what is there",
    )


def _kept(change: QueryChange, last: Commit, buckets: int, epoch: int, about: dict[str, Any]) -> Commit:
    """The next batch, with the state of the operators that both queries have."""
    outputs = [
        new_output(sink) if old is None else nothing_more(last.record["outputs"][old])
        for sink, old in zip(change.sinks, change.old_outputs, strict=True)
    ]
    record = carried([_as_new(change, last)], change.line, buckets, outputs, change.begins_empty)
    ledger = Ledger.of(last)
    operators = [state for states in record["state"].values() for state in states.values()]
    ledger.keep(segment_names([*operators, *record["positions"].values()]))
    record |= {"about": about}
    return Commit(last.batch + 1, epoch, record, ledger.files, ledger.blocks, ledger.inline)


def _as_new(change: QueryChange, last: Commit) -> dict[str, Any]:
    """The record of the old query with the fingerprints of the new one."""
    record = last.record
    check_alike(change, last)
    sources = {own: old[0] for own, old in change.old_sources.items() if old}
    by_source = {
        what: {own: record[what][old] for own, old in sources.items() if old in record.get(what, {})}
        for what in ("positions", "files", "channels", "sources", "keys")
    }
    by_operator = {
        what: {own: record[what][old] for own, old in change.old_of.items() if old in record[what]}
        for what in ("state", "operators")
    }
    return {**record, **by_source, **by_operator}


def check_old(place: Checkpoint, stored: Mapping[str, Any], last: Commit | None) -> None:
    """`Superseded` unless the last batch is still of the query that is to be upgraded: another upgrade was faster."""
    query = stored["fingerprint"] if last is None else last.record.get("query", stored["fingerprint"])
    if query != stored["fingerprint"]:
        raise Superseded(
            f"the query in {place.place!r} was upgraded to another one meanwhile",
            given=f"the last batch is of the query {query}, and the upgrade is one of {stored['fingerprint']}",
            instead="start it again, as an upgrade of the present query",
        )


def check_alike(change: QueryChange, last: Commit) -> None:
    """`CheckpointError` if old sources with the same origin were not read up to the same place."""
    for olds in change.old_sources.values():
        read = [last.record["positions"].get(old, {}).get("scalars") for old in olds]
        places = [found and {k: v for k, v in found.items() if k != "heard"} for found in read]
        if any(place != places[0] for place in places):
            raise CheckpointError(
                "the old query reads an origin several times, and is not at the same place in all of them",
                given=f"{change.stored['origins'][olds[0]]}: {places}",
                instead="start the old query, process_all_available(), stop(), and upgrade then",
            )


def earlier_output(sink: FileSink) -> dict[str, Any] | None:
    """The entry of an output whose directory has batches, which an earlier query of the checkpoint has written."""
    place = batches_at(sink.path)
    numbers, removed = place.committed(), place.removed()
    if not numbers and not removed.batches:
        return None
    counts = {"batches": len(numbers) + removed.batches, "sum": sum(numbers) + removed.sum}
    return {name: value for name, value in new_output(sink).items() if name != "new"} | counts


def new_output(sink: Sink) -> dict[str, Any]:
    """The entry of an output that begins."""
    about: dict[str, Any] = {"cti": NEG_INFINITY, "high": NEG_INFINITY}
    if isinstance(sink, FileSink):
        return about | {"path": sink.path, "parts": [], "moved": False, "batches": 0, "sum": 0, "new": True}
    return about | ({"deliveries": [], "moved": False, "new": True} if isinstance(sink, SinkAdapter) else {})
