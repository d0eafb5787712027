"""`python -m tests.soak`: a query under load for half an hour, with kills; fails if anything grows or is wrong."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from tests.services.broker import Broker
from tests.soak import overload
from tests.soak.pictures import draw
from tests.soak.run import soak


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - for the person who waits


@contextmanager
def _broker(folder: Path) -> Iterator[tuple[str, str]]:
    """A broker, with a topic of two partitions."""
    with Broker(folder / "kafka") as broker:
        broker.create_topic("soak", 2)
        yield broker.bootstrap, "soak"


def main() -> int:
    """Run it, draw the curves, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--rate", type=int, default=2000, help="rows per second between bursts")
    parser.add_argument("--kills", type=int, default=3, help="how often the process is killed, in the first half")
    parser.add_argument("--host", default="local", choices=["local", "spark"])
    parser.add_argument(
        "--kafka", action=argparse.BooleanOptionalAction, default=True,
        help="read files and a topic, of a broker that is fetched and started; --no-kafka: files only",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where to keep the checkpoint, the outputs and the log")
    parser.add_argument("--picture", type=Path, default=Path("build/soak.svg"))
    parser.add_argument("--overload", action="store_true", help="the overload cases instead, at full size")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-soak-", ignore_cleanup_errors=True) as temporary:
        folder = options.folder or Path(temporary)
        if options.overload:
            return overload.report(folder, _say)
        given = {"rate": options.rate, "kills": options.kills, "host": options.host, "seed": options.seed}
        with _broker(Path(temporary)) if options.kafka else nullcontext() as kafka:
            report = soak(folder, 60 * options.minutes, **given, kafka=kafka, say=_say)
    draw(report, options.picture)
    _say(str(report))
    for problem in report.problems:
        _say(f"FAILED: {problem}")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
