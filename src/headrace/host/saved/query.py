"""A checkpoint: the public class."""

from __future__ import annotations

from pathlib import Path

from headrace.host.saved.copies import copy
from headrace.host.saved.folder import SavedCheckpoint
from headrace.host.saved.rescaling import rescale
from headrace.host.saved.summary import Summary, summary_of
from headrace.host.saved.tables import OperatorState, state_of
from headrace.host.saved.tidying import TidyReport, tidy_up
from headrace.host.saved.verification import Verification, verify
from headrace.time import DurationLike

__all__ = ["SavedQuery"]


class SavedQuery:
    """A query in its checkpoint, running or not. Its methods do not need the query itself."""

    def __init__(self, path: str | Path) -> None:
        self._folder = SavedCheckpoint(path)

    def __repr__(self) -> str:
        return f"SavedQuery({self._folder.place!r})"

    def show(self) -> Summary:
        """A summary: the query, its progress and the size of its state; a dictionary, with a readable text."""
        return summary_of(self._folder)

    def state(self) -> dict[str, OperatorState]:
        """The state of every operator after the last batch, by its description: an Arrow table for each of its traces,
        and a few numbers.

        Columns have their names in the query; `le` and `re` are lifetimes, `weight` is how often a row is there,
        `forgotten_at` the CTI at which it is forgotten, and `bucket` its bucket.
        """
        return state_of(self._folder)

    def verify(self) -> Verification:
        """Check that every file that the kept commits name exists and is undamaged; `["problems"]` lists the others."""
        return verify(self._folder)

    def copy(self, to: str | Path) -> SavedQuery:
        """A consistent copy, also while the query runs. A query that is started with it continues after the last batch,
        into new sinks: directories of files belong to the original.
        """
        return SavedQuery(copy(self._folder, to))

    def rescale(self, buckets: int, *, take_over: bool = False) -> None:
        """Divide the state of a stopped query among another number of buckets; its next start has that number.

        `CheckpointError` if the state of an operator, such as a loop, cannot be divided. On an object store a query
        whose process has not ended it may still run: `take_over` asserts that the process is gone. If it does run, it
        stops with `Superseded` before its next commit.
        """
        # All state is read once; from a remote store it is kept on this machine's disk.
        rescale(SavedCheckpoint(self._folder.place, keep=True), buckets, take_over=take_over)

    def gc(self, older_than: DurationLike | None = None, *, dry_run: bool = False) -> TidyReport:
        """Remove files that no kept commit names, batches of outputs that need not be kept (`retention=`, `keep=`), and
        pins of dead readers; for a running query only the latter two.

        `older_than="30 days"` removes diverted rows and recorded batches of that age, whatever the query keeps.
        `dry_run=True` removes nothing and returns what would be removed.
        """
        return tidy_up(self._folder, older_than, dry=dry_run)
