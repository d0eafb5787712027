"""Remote stores, where the answer to a call may get lost: then the caller does not know whether the call has happened.

For all calls but one this does no harm: reading, listing and removing can be repeated. A repeated `create` may find its
key taken by the first attempt. So a caller that finds a key taken compares the content with its own:

* It is the same: the call has happened, and this caller has created the file.
* It is different: another caller was faster.

This works only if no two callers write the same content. For this, epochs contain a token, commits the epoch of their
driver, and the names of data files are unique. The writer of a plan does not matter: the plan is read back.

A call without an answer may also happen later, after the file was created again and removed. It has no effect: a commit
below the floor does not count, an epoch before the newest owns nothing, and data that no commit names does not exist.
The next clean-up or start removes all of them.
"""

from __future__ import annotations

from abc import abstractmethod

from headrace.errors import StoreError
from headrace.pieces import Data, Pieces, length
from headrace.store.storage import Storage

__all__ = ["RemoteStorage", "Unanswered"]

#: The number of attempts to write a file without an answer. The client also retries connections.
_ATTEMPTS = 4


class Unanswered(Exception):
    """A call that may have happened, or may still happen."""


class RemoteStorage(Storage):
    """A storage whose answers may get lost."""

    @abstractmethod
    def put(self, key: str, data: Data) -> bool:
        """Create a file if it is absent; False if it exists. `Unanswered` if that is unknown."""

    def create(self, key: str, data: Data, *, lasting: bool = True) -> bool:  # noqa: ARG002 - all of it lasts
        """Create a file if it is absent; False if it exists with another content."""
        why = ""
        for _ in range(_ATTEMPTS):
            try:
                if self.put(key, data):
                    return True
                return self._holds(key, data)
            except Unanswered as error:
                why = str(error)
            except FileNotFoundError:  # taken, and removed again; some stores also answer so to concurrent callers
                why = "the file exists, and cannot be found"
        raise StoreError(
            f"cannot write {key!r} to {self.place!r}: {why}",
            given=self.place,
            instead="start again with this checkpoint when the store answers: the query continues where it stopped",
        )

    def _holds(self, key: str, data: Data) -> bool:
        """Whether a file has this content; `FileNotFoundError` if there is none."""
        if self.length(key) != length(data):
            return False
        content, place = memoryview(self.read(key)).cast("B"), 0
        for part in data if isinstance(data, Pieces) else [data]:
            piece = memoryview(part).cast("B")
            if content[place : place + piece.nbytes] != piece:
                return False
            place += piece.nbytes
        return place == content.nbytes
