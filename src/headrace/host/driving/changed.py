"""What differs between the query of a checkpoint and a changed one, and which upgrades that allows.

A checkpoint describes its query in `headrace.json`: the fingerprints of all operators, the origins of the sources, and
for every output its stream, its place and its form. `QueryChange` compares that with the plan of another query. Two
operators with the same fingerprint compute the same over the same input, so their state is the same, too. The policy of
progress of a source (the delay, what happens to late rows) decides which rows are admitted from now on, and not what
the state of operators means: so operators are compared by their *bases*, fingerprints that leave the policies out.

A source is known by its origin, or by its place. One that reads other columns than before, or reads them in
another way, or filters rows as it reads them, continues where the old one has stopped. A source is *new* if no source
of the old query had its origin: it begins at its start.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from headrace.border import LIFETIME
from headrace.errors import CheckpointError
from headrace.io.adapter import SinkAdapter
from headrace.io.files import local_path
from headrace.io.origins import AdapterRead, Files
from headrace.io.secrets import shown_place
from headrace.io.sinks import FileSink, Sink
from headrace.plan.nodes import Node, Source
from headrace.plan.policies import Arrival, Heartbeat
from headrace.stages.cut import Line
from headrace.stages.declared import declared
from headrace.store.log import Commit

__all__ = [
    "DESCRIBED",
    "DIVERTED",
    "UPGRADES",
    "QueryChange",
    "Upgrade",
    "columns_of",
    "description",
    "services_of",
    "sink_form",
    "sink_place",
]

Upgrade = Literal["keep", "backfill", "side by side"]
UPGRADES = ("keep", "backfill", "side by side")
#: The directory of a checkpoint with the rows that were not used.
DIVERTED = "diverted"
DESCRIBED = ("nodes", "bases", "origins", "outputs")


def description(line: Line, sinks: Sequence[Sink], root: str) -> dict[str, Any]:
    """The part of headrace.json with which another query is compared; `root` is the place of the checkpoint."""
    return {
        "nodes": [node.fingerprint for node in line.nodes],
        "bases": list(_bases(line).values()),
        "origins": {source.fingerprint: str(source.origin) for source in line.sources},
        "places": {source.fingerprint: _place_of(source) for source in line.sources},
        "outputs": [
            {"stream": output.input.fingerprint, "place": sink_place(sink, root), "form": _whole_form(sink)}
            for output, sink in zip(line.outputs, sinks, strict=False)  # without sinks in tests of claims
        ],
    }


def is_described(stored: Mapping[str, Any]) -> bool:
    """Whether headrace.json describes its query as upgrades need it; an earlier Headrace did not."""
    return all(part in stored for part in DESCRIBED)


def columns_of(line: Line) -> list[str]:
    """The sources with all their columns, also those that the query does not use."""
    return [f"{source.origin} ({source.columns})" for source in line.sources]


def _bases(line: Line) -> dict[str, str]:
    """The fingerprints of all operators without the policies of sources, by their fingerprints."""
    found: dict[str, str] = {}
    for node in line.nodes:
        text = node.describe()
        if isinstance(node, Source):
            text = text.replace(f", progress {node.policy}", "")
        parts = [text, node.marks, str(node.schema), *(found[child.fingerprint] for child in node.inputs)]
        found[node.fingerprint] = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return found


def _place_of(source: Source) -> str:
    """What a source reads, however it reads it."""
    origin = source.origin
    if isinstance(origin, AdapterRead):
        return origin.adapter.read_place
    return f"files {shown_place(origin.path)}" if isinstance(origin, Files) and not origin.label else str(origin)


def sink_place(sink: Sink, root: str) -> str:
    """Where a sink writes, below `root` relative to it; empty for a sink of the driver's process."""
    if isinstance(sink, SinkAdapter):
        return str(sink)
    if not isinstance(sink, FileSink):
        return ""
    return _below(_whole_path(sink.path), root)


def _whole_path(path: str) -> str:
    local = local_path(path)
    return path.rstrip("/") if local is None else os.path.abspath(local)  # noqa: PTH100 - links stay as they are


def _below(path: str, root: str) -> str:
    return path.removeprefix(f"{_whole_path(root)}/")


def sink_form(sink: Sink) -> str:
    """The format of an output, which the plan does not contain."""
    names = "" if sink.time_columns == LIFETIME else f", times in {' and '.join(sink.time_columns)}"
    if isinstance(sink, SinkAdapter):
        return f"{sink}{names}"
    return f"{sink.format} files{names}" if isinstance(sink, FileSink) else type(sink).__name__.lower()


