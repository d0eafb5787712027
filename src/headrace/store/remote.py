"""Stores behind a network, where the answer to a call may get lost: the caller cannot know whether it has happened.

For all calls but one that does no harm: reading, listing and removing can be repeated. A `create` that is repeated may
find its key taken, by itself. So a caller that finds a key taken compares what is there with what it wanted to write:

* It is the same: the call has happened, and this caller has made the file.
* It is something else: another caller was faster.

That tells callers apart only if no two of them write the same. Epochs carry a token for that, commits the epoch of
their driver, and the names of data files are unique. Whose a plan is does not matter: it is read back.

A call without an answer may also happen later, when the file was created again and removed since. Nothing comes of it:
a commit below the floor does not count, an epoch before the newest owns nothing, and data that no commit names does not
exist. All of them are removed with the next clean-up or start.
"""

from __future__ import annotations

from abc import abstractmethod

from headrace.errors import StoreError
from headrace.pieces import Data, Pieces, length
from headrace.store.storage import Storage

__all__ = ["RemoteStorage", "Unanswered"]

#: How often a file is written whose writing gets no answer. Connections are tried again below that, too.
_ATTEMPTS = 4


class Unanswered(Exception):
    """A call that may have happened, or may still happen."""


class RemoteStorage(Storage):
    """A storage whose answers may get lost."""

    @abstractmethod
    def put(self, key: str, data: Data) -> bool:
        """Make a file, if there is none; false if there is. `Unanswered` if that is not known."""

    def create(self, key: str, data: Data, *, lasting: bool = True) -> bool:  # noqa: ARG002 - all of it lasts
        """Make a file, if there is none under this key yet; false if there is one with another content."""
        why = ""
        for _ in range(_ATTEMPTS):
            try:
                if self.put(key, data):
                    return True
                return self._holds(key, data)
            except Unanswered as error:
                why = str(error)
            except FileNotFoundError:  # taken, and gone again; some stores also say so when two callers meet
                why = "it is there, and it is not there"
        raise StoreError(
            f"cannot write {key!r} to {self.place!r}: {why}",
            given=self.place,
            instead="start again with this checkpoint when the store answers: the query goes on where it was",
        )

    def _holds(self, key: str, data: Data) -> bool:
        """Whether a file has this content; `FileNotFoundError` if there is none."""
        if self.length(key) != length(data):
            return False
        found, place = memoryview(self.read(key)).cast("B"), 0
        for part in data if isinstance(data, Pieces) else [data]:
            piece = memoryview(part).cast("B")
            if found[place : place + piece.nbytes] != piece:
                return False
            place += piece.nbytes
        return place == found.nbytes
