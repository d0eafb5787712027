"""The cache folder, for work that need not be repeated: native code of SQL aggregates, Java's archive of Spark classes.

The folder is HEADRACE_CACHE, or `headrace` in the user's cache folder. Its files can be removed at any time: they are
created again.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder(part: str) -> Path | None:
    """The folder of one kind of files; None if it cannot be created."""
    path = os.environ.get("HEADRACE_CACHE")
    try:
        home = Path(path) if path else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "headrace")
        (home / part).mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # no home, or no room
        return None
    return home / part
