"""What a run has not used, in words: late and malformed rows, retractions of nothing, windows whose module failed.

Every host counts the same things under the same names, so there is one text for all places where people look: a Python
warning, the line under a table, the log of a query that runs on. It names every source that lost something, how much
and why, and one row as an example.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["LOG", "Losses", "describe_losses", "lost"]

#: The logger of this package. Users decide what is shown of it.
LOG = logging.getLogger("headrace")

Counts = Mapping[str, Mapping[str, int]]
Examples = Mapping[str, Mapping[str, Any]]
_SHOWN = 120  # characters of a row
#: What may become of files, as counted.
_FILES = {
    "missing_files": "removed before they were read",
    "changed_files": "changed since they were listed or read",
    "old_files": "too old to be read",
}


@dataclass
class Losses:
    """What a query that runs on has lost so far; the first loss is logged."""

    rows: int = 0

    def grown(self, query: str, counts: Counts, examples: Examples) -> str:
        """All losses, in words, if there are more than the last time; else nothing."""
        before, self.rows = self.rows, sum(lost(part) + _files(part) for part in counts.values())
        if self.rows <= before:
            return ""
        told = describe_losses(counts, examples)
        if not before:
            LOG.warning("query %s: %s", query, told)
        return told


def lost(counts: Mapping[str, int]) -> int:
    """How many rows of a source, or windows of a module, are not in the answer."""
    return sum(counts.get(name, 0) for name in ("diverted", "dropped", "failed"))


def _files(counts: Mapping[str, int]) -> int:
    """How many files of a source were not used as they are."""
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
        return f"{source}: {_count(lost(counts), 'answer')} left out, because the module failed" + _example(example)
    late = counts["late"] - counts["adjusted"]
    unknown = lost(counts) - late - counts["malformed"]
    parts = ((late, "late"), (counts["malformed"], "malformed"), (unknown, "retracting what is not there"))
    why = ", ".join(f"{count:,} {what}" for count, what in parts if count > 0)
    fate = ", ".join(f"{counts[what]:,} {what}" for what in ("diverted", "dropped") if counts[what])
    rows = f"{lost(counts):,} of {_count(counts['rows'], 'row')} not used ({why}; {fate})" if lost(counts) else ""
    files = ", ".join(f"{_count(counts[name], 'file')} {what}" for name, what in _FILES.items() if counts.get(name))
    return f"{source}: {'; '.join(filter(None, (rows, files)))}" + _example(example)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _example(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return ""
    line = f", line {row['line']}" if row["line"] is not None else ""
    place = f"{row['file']}{line}: " if row["file"] is not None else ""
    text = row["row"] if len(row["row"]) <= _SHOWN else row["row"][:_SHOWN] + "…"
    return f"; for example {place}{row['reason']}: {text}"
