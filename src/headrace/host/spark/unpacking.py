"""The module `headrace` on a worker: it unpacks the archive around it, and becomes the package in it.

This file is not imported as it stands: `shipping.py` writes its text to the top of an archive, as `headrace.py`, beside
a folder with the driver's Headrace. Code is unpacked into a folder named after its content, once for each machine:
imports are faster from there than from an archive, and loops that Numba has compiled are still valid in the next
session. It must not import Headrace before.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path

CONTENT = "content"


def unpacked(archive: Path) -> Path:
    """The folder with the content of an archive; several processes may unpack at once."""
    home = os.environ.get("HEADRACE_CACHE") or Path(
        os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser(), "headrace"
    )
    folder = Path(home, "code", archive.stem)
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".", dir=folder.parent))
    except OSError:  # no home, or no room in it
        draft = folder = Path(tempfile.mkdtemp(prefix="headrace-"))
    with zipfile.ZipFile(archive) as file:
        members = [member for member in file.infolist() if member.filename.startswith(f"{CONTENT}/")]
        file.extractall(draft, members)
    with suppress(OSError):  # another process was faster
        (draft / CONTENT).rename(folder if draft != folder else draft / "unpacked")
    if draft == folder:
        return folder / "unpacked"
    shutil.rmtree(draft, ignore_errors=True)
    return folder


def become_the_package(archive: str) -> None:
    """Replace this module by the package of the same name that is in the archive."""
    place = sys.path.index(archive) if archive in sys.path else 0
    sys.path.insert(place, str(unpacked(Path(archive))))
    del sys.modules["headrace"]
    importlib.import_module("headrace")


if __name__ == "headrace":  # imported from the archive
    become_the_package(__loader__.archive)  # type: ignore[name-defined]
