"""Locks on directories: held by an open file, so that they end with their process, even if it crashes.

The operating system drops such a lock when the last descriptor of the open file is closed. A forked process gets a copy
of every descriptor and would hold the lock longer than its owner, so it closes its copies at once.
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
except ImportError:  # a system without file locks: users must not share directories
    _locks = None

_OPEN: WeakSet[IO[bytes]] = WeakSet()


def hold(path: Path) -> IO[bytes] | None:
    """Lock a file, and create it if it is missing; None if this process or another holds the lock.

    Closing the returned file releases the lock.
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
