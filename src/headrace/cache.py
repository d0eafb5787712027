"""Where work is kept that need not be done twice: native code of SQL aggregates, classes of Spark that Java has loaded.

The folder is that of HEADRACE_CACHE, or `headrace` in the user's cache folder. Whatever is in it can be removed at any
time: it is made again.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder(part: str) -> Path | None:
    """The folder of one kind of work; None if there is no place for it."""
    given = os.environ.get("HEADRACE_CACHE")
    try:
        home = Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "headrace")
        (home / part).mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # no home, or no room
        return None
    return home / part
