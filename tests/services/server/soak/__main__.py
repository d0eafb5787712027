"""`python -m tests.services.server.soak`: the long run, with what happened at the end."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.services.server.soak.run import soak
from tests.services.server.test_postgres import programs


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - for the person who waits


def main() -> None:
    """Run, and print a line every few seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="how long clients insert")
    parser.add_argument("--kills", type=int, default=3, help="how often the server is killed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where to keep the data directory and the log of the server")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-soak-") as folder:
        report = soak(
            options.folder or Path(folder), programs()[-1], options.seconds, kills=options.kills, seed=options.seed,
            say=_say,
        )  # fmt: skip
    _say(str(report))


if __name__ == "__main__":
    main()
