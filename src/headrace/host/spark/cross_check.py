"""Before a query goes on: what Spark, the progress log and every output say about its batches must agree.

A batch is planned by Spark (`spark/offsets`), committed to the outputs, noted in the progress log, and then finished by
Spark (`spark/commits`). A crash may fall between any two of these steps, so each may be one batch ahead of the next.
Anything else means that somebody has deleted a part, or put an older copy in its place: going on would lose or repeat
rows in silence.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headrace.errors import CheckpointError, SinkError
from headrace.host.spark.checkpoint import Checkpoint
from headrace.io.commit import RESTORE, BatchDirectory
from headrace.io.sinks import FileSink, Sink

__all__ = ["cross_check"]


def cross_check(place: Checkpoint, sinks: Sequence[Sink]) -> None:
    """Raise `CheckpointError` or `SinkError` if a part of the query's past is missing."""
    logged, entry = place.log.last()
    planned, finished = (_latest(place.path / "spark" / name) for name in ("offsets", "commits"))
    _check_spark(place.path, logged, planned, finished)
    place.log.check_whole()
    for number, sink in enumerate(sinks):
        if isinstance(sink, FileSink):
            _check_sink(BatchDirectory(sink.path), int(entry["written"][number]) if entry else -1, planned)


def _latest(folder: Path) -> int:
    """The latest batch that one of Spark's logs has; -1 if there is none."""
    names = (entry.name for entry in folder.iterdir()) if folder.is_dir() else iter(())
    return max((int(name) for name in names if name.isdigit()), default=-1)


def _check_spark(path: Path, logged: int, planned: int, finished: int) -> None:
    if logged > planned:
        what = "is missing" if planned < 0 else f"ends with batch {planned}"
        raise _broken(path, f"the progress log has batch {logged}, but Spark's part (spark/) {what}")
    if logged < finished:
        what = "is empty" if logged < 0 else f"ends with batch {logged}"
        raise _broken(path, f"Spark has finished batch {finished}, but the progress log (progress/) {what}")
    for name in ("sources", "state"):
        if logged >= 0 and not (path / "spark" / name).is_dir():
            raise _broken(path, f"the progress log has batch {logged}, but spark/{name} is missing")


def _broken(path: Path, what: str) -> CheckpointError:
    return CheckpointError(f"the checkpoint is not whole: {what}", given=str(path), instead=RESTORE)


def _check_sink(output: BatchDirectory, written: int, planned: int) -> None:
    output.check_whole(written)
    ahead = [batch for batch in output.committed() if batch > planned]
    if ahead:
        raise SinkError(
            f"the output {str(output.path)!r} has batch {ahead[-1]}, which the checkpoint does not know",
            given=str(output.path),
            instead=RESTORE,
        )
