"""Histories on a cluster, in a process of its own.

Usage: `python -m tests.services.cluster.own_history MASTER URL NAMES FOLDER`. They are written to
FOLDER, of the driver, as files `NAME.arrow`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyarrow import feather
from tests.services.cluster.driver import queries


def main(master: str, url: str, names: str, folder: str) -> None:
    """Backfill: the same queries as batch SQL, over the files on S3."""
    streams = {name: stream for name, stream in queries(url).items() if name in names.split(",")}
    for name, stream in streams.items():
        table = stream.history(master=master).cht()
        feather.write_feather(table, str(Path(folder, f"{name}.arrow")))


if __name__ == "__main__":
    main(*sys.argv[1:])
