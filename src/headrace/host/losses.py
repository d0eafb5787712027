"""Losses of a run as text: late, malformed and shed rows, retractions of unknown events, windows whose module failed.

Every host uses the same counters, so there is one text for all places: a Python warning, the line below a table, the
log of a running query. It names every source that lost rows, how many and why, and one row as an example.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.display.words import counted
from headrace.plan.nodes import Source

__all__ = ["LOG", "Losses", "describe_diverted", "describe_losses", "examples_of", "lost"]

#: The logger of this package. Users decide what it shows.
LOG = logging.getLogger("headrace")

Counts = Mapping[str, Mapping[str, int]]
Examples = Mapping[str, Mapping[str, Any]]
_SHOWN = 120  # characters of a row
#: The counters of files, as text.
_FILES = {
    "missing_files": "removed before they were read",
    "changed_files": "changed since they were listed or read",
    "old_files": "too old to be read",
}


@dataclass
class Losses:
    """The losses of a running query so far; the first loss is logged."""

    rows: int = 0

    def grown(self, query: str, counts: Counts, examples: Examples) -> str:
        """All losses as text, if there are more than the last time; otherwise empty."""
        before, self.rows = self.rows, sum(lost(part) + _files(part) for part in counts.values())
        if self.rows <= before:
            return ""
        text = describe_losses(counts, examples)
        if not before:
            LOG.warning("query %s: %s", query, text, extra={"fields": {"query": query}})
        return text


def lost(counts: Mapping[str, int]) -> int:
    """The number of rows of a source, or windows of a module, that were not used."""
    return sum(counts.get(name, 0) for name in ("diverted", "dropped", "failed"))


def examples_of(sources: Iterable[Source], reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """For every source, a row of a batch that was not used."""
    found: dict[str, Any] = {}
    for source in sources:
        rows = (part["example"] for report in reports for part in report.get(source.fingerprint, []))
        first = next((row for row in rows if row is not None), None)
        if first is not None:
            found.setdefault(str(source.origin), first)
    return found


def _files(counts: Mapping[str, int]) -> int:
    """The number of files of a source that were missing, changed or too old."""
    return sum(counts.get(name, 0) for name in _FILES)


def describe_losses(counts: Counts, examples: Examples, read: Collection[str] = ()) -> str:
    """A line for every source and module that lost something; empty if none did.

    The query itself reads the diverted rows of the sources in `read`: of these, only dropped rows are lost.
    """
    lines = [
        _line(source, part, examples.get(source))
        for source, part in counts.items()
        if (lost(part) and (source not in read or part.get("dropped"))) or _files(part)
    ]
    return "\n".join(lines)


def _line(source: str, counts: Mapping[str, int], example: Mapping[str, Any] | None) -> str:
    if "rows" not in counts:
        return f"{source}: {counted(lost(counts), 'answer')} left out, because the module failed" + _example(example)
    late = counts["late"] - counts["adjusted"]
    shed = counts.get("shed", 0)  # an earlier Headrace had none
    unknown = lost(counts) - late - counts["malformed"] - shed
    parts = (
        (late, "late"), (counts["malformed"], "malformed"), (shed, "shed"), (unknown, "retracting what is not there")
    )  # fmt: skip
    why = ", ".join(f"{count:,} {what}" for count, what in parts if count > 0)
    fate = ", ".join(f"{counts[what]:,} {what}" for what in ("diverted", "dropped") if counts[what])
    rows = f"{lost(counts):,} of {counted(counts['rows'], 'row')} not used ({why}; {fate})" if lost(counts) else ""
    files = ", ".join(f"{counted(counts[name], 'file')} {what}" for name, what in _FILES.items() if counts.get(name))
    return f"{source}: {'; '.join(filter(None, (rows, files)))}" + _example(example)


def _example(row: Mapping[str, Any] | None) -> str:
    return "" if row is None else f"; for example {describe_diverted(row)}"


def describe_diverted(row: Mapping[str, Any]) -> str:
    """A row that was not used, with its place and the reason."""
    line = f", line {row['line']}" if row["line"] is not None else ""
    place = f"{row['file']}{line}: " if row["file"] is not None else ""
    text = row["row"] if len(row["row"]) <= _SHOWN else row["row"][:_SHOWN] + "…"
    return f"{place}{row['reason']}: {text}"
