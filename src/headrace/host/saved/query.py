"""A checkpoint in people's hands."""

from __future__ import annotations

from pathlib import Path

from headrace.host.saved.copies import copy
from headrace.host.saved.folder import SavedCheckpoint
from headrace.host.saved.rescaling import rescale
from headrace.host.saved.summary import Summary, summary_of
from headrace.host.saved.tables import OperatorState, state_of
from headrace.host.saved.tidying import Tidied, tidy_up
from headrace.host.saved.verification import Verification, verify

__all__ = ["SavedQuery"]


class SavedQuery:
    """A query as its checkpoint has it, whether it runs or not. Nothing here needs the query itself."""

    def __init__(self, path: str | Path) -> None:
        self._folder = SavedCheckpoint(path)

    def __repr__(self) -> str:
        return f"SavedQuery({self._folder.place!r})"

    def show(self) -> Summary:
        """Whose checkpoint it is, how far the query has come, and how much it remembers: a dictionary, and as text for
        people.
        """
        return summary_of(self._folder)

    def state(self) -> dict[str, OperatorState]:
        """What every operator remembers after the last batch, by what it does: tables of Arrow, one for each of its
        traces, and a few numbers.

        Columns have the names that the query knows them by; `le` and `re` are lifetimes, `weight` how often a row is
        there, `forgotten_at` the CTI that lets it go, `bucket` where it is.
        """
        return state_of(self._folder)

    def verify(self) -> Verification:
        """Whether every file that the kept commits name is there and whole, down to its blocks; `["problems"]` has what
        is wrong.
        """
        return verify(self._folder)

    def copy(self, to: str | Path) -> SavedQuery:
        """A consistent copy, also while the query runs. A query that is started with it goes on behind the last batch,
        into new sinks: directories of files belong to the original.
        """
        return SavedQuery(copy(self._folder, to))

    def rescale(self, buckets: int, *, take_over: bool = False) -> None:
        """Divide the state of a stopped query among another number of buckets; its next start has that number.

        `CheckpointError` if one of its operators cannot be divided, such as a loop. On an object store nobody can see
        whether a query runs whose process has not ended it: `take_over` says that its process is gone. Should it run
        all the same, it stops with `Superseded` before its next commit.
        """
        # All state is read once: from a remote store, by way of this machine's disk.
        rescale(SavedCheckpoint(self._folder.place, keep=True), buckets, take_over=take_over)

    def gc(self) -> Tidied:
        """Remove what no kept commit names, and the pins of readers that have died; of a running query only the
        latter.
        """
        return tidy_up(self._folder)
