"""Temporary directories that do not outlive their process for long.

A process removes its own when it ends. What a killed process leaves behind is removed by the next one that starts a
query: directories whose process is gone and whose lock nobody holds, and logs of such processes after a week. The name
contains the process; the lock tells the truth also where processes of other containers share the directory, which
cannot be seen from here.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from headrace.io.locks import hold

__all__ = ["TemporaryFolder", "log_file", "remove_leftovers"]

_NAME = re.compile(r"headrace-(?:[a-z]+-)?(\d+)-\w+(\.log)?")
_LOCK = ".alive"
#: Younger directories may not have their lock yet; logs are for people who look for the reason of a crash.
_YOUNG, _LOG_SECONDS = 60.0, 7 * 86_400.0
_log = logging.getLogger("headrace")


#: The locks of the directories of this process.
_HELD: dict[str, IO[bytes] | None] = {}


class TemporaryFolder:
    """A temporary directory, locked until it is removed; in a `with` statement, its path."""

    def __init__(self, kind: str = "") -> None:
        self.name = tempfile.mkdtemp(prefix=_prefix(kind))
        _HELD[self.name] = hold(Path(self.name, _LOCK))

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_: object) -> None:
        self.cleanup()

    def cleanup(self) -> None:
        """Remove it."""
        shutil.rmtree(self.name, ignore_errors=True)
        _release(self.name)


def _release(name: str) -> None:
    lock = _HELD.pop(name, None)
    if lock is not None:
        lock.close()


@atexit.register
def _release_all() -> None:
    for name in list(_HELD):
        _release(name)


def log_file(kind: str) -> Path:
    """A new file for messages, which stays if the process is killed."""
    handle, name = tempfile.mkstemp(prefix=_prefix(kind), suffix=".log")
    os.close(handle)
    return Path(name)


def _prefix(kind: str) -> str:
    return f"headrace-{kind}-{os.getpid()}-" if kind else f"headrace-{os.getpid()}-"


def remove_leftovers(place: Path | None = None, now: float | None = None) -> list[Path]:
    """Remove what dead processes have left in the temporary directory; return it."""
    place, now = place or Path(tempfile.gettempdir()), time.time() if now is None else now
    removed = []
    with suppress(OSError):
        for entry in os.scandir(place):
            match = _NAME.fullmatch(entry.name)
            if match and not _is_alive(int(match[1])):
                with suppress(OSError):  # of another user, or removed meanwhile
                    if _removed(Path(entry.path), entry.stat(follow_symlinks=False), now):
                        removed.append(Path(entry.path))
    if removed:
        _log.info("%d temporary files and directories of ended processes were removed", len(removed))
    return removed


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # a process of another user
        return True
    return True


def _removed(path: Path, about: os.stat_result, now: float) -> bool:
    if hasattr(os, "getuid") and about.st_uid != os.getuid():
        return False
    if path.suffix == ".log":
        if path.is_symlink() or about.st_mtime > now - _LOG_SECONDS:
            return False
        path.unlink()
        return True
    if path.is_symlink() or not path.is_dir() or about.st_mtime > now - _YOUNG:
        return False
    lock = hold(path / _LOCK)
    if lock is None:
        return False
    with lock:
        shutil.rmtree(path)
    return True
