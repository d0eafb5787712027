"""How evenly the rows of a stage are divided among its buckets.

A stage ends with its fullest bucket, so the rows of that bucket ÷ the mean is about the factor by which the stage takes
longer than with even buckets. All rows of a key have one bucket: a key with many rows, or few keys, make buckets
uneven. Aggregates that are combined before the shuffle send a row for each key and window, however many events it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

__all__ = ["StageLoad", "added_arrivals", "stage_loads"]

#: From these on there is advice: the fullest bucket ÷ the mean, and the rows of the fullest bucket.
_UNEVEN, _ENOUGH = 1.5, 10_000


@dataclass(frozen=True)
class StageLoad:
    """The rows that arrived at a stage, and those in its fullest bucket."""

    level: int
    buckets: int
    rows: int
    fullest_bucket: int
    fullest_rows: int
    #: The columns that decide the bucket, of the input with most rows in the fullest one; () if all rows have one
    #: bucket, None if rows stay in the bucket where they are.
    by: tuple[str, ...] | None

    @property
    def fullest_by_mean(self) -> float:
        """The rows of the fullest bucket ÷ the mean: 1 if all have the same, and at most the number of buckets."""
        return self.fullest_rows * self.buckets / self.rows if self.rows else 1.0

    def to_json(self) -> dict[str, Any]:
        """The values of the report of a batch."""
        by = None if self.by is None else list(self.by)
        return vars(self) | {"by": by, "fullest_by_mean": round(self.fullest_by_mean, 3)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StageLoad:
        by = None if data["by"] is None else tuple(data["by"])
        return cls(**{field.name: data[field.name] for field in fields(cls)} | {"by": by})

    def lines(self) -> list[str]:
        """The rows, the factor, and what to do about uneven buckets, as text lines; nothing if no rows arrived."""
        advice = self.advice
        return [self._describe(), *([f"advice: {advice}"] if advice else [])] if self.rows else []

    def _describe(self) -> str:
        how = "" if self.by is None else f" by {', '.join(self.by)}" if self.by else " without a key"
        return (
            f"{self.rows:,} rows{how} in {self.buckets} buckets; the fullest has {self.fullest_by_mean:.2f} × the mean"
        )

    @property
    def advice(self) -> str:
        """What to do about uneven buckets; empty if they are even enough, or have few rows."""
        if self.fullest_by_mean < _UNEVEN or self.fullest_rows < _ENOUGH:
            return ""
        waits = f"the stage waits for bucket {self.fullest_bucket} with {self.fullest_rows:,} rows"
        if self.by is None:
            return f"{waits}: rows stay in the bucket of the task that read them; files of like sizes are even"
        if not self.by:
            return f"{waits}: no key divides the rows; group by a column first, and aggregate the groups' answers again"
        return (
            f"{waits}: rows of one {', '.join(self.by)} are in one bucket, and one value or a few have most rows; "
            "counts, sums, averages and extremes in tumbling and hopping windows are combined before the shuffle, and "
            "other work can be grouped by a further column first"
        )


def stage_loads(statistics: Iterable[Mapping[str, Any]]) -> list[StageLoad]:
    """The loads of all stages with several buckets, from the statistics of all buckets, of one batch or several."""
    found: dict[int, dict[int, list[list[Any]]]] = {}
    for part in statistics:
        if "arrivals" in part:
            stage = found.setdefault(part["level"], {})
            stage[part["bucket"]] = added_arrivals(stage.get(part["bucket"], []), part["arrivals"])
    return [_load(level, arrivals) for level, arrivals in sorted(found.items()) if len(arrivals) > 1]


def added_arrivals(before: list[list[Any]], more: list[list[Any]]) -> list[list[Any]]:
    """The rows of a bucket's inputs, of several trips or batches: lists of columns and numbers of rows."""
    return [[by, rows + more[place][1]] for place, (by, rows) in enumerate(before)] or more


def _load(level: int, arrivals: Mapping[int, list[list[Any]]]) -> StageLoad:
    rows = {bucket: sum(count for _, count in inputs) for bucket, inputs in arrivals.items()}
    fullest = max(rows, key=lambda bucket: rows[bucket])
    by = max(arrivals[fullest], key=lambda part: part[1], default=[None])[0]
    shown = None if by is None else tuple(by)
    return StageLoad(level, len(arrivals), sum(rows.values()), fullest, rows[fullest], shown)
