"""Reports of batches: progress of the sources, state of the operators, and rounds of loops.

A report is a dictionary of JSON values, the same on every host; as text it is a table for users.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from headrace.border import shown_time
from headrace.host.losses import describe_losses
from headrace.stages.load import StageLoad, stage_loads
from headrace.time import INFINITY, NEG_INFINITY, format_ticks

__all__ = ["BatchReport", "operators_of", "state_sizes"]

_SIZES = ("rows", "bytes", "segments")


class BatchReport(dict[str, Any]):
    """The report of a batch: its number, the CTI, the sources' counts, and the operators, summed over buckets.

    `examples` has, for each source that lost rows, one of them: its reason, file, line and text. `operators` are those
    with state; `loops` are the loops among them, also inside of others. `stages` has for each stage of several buckets
    the rows that arrived, and the rows of the fullest bucket ÷ the mean. `fetched` is the number of bytes of state that
    workers fetched from a remote store. `intake` has for each source how much a batch reads at most, how much waited
    after the batch, and the partition that holds back the CTI. `lateness` has a histogram of how late rows were, for
    each source with dates (`io/lateness.py`). `removed` has for each output and spool with a retention the
    batches, files and bytes that were removed so far. `alarms` are those that last. CTIs and other times are ISO
    texts where they are dates, and numbers of ticks where they are numbers.
    """

    @classmethod
    def of(
        cls,
        batch: int,
        sources: Mapping[str, Sequence[int]],
        counts: Mapping[str, Mapping[str, int]],
        statistics: Iterable[Mapping[str, Any]],
        examples: Mapping[str, Mapping[str, Any]] | None = None,
        dated: Collection[str] = (),
    ) -> BatchReport:
        """The report of a batch, from the statistics of its stages and the progress of its sources.

        `dated` are the sources whose times are dates.
        """
        statistics = list(statistics)
        operators = list(operators_of(statistics).values())
        cti = min((p[0] for p in sources.values()), default=NEG_INFINITY)
        loops = [loop for operator in operators for loop in _loops(operator)]
        times = {name: [shown_time(t, dates=name in dated) for t in pair] for name, pair in sources.items()}
        whole: dict[str, Any] = {"batch": batch, "cti": shown_time(cti, dates=bool(dated)), "sources": times}
        shown = whole | {"counts": counts, "examples": examples or {}}
        fetched = sum(part.get("fetched", 0) for part in statistics)
        stages = [load.to_json() for load in stage_loads(statistics)]
        return cls(**shown, operators=operators, loops=loops, stages=stages, fetched=fetched)

    def __str__(self) -> str:
        lines = [f"batch {self.get('batch', -1)}, CTI {_time(self.get('cti', NEG_INFINITY))}"]
        for source, counts in self.get("counts", {}).items():
            lines.append(f"  {source}: " + ", ".join(f"{name} {n:,}" for name, n in counts.items() if n))
        lines += [
            f"  {line}" for line in describe_losses(self.get("counts", {}), self.get("examples", {})).splitlines()
        ]
        for operator in self.get("operators", ()):
            lines.append(f"  {operator['operator']}: {_size(operator)}, held by {operator['held_by']}")
            lines += [f"    {line}" for line in _loop_lines(operator)]
        for load in map(StageLoad.from_json, self.get("stages", ())):
            lines += [f"  stage {load.level}: {text}" for text in load.lines()]
        for source, limits in self.get("intake", {}).items():
            shown = (f"{name.replace('_', ' ')} {n:,}" for name, n in limits.items() if isinstance(n, int))
            held = [f"CTI held by {limits['held_by']}"] if limits.get("held_by") else []
            lines.append(f"  {source}: " + ", ".join([*shown, *held]))
        for place, removed in self.get("removed", {}).items():
            if removed["files"]:
                lines.append(f"  {place}: {removed['files']:,} files with {removed['bytes']:,} bytes were removed")
        lines += [f"  alarm {alarm['name']}: {alarm['text']}" for alarm in self.get("alarms", ())]
        if self.get("fetched"):
            lines.append(f"  fetched {self['fetched']:,} bytes of state from a remote store")
        return "\n".join(lines)


def operators_of(statistics: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The statistics of every operator, summed over buckets, by fingerprint."""
    found: dict[str, list[dict[str, Any]]] = {}
    for part in statistics:
        for fingerprint, state in part["operators"].items():
            found.setdefault(fingerprint, []).append(state)
    return {fingerprint: _together(parts) for fingerprint, parts in found.items()}


def state_sizes(statistics: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The size of every operator's state, and what holds it, for readers of the checkpoint."""
    found = operators_of(statistics)
    return {f: {name: state[name] for name in ("rows", "bytes", "held_by")} for f, state in found.items()}


def _together(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One operator in all its buckets."""
    total = {**parts[0], **{name: sum(part[name] for part in parts) for name in _SIZES if name in parts[0]}}
    if "circulated" not in total:
        return total
    rounds = max(part["rounds"] for part in parts)
    rows = [[*part["circulated"], *[0] * rounds][:rounds] for part in parts]
    dates = bool(total.pop("dates", False))
    inputs = [min(ctis) for ctis in zip(*(part["input_ctis"] for part in parts), strict=True)]
    output = min(part["output_cti"] for part in parts)
    inside = zip(*(part["loop"] for part in parts), strict=True)
    return total | {
        "rounds": rounds,
        "most_rounds": max(part["most_rounds"] for part in parts),
        "circulated": [sum(column) for column in zip(*rows, strict=True)],
        "circulated_in_all": sum(part["circulated_in_all"] for part in parts),
        "input_ctis": [shown_time(cti, dates=dates) for cti in inputs],
        "output_cti": shown_time(output, dates=dates),
        "lag": _lag(min(inputs), output),
        "loop": [_together(same) for same in inside],
    }  # fmt: skip


def _lag(input_cti: int, output_cti: int) -> int | None:
    """By how many ticks the CTI of a loop is behind the least CTI of its inputs; None if that is not finite."""
    if input_cti == output_cti:
        return 0
    finite = output_cti > NEG_INFINITY and input_cti < INFINITY
    return input_cti - output_cti if finite else None


def _loops(operator: dict[str, Any]) -> list[dict[str, Any]]:
    """An operator if it is a loop, and the loops inside."""
    if "loop" not in operator:
        return []
    return [operator, *(inner for part in operator["loop"] for inner in _loops(part))]


def _loop_lines(operator: Mapping[str, Any]) -> list[str]:
    if "loop" not in operator:
        return []
    lag = "unknown" if operator["lag"] is None else f"{operator['lag']:,}"
    inputs = ", ".join(map(_time, operator["input_ctis"]))
    changes = f"{sum(operator['circulated']):,}, in all {operator['circulated_in_all']:,}"
    lines = [
        f"rounds: {operator['rounds']}, at most {operator['most_rounds']} so far",
        f"changes that went round: {changes}",
        f"CTI: {_time(operator['output_cti'])}, of its inputs {inputs}; lag {lag}",
    ]
    for part in operator["loop"]:
        lines.append(f"{part['operator']}: {_size(part)}")
        lines += [f"  {line}" for line in _loop_lines(part)]
    return lines


def _time(time: int | str) -> str:
    return time if isinstance(time, str) else format_ticks(time)


def _size(state: Mapping[str, Any]) -> str:
    return f"{state['rows']:,} rows, {state['bytes']:,} bytes"
