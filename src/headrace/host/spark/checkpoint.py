"""A query's checkpoint: a directory that belongs to one query.

headrace.json   whose it is: the version, the plan's fingerprint and text, the number of buckets
spark/          Spark's own: offsets, commits, state
progress/       how far sources and outputs had come after each batch
control/        a file here is a signal to the running query
events/         events that were held in memory, written down
spool/          lines that hosts have sent
diverted/       rows that were not used, with the reason
feedback/       what goes round loops, from one batch to the next
relay/          under Spark Connect: batches on their way to the process that started the query
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import CheckpointError
from headrace.host.spark.progress_log import ProgressLog
from headrace.io.files import local_path
from headrace.io.formats import Format
from headrace.io.origins import Events, Files
from headrace.stages.cut import Line

__all__ = ["Checkpoint", "difference"]

#: Changes when what is stored can no longer be read by the code before it.
FORMAT = 2


class Checkpoint:
    """The directory, and what is checked about it before a query may use it."""

    def __init__(self, path: str | None) -> None:
        self.temporary = path is None
        local = tempfile.mkdtemp(prefix="headrace-") if path is None else local_path(str(path))
        if local is None:
            raise CheckpointError("a checkpoint must be a path that the driver and every worker can reach", given=path)
        self.path = Path(local).absolute()
        self.control = self.path / "control"
        try:
            self.control.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"the checkpoint cannot be written: {error.strerror}", given=str(self.path)
            ) from error
        self.log = ProgressLog(str(self.path))
        #: Marks the outputs of this query; known once it is claimed.
        self.owner = ""

    def buckets(self, asked: int) -> int:
        """The number of buckets: what it has, if it is a query's already."""
        file = self.path / "headrace.json"
        return int(_read(file).get("buckets", asked)) if file.exists() else asked

    def claim(self, line: Line, buckets: int) -> None:
        """Make it this query's, or check that it is."""
        plan = [f"{line.levels[n.fingerprint]} {n.describe()}" for n in line.nodes]
        mark = hashlib.sha256("\n".join(o.fingerprint for o in line.outputs).encode()).hexdigest()[:16]
        mine: dict[str, Any] = {"format": FORMAT, "fingerprint": mark, "plan": plan, "buckets": buckets}
        file = self.path / "headrace.json"
        if not file.exists():
            self.owner = mine["owner"] = uuid.uuid4().hex
            draft = file.with_suffix(".tmp")
            draft.write_text(json.dumps(mine, indent=1))
            draft.replace(file)
            return
        theirs = _read(file)
        self._check(theirs, mine)
        self.owner = str(theirs["owner"])

    def _check(self, theirs: dict[str, Any], mine: dict[str, Any]) -> None:
        instead = "another checkpoint directory, or delete this one to start afresh"
        if theirs.get("format") != FORMAT:
            raise CheckpointError(
                "the checkpoint was written by another version of Headrace",
                given=f"{self.path}: format {theirs.get('format')}", allowed=f"format {FORMAT}", instead=instead,
            )  # fmt: skip
        if theirs["fingerprint"] != mine["fingerprint"]:
            raise CheckpointError(
                f"the checkpoint belongs to another query:\n{difference(theirs['plan'], mine['plan'])}",
                given=str(self.path),
                instead=instead,
            )

    def spill(self, events: Events) -> Files:
        """Events in memory as files, one a batch, in order."""
        folder = self.path / "events" / str(events).replace(" ", "-").replace("#", "")
        if not folder.exists():
            draft = folder.with_suffix(".tmp")
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
            for number, table in enumerate(events.batches()):
                path = draft / f"{number:06d}.arrow"
                with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                    writer.write_table(table)
                os.utime(path, (number + 1, number + 1))  # Spark takes files in the order of their times
            draft.rename(folder)
        return Files(str(folder), Format("arrow"), label=str(events), holds_stamps=True)

    def signal_end(self) -> None:
        """Tell the running query that its inputs have ended."""
        file = self.control / "end"
        if not file.exists():
            file.with_name("_end").write_text("end")
            file.with_name("_end").rename(file)

    def close(self) -> None:
        """Remove it if it was only for this run."""
        if self.temporary:
            shutil.rmtree(self.path, ignore_errors=True)


def difference(theirs: Sequence[str], mine: Sequence[str]) -> str:
    """The lines of two plans that are not in both: those of the checkpoint with -, those of this query with +."""
    changed = [line for line in difflib.ndiff(theirs, mine) if line[0] in "-+"]
    if not changed:
        return "    their operators read the same; what differs does not show, such as the code of a function"
    return "\n".join(["    - in the checkpoint", "    + this query", *(f"    {line}" for line in changed)])


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text())
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError) as error:
        raise CheckpointError(f"the checkpoint's headrace.json cannot be read: {error}", given=str(file)) from error