def services_of(sinks: Sequence[Sink]) -> list[str]:
    """The places of the services among the sinks."""
    return sorted({sink.written_place for sink in sinks if isinstance(sink, SinkAdapter)})


def _whole_form(sink: Sink) -> str:
    key = f" by {', '.join(sink.key)}" if sink.key else ""
    return f"{sink_form(sink)}, {sink.encoding}{key}"


def _why_once(source: Source) -> str:
    """Why the rows of a source cannot be read and judged again; empty if they can."""
    if isinstance(source.lifetime, Arrival):
        return "rows that are timed by their arrival do not arrive a second time"
    if source.stamped and not isinstance(source.origin, Files):  # files keep their times
        return "rows that are counted in the order of their arrival do not arrive a second time"
    if isinstance(source.policy, Heartbeat):
        return "promises that follow a clock cannot be repeated"
    if source.shedding is not None:
        return "which rows were shed depended on the load"
    if isinstance(source.origin, AdapterRead) and not source.origin.adapter.keeps_rows:
        return "this source does not keep rows that were read"
    return ""


@dataclass(frozen=True, eq=False)
class QueryChange:
    """The query of a checkpoint, as headrace.json and the last commit have it, and the plan of another one."""

    stored: Mapping[str, Any]
    last: Commit | None
    line: Line
    sinks: Sequence[Sink]
    #: The path or URL of the checkpoint.
    place: str

    def check_described(self) -> None:
        """`CheckpointError` if the checkpoint does not describe its query as upgrades need it."""
        if not is_described(self.stored):
            raise CheckpointError(
                "an earlier Headrace wrote this checkpoint, without the fingerprints of its operators",
                given=self.place,
                instead="start the old query with it once, which adds them, stop it, and upgrade then",
            )

    @property
    def is_changed(self) -> bool:
        """Whether it is another query, or has other outputs, or other columns in its sources."""
        same = self.stored["fingerprint"] == self.line.fingerprint and self.stored["sources"] == columns_of(self.line)
        return not same or self._own_outputs != self._stored_outputs

    # --- operators ---------------------------------------------------------------------------------------------------

    @cached_property
    def old_of(self) -> dict[str, str]:
        """For every operator that both queries have, by its fingerprint, the one that it has in the old query."""
        if not is_described(self.stored):
            return {}
        bases = self.stored["bases"]  # one that several operators have says nothing
        known = {base: f for base, f in zip(bases, self.stored["nodes"], strict=True) if bases.count(base) == 1}
        same = set(self.stored["nodes"])
        return {
            f: f if f in same else known[base] for f, base in _bases(self.line).items() if f in same or base in known
        }

    @cached_property
    def old_sources(self) -> dict[str, list[str]]:
        """For every source, by fingerprint, the old sources with its origin; none for a new one.

        Files that are read with other options, such as a `rename`, are still the same files, and topics with other
        columns the same topics: so if no old source has the origin, those of its place have it.
        """
        origins: Mapping[str, str] = self.stored["origins"]
        places: Mapping[str, str] = self.stored.get("places", {})
        return {
            source.fingerprint: [old for old, origin in origins.items() if origin == str(source.origin)]
            or [old for old, place in places.items() if place == _place_of(source)]
            for source in self.line.sources
        }

    @cached_property
    def begins_empty(self) -> frozenset[str]:
        """The operators that read new sources only, by fingerprint: their state begins empty."""
        continued = {fingerprint for fingerprint, old in self.old_sources.items() if old}
        for node in self.line.nodes:
            if any(child.fingerprint in continued for child in node.inputs):
                continued.add(node.fingerprint)
        return frozenset(node.fingerprint for node in self.line.nodes) - continued

    @cached_property
    def missing(self) -> list[Node]:
        """The operators that have state about input from before, which the checkpoint lacks."""
        if self.last is None:
            return []
        holding, saved = declared(self.line), self.last.record["state"]
        return [
            node
            for node in self.line.nodes
            if node.fingerprint in holding and self.old_of.get(node.fingerprint) not in saved
            and not node.linear and self.line.levels[node.fingerprint] and node.fingerprint not in self.begins_empty
        ]  # fmt: skip

    # --- outputs -----------------------------------------------------------------------------------------------------

    @cached_property
    def _own_outputs(self) -> list[dict[str, str]]:
        """The outputs as headrace.json describes them, with the streams of the old query where they are the same."""
        own = description(self.line, self.sinks, self.place)["outputs"]
        return [{**output, "stream": self.old_of.get(output["stream"], output["stream"])} for output in own]

    @cached_property
    def _stored_outputs(self) -> list[dict[str, str]]:
        """The outputs of the old query; an earlier Headrace has not always written places below the checkpoint so."""
        old = self.stored.get("outputs", self._own_outputs)
        return [{**output, "place": _below(output["place"], self.place)} for output in old]

    @cached_property
    def old_outputs(self) -> list[int | None]:
        """For every output the number of the old output at the same place; None for a place that is new.

        A sink of the driver's process continues the output of the same stream.
        """
        own = self._own_outputs
        free = list(range(len(self._stored_outputs)))
        found: list[int | None] = []
        for output in own:
            same = [n for n in free if self._is_same(self._stored_outputs[n], output)]
            found.append(same[0] if same else None)
            free = [n for n in free if n != found[-1]]
        return found

    @staticmethod
    def _is_same(old: Mapping[str, str], new: Mapping[str, str]) -> bool:
        if old["place"] or new["place"]:
            return old["place"] == new["place"]
        return old["stream"] == new["stream"] and old["form"] == new["form"]

    @cached_property
    def changed_outputs(self) -> list[tuple[int, int]]:
        """The outputs, new and old, with the same place and another stream or form."""
        pairs = [(number, old) for number, old in enumerate(self.old_outputs) if old is not None]
        return [(number, old) for number, old in pairs if self._own_outputs[number] != self._stored_outputs[old]]

    @cached_property
    def services(self) -> list[str]:
        """The places of services that the query of the checkpoint has written to, or one before it."""
        return list(self.stored.get("services", ()))

    def is_in_process(self, number: int) -> bool:
        """Whether an output goes to a sink of the driver's process."""
        return not self._own_outputs[number]["place"]

    def is_diverted(self, number: int) -> bool:
        """Whether an output has diverted rows, which the checkpoint keeps."""
        return self._own_outputs[number]["place"].startswith(f"{DIVERTED}/")

    # --- texts -------------------------------------------------------------------------------------------------------

    def operators(self) -> str:
        """Every operator: whether it is kept, new, or gone; and the columns of sources that differ."""
        missing, kept = {node.fingerprint for node in self.missing}, set(self.old_of.values())
        lines = []
        for node in self.line.nodes:
            why = ": the checkpoint lacks its state" if node.fingerprint in missing else ""
            lines.append(f"    {'kept' if node.fingerprint in self.old_of else 'new '}  {node.describe()}{why}")
        old = zip(self.stored["nodes"], self.stored["plan"], strict=True)
        lines += [f"    gone  {text.partition(' ')[2]}" for f, text in old if f not in kept]
        columns, before = columns_of(self.line), self.stored["sources"]
        lines += [f"    new   columns of {text}" for text in columns if text not in before]
        return "\n".join([*lines, *(f"    gone  columns of {text}" for text in before if text not in columns)])

    def why_not_keep(self) -> str:
        """Why the state cannot be kept; empty if it can."""
        if self.missing:
            return f"the checkpoint lacks the state of {self.missing[0].describe()}"
        if self.last is not None and self.last.record["feedback"]:
            return "changes go round a loop of the old query"
        if self.changed_outputs:
            number, old = self.changed_outputs[0]
            where = self.stored["outputs"][old]["place"]
            return f"the stream into {where} has changed, and a place holds one stream (output {number + 1})"
        return ""

    def why_not_backfill(self) -> str:
        """Why the new query cannot be computed over the input of the old one; empty if nothing is known against it."""
        return next((f"{source.origin}: {why}" for source in self.line.sources if (why := _why_once(source))), "")

    def offers(self) -> str:
        """The upgrades that are possible, with what to write, and why others are not."""
        ways = {
            "keep": ("operators that both queries have continue with their state", self.why_not_keep()),
            "backfill": (
                "the new query is computed over the input of the old one; 'side by side' (side-by-side) while it runs",
                self.why_not_backfill(),
            ),
        }
        return "; ".join(
            f"not upgrade={name!r}, because {why}" if why else f"upgrade={name!r} (--upgrade {name}): {what}"
            for name, (what, why) in ways.items()
        )
