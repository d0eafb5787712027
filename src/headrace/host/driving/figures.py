"""The figures of a running query, for its metrics, its alarms and its spans."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from headrace.host.driving.past import PastBatch
from headrace.host.driving.ranges import RangePositions
from headrace.io.lateness import NONE_LATE
from headrace.metrics.queries import OperatorFigures, QueryFigures, Reached
from headrace.plan.nodes import Output, Source, sources_of
from headrace.time import NEG_INFINITY, format_ticks

if TYPE_CHECKING:
    from headrace.host.driving.query import Query

__all__ = ["QueryPart", "attributes_of", "figures_of", "lateness_of"]

#: The fates of rows that the span of a batch has.
_FATES = ("accepted", "late", "malformed", "diverted", "dropped")


@dataclass(frozen=True)
class QueryPart:
    """One of several queries that run together: its name, its operators by fingerprint, and its outputs with the names
    to show for them.
    """

    name: str
    state: str
    operators: Collection[str]
    outputs: Mapping[str, str]
    total: PastBatch | None


def figures_of(query: Query, part: QueryPart | None = None) -> QueryFigures:
    """The figures of a query, or of one of those that run together; another thread than the loop may ask."""
    part = part or _whole(query)
    last, line = query.driver.last, query.line
    record: Mapping[str, Any] = last.record if last is not None else {}
    sources = [source for source in line.sources if source.fingerprint in part.operators]
    origins = {str(source.origin) for source in sources}
    foreign = {str(source.origin) for source in line.sources} - origins
    counts = record.get("counts") or dict(query.counts)
    total = part.total
    outputs = total.flows.outputs if total is not None else {}
    return QueryFigures(
        query=part.name,
        state=part.state,
        batch=None if last is None else last.batch,
        committed=record.get("time"),
        counts={name: fates for name, fates in counts.items() if name not in foreign},
        lateness={name: late for name, late in lateness_of(sources, record).items() if name in counts},
        sources=_source_times(sources, record),
        outputs=_output_times(query, part, record),
        operators=_operators(query, part, record),
        batches=0 if total is None else total.batches,
        phases={} if total is None else dict(total.phases),
        changes={part.outputs[name]: sizes for name, sizes in outputs.items() if name in part.outputs},
        batch_seconds=list(query.batch_seconds),
        waiting=_waiting(query, sources),
        starts=query.driver.log.epoch,
        alarms=query.watch.by_rule,
    )


def attributes_of(batch: PastBatch, cti: int | str) -> dict[str, str | int]:
    """What the span of a batch says of it; `cti` as reports show it."""
    return {
        "headrace.rows.read": batch.fate("rows"),
        **{f"headrace.rows.{fate}": batch.fate(fate) for fate in _FATES},
        "headrace.changes": batch.changes,
        "headrace.corrections": batch.removals,
        "headrace.cti": cti if isinstance(cti, str) else format_ticks(cti),
    }


def lateness_of(sources: Sequence[Source], record: Mapping[str, Any]) -> dict[str, list[int]]:
    """How late rows were, of the sources whose times are dates."""
    found, dated = record.get("lateness", {}), [str(source.origin) for source in sources if source.dates]
    return {name: found.get(name, [*NONE_LATE]) for name in dated}


def _whole(query: Query) -> QueryPart:
    nodes = [node.fingerprint for node in query.line.nodes]
    names = {output.name: output.name for output in query.line.outputs}
    return QueryPart(query.name, query.state, frozenset(nodes), names, query.past.total)


def _source_times(sources: Sequence[Source], record: Mapping[str, Any]) -> list[Reached]:
    """By origin; of several sources with the same origin, the one that is farthest behind."""
    found: dict[str, Reached] = {}
    for source in sources:
        cti, high = record.get("sources", {}).get(source.fingerprint, (NEG_INFINITY, NEG_INFINITY))
        name = str(source.origin)
        if name not in found or cti < found[name].cti:
            found[name] = Reached(name, cti, high, source.dates)
    return list(found.values())


def _output_times(query: Query, part: QueryPart, record: Mapping[str, Any]) -> list[Reached]:
    """The outputs, with the highest time of all that they read."""
    entries = record.get("outputs", ())
    known = zip(query.line.outputs, entries, strict=True) if entries else ()
    reached = record.get("sources", {})
    return [
        Reached(part.outputs[output.name], about["cti"], _highest(output, reached), output.dates)
        for output, about in known if output.name in part.outputs
    ]  # fmt: skip


def _highest(output: Output, reached: Mapping[str, Sequence[int]]) -> int:
    known = [reached[source.fingerprint] for source in sources_of(output) if source.fingerprint in reached]
    return max((high for _, high in known), default=NEG_INFINITY)


def _operators(query: Query, part: QueryPart, record: Mapping[str, Any]) -> list[OperatorFigures]:
    sizes, reached = record.get("operators", {}), record.get("sources", {})
    found = []
    for node in query.line.nodes:
        if node.fingerprint in sizes and node.fingerprint in part.operators:
            size = sizes[node.fingerprint]
            sources = [source for source in sources_of(node) if source.fingerprint in reached]
            holder = min(sources, key=lambda source: int(reached[source.fingerprint][0]), default=None)
            held_by = None if holder is None else str(holder.origin)
            found.append(OperatorFigures(node.describe(), size["rows"], size["bytes"], held_by))
    return found


def _waiting(query: Query, sources: Sequence[Source]) -> dict[str, tuple[Literal["files", "offsets"], int]]:
    found: dict[str, tuple[Literal["files", "offsets"], int]] = {}
    for source in sources:
        positions = query.driver.positions.get(source.fingerprint)
        if positions is not None:
            before = found.get(str(source.origin), ("", 0))[1]
            unit: Literal["files", "offsets"] = "offsets" if isinstance(positions, RangePositions) else "files"
            found[str(source.origin)] = unit, before + positions.waiting
    return found
