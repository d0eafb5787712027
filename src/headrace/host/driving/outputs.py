"""The plan of all outputs of a query, with those of its diverted rows, over files that the loop can read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.host.driving.changed import DIVERTED
from headrace.host.driving.checkpoint import Checkpoint
from headrace.host.received import hosts_of, spooled
from headrace.io.object_batches import batches_at
from headrace.io.origins import Events, HostRead
from headrace.io.sinks import FileSink, Sink
from headrace.optimizer import RULES, SHARED_RULES, Rule, optimize
from headrace.optimizer.rewrite import rewrite_sources
from headrace.plan.nodes import Node, Output, Source, diverted_streams

if TYPE_CHECKING:
    from headrace.host.driving.start import Host

__all__ = ["planned_outputs", "settle_sides", "spool_of"]


def planned_outputs(
    host: Host, place: Checkpoint, outputs: list[Output], sinks: list[Sink], *, apart: bool, rules: Sequence[Rule] = ()
) -> tuple[Output, ...]:
    """The plan of a query, whose outputs and sinks get those of diverted rows, too.

    Without rules: those of queries that share work with others, if each output is planned apart.
    """
    if apart:
        return _apart(host, place, outputs, sinks, rules or SHARED_RULES)
    return _together(host, place, outputs, sinks, rules or RULES)


def _together(
    host: Host, place: Checkpoint, outputs: list[Output], sinks: list[Sink], rules: Sequence[Rule]
) -> tuple[Output, ...]:
    """The plan of all outputs as one query, which gets the outputs and sinks of diverted rows, too."""
    _add_side_outputs(outputs, sinks, place)
    return _on_disk(spooled(outputs, spool_of(place, hosts_of(outputs))), place, host, rules)


def _apart(
    host: Host, place: Checkpoint, outputs: list[Output], sinks: list[Sink], rules: Sequence[Rule]
) -> tuple[Output, ...]:
    """The plans of outputs, each made apart with its diverted rows; what is equal in several of them is there once."""
    main: list[Output] = []
    sides: dict[str, Output] = {}
    for output in outputs:
        own = [Output(side, "diverted") for side in diverted_streams(output, whole=False)]
        planned, *diverted = _on_disk(spooled([output, *own], spool_of(place, hosts_of([output]))), place, host, rules)
        main.append(planned)
        sides |= {side.input.fingerprint: side for side in diverted}
    for fingerprint, side in sides.items():
        sinks.append(_diverted_sink(place, fingerprint, side))
    outputs += [replace(side, name=f"diverted {fingerprint}") for fingerprint, side in sides.items()]
    return (*main, *outputs[len(main) :])


def _diverted_sink(place: Checkpoint, name: str, side: Output) -> FileSink:
    return FileSink("final", (), f"{place.place}/{DIVERTED}/{name}", "jsonl").showing(dates=side.dates)


def _add_side_outputs(outputs: list[Output], sinks: list[Sink], place: Checkpoint) -> None:
    """Keep diverted rows that the query does not read in the checkpoint."""
    taken = [output.input for output in outputs]
    sides = [side for side in diverted_streams(*outputs, whole=False) if side not in taken]
    for i, side in enumerate(sides):
        outputs.append(Output(side, f"diverted {i}"))
        sinks.append(_diverted_sink(place, str(i), outputs[-1]))


def _on_disk(
    outputs: Sequence[Output], place: Checkpoint, host: Host, rules: Sequence[Rule] = RULES
) -> tuple[Output, ...]:
    """The plan over files: rows in memory are written to files, and rows that the loop cannot read are too."""

    def stored(source: Source) -> Node:
        if isinstance(source.origin, Events):
            return replace(source, origin=place.spill(source.origin))
        return host.stored(source, place)

    on_disk = optimize(rewrite_sources(tuple(outputs), stored), rules)
    return rewrite_sources(on_disk, lambda source: host.fed(source, place))


def settle_sides(
    place: Checkpoint, stored: Mapping[str, Any] | None, plan: Sequence[Output], sinks: list[Sink], first: int
) -> None:
    """Diverted rows stay in the directory where their stream began, whichever other streams there are."""
    before = () if stored is None else stored.get("outputs", ())
    begun = [about for about in before if about["place"].split("/")[-2:-1] == [DIVERTED]]

    def is_taken(name: str) -> bool:
        """Whether a directory has rows of a stream that an earlier query of the checkpoint had."""
        batches = batches_at(f"{place.place}/{DIVERTED}/{name}")
        return bool(before) and bool(batches.committed() or batches.removed().batches)

    names = {about["stream"]: about["place"].rpartition("/")[2] for about in begun}
    for number in range(first, len(sinks)):
        sink, stream = sinks[number], plan[number].input.fingerprint
        assert isinstance(sink, FileSink)
        if stream not in names:
            wanted = chain([sink.path.rpartition("/")[2]], map(str, count()))
            names[stream] = next(name for name in wanted if name not in names.values() and not is_taken(name))
        sinks[number] = replace(sink, path=f"{place.place}/{DIVERTED}/{names[stream]}").showing(dates=sink.dates)


def spool_of(place: Checkpoint, hosts: Sequence[HostRead]) -> Path:
    """The folder for lines of hosts without a spool of their own."""
    if all(host.spool for host in hosts):
        return Path()
    return place.folder("spool", "lines of hosts without a spool= of their own")
