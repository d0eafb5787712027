"""Write the kept checkpoints of a version: `python -m tests.kept.write [NAME [HOST]]`.

The version is that on PYTHONPATH, so this also runs with an earlier one: PYTHONPATH=EARLIER/src:. The archive has the
checkpoints and the outputs of all queries after half of the input.
"""

from __future__ import annotations

import os
import socket
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.kept.queries import HALF, QUERIES, run, write_input

import headrace as hr

__all__ = ["write"]


def write(archive: Path, host: str = "local") -> None:
    """Run all queries over half of the input, and pack what they leave."""
    archive = archive.absolute()
    socket.gethostname = lambda: "kept"  # the archive does not say on which machine it was written
    with tempfile.TemporaryDirectory(prefix="kept-") as folder:
        os.chdir(folder)
        write_input(Path(), 0, HALF)
        for name in QUERIES:
            run(name, host)
        with tarfile.open(archive, "w:xz") as packed:
            for part in ("state", "out"):
                packed.add(part, filter=_anonymous)
        os.chdir(archive.parent)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return None if member.name.endswith("/lock") else member


if __name__ == "__main__":
    given = sys.argv[1:] or [str(hr.__version__)]
    write(Path(__file__).parent / f"{given[0]}.tar.xz", *given[1:])
