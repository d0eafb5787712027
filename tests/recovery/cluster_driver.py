"""A query in a cluster of two executors, each a process of its own, for a test that kills one of them.

Usage: `python -m tests.recovery.cluster_driver FOLDER`. It answers what is in FOLDER/in, says so by the file
FOLDER/answered-1, waits for FOLDER/more-1, answers again, and so on; after FOLDER/end it ends.
"""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path

from tests.recovery.gate import check_levels, gated, wait_until

import headrace as hr
from headrace.host.spark.session import get_session


def main(folder: Path) -> None:
    """Run until all is answered."""
    memory = {"spark.driver.memory": "512m", "spark.executor.memory": "512m"}
    get_session("local-cluster[2,1,1024]", memory, app="headrace recovery")
    sinks = [(stream, hr.files(str(folder / "out" / name))) for name, stream in gated(folder).items()]
    query = hr.start_all(sinks, checkpoint=str(folder / "state"), files_per_batch=1, buckets=2)
    check_levels(query)
    for turn in count(1):
        query.process_all_available()
        (folder / f"answered-{turn}").touch()
        if (folder / "end").exists():
            break
        wait_until((folder / f"more-{turn}").exists, "more")
    query.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
