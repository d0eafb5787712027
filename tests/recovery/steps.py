"""The steps by which a process changes files, and faults at one of them.

A *step* is a call that makes, opens for writing, links, renames or removes a file or a folder. Python announces every
such call to audit hooks before it takes place, and a hook may break it off. So faults need no cooperation of what they
are aimed at: between any two changes of the files there is a step, whoever makes it.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

WRITES = os.O_CREAT | os.O_WRONLY | os.O_RDWR | os.O_TRUNC
TWO_PATHS = ("os.link", "os.rename")
NEED_SPACE = ("open", "os.mkdir", *TWO_PATHS)
ALL = (*NEED_SPACE, "os.remove", "os.rmdir")


class Death(BaseException):
    """The driver has died: nothing that it would have done from here on happens."""


def die() -> None:
    raise Death


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def disk_full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Steps:
    """The steps of this process below some folders; from step `at` on, every one of them is a fault.

    `at` is a number, or how the step's path ends. With `space`, only steps that need space on the disk are counted.
    """

    def __init__(self) -> None:
        self._folders: tuple[str, ...] = ()
        self._at: int | str | None = None
        self._fault: Callable[[], None] = die
        self._space = False
        #: Whether the fault has taken place.
        self.happened = False
        #: What was counted, for people: the call and the path.
        self.seen: list[str] = []
        sys.addaudithook(self._hear)  # for good: there is no way to remove one

    def watch(
        self, *folders: Path, at: int | str | None = None, fault: Callable[[], None] = die, space: bool = False
    ) -> None:
        """Count from here on."""
        self._at, self._fault, self._space, self.seen, self.happened = at, fault, space, [], False
        self._folders = tuple(f"{folder}{os.sep}" for folder in folders)

    def rest(self) -> None:
        """Neither count nor disturb."""
        self._folders = ()

    def _hear(self, event: str, given: tuple[Any, ...]) -> None:
        if not self._folders or event not in (NEED_SPACE if self._space else ALL):
            return
        path = changed_path(event, given)
        if f"{path}{os.sep}".startswith(self._folders):
            self.seen.append(f"{event} {path}")
            here = str(path).endswith(self._at) if isinstance(self._at, str) else len(self.seen) - 1 == self._at
            self.happened = self.happened or here
            if self.happened:
                self._fault()


def changed_path(event: str, given: tuple[Any, ...]) -> Path | None:
    """The path that a call changes, if it changes any."""
    if event == "open":
        name, _, flags = given
        if isinstance(name, int) or not flags & WRITES:
            return None
        path = Path(os.fsdecode(name)).absolute()
        return None if path.exists() and not flags & os.O_TRUNC else path
    path = Path(os.fsdecode(given[1 if event in TWO_PATHS else 0]))
    folder = given[-1]
    if folder not in (-1, None):  # the path is relative to a folder that is open
        path = Path(f"/proc/self/fd/{folder}").readlink() / path
    path = path.absolute()
    # Whoever makes a folder may try to make one that is there, or one below a folder that is not there yet.
    return None if event == "os.mkdir" and (path.is_dir() or not path.parent.is_dir()) else path
