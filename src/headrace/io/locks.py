"""Locks on directories: held by an open file, so that they end with their process, however it ends.

The operating system drops such a lock when the last descriptor of the open file is closed. A forked process gets a copy
of every descriptor and would hold the lock for longer than its owner lives: so it closes its copies at once.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import IO, Any
from weakref import WeakSet

__all__ = ["hold"]

try:
    _locks: Any = import_module("fcntl")
except ImportError:  # where there are none, it is up to users
    _locks = None

_OPEN: WeakSet[IO[bytes]] = WeakSet()


def hold(path: Path) -> IO[bytes] | None:
    """Lock the file, which is made if need be; None if somebody else, here or elsewhere, holds it.

    The lock is let go when the file that is given back is closed.
    """
    file = path.open("ab")
    if _locks is not None:
        try:
            _locks.flock(file, _locks.LOCK_EX | _locks.LOCK_NB)
        except OSError:
            file.close()
            return None
    _OPEN.add(file)
    return file


def _close_copies() -> None:
    for file in list(_OPEN):
        file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_copies)
