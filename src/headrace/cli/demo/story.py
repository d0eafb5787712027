"""The steps of the demo: files arrive, answers come and are corrected, Spark is killed and continues, the verdict."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.cli.demo.answers import AnswerFiles
from headrace.cli.demo.child import Child
from headrace.cli.demo.trades import DemoFolder
from headrace.cli.demo.view import View, ViewFacts
from headrace.errors import HostError
from headrace.events import history_diff

__all__ = ["DemoRun", "Verdict", "compare"]

_PACE = 0.5  # seconds between two files
_AHEAD = 3  # files that may wait for an answer
_LOOK = 0.1
_INTO = 0.02  # seconds that a batch runs before it is stopped
_GIVE_UP = 180.0  # seconds without a message from Spark
_DIGITS = 9


@dataclass(frozen=True)
class Verdict:
    """How the live answer compares with the batch answer."""

    rows: int
    difference: str

    @property
    def equal(self) -> bool:
        return not self.difference


def compare(answers: AnswerFiles, place: DemoFolder) -> Verdict:
    """Compare the history in the answer files with the answer of the batch query."""
    live, batch = answers.history(), pq.read_table(place.batch)
    return Verdict(batch.num_rows, history_diff(live, batch, digits=_DIGITS, names=("live", "batch")))


class DemoRun:
    """One run of the demo."""

    def __init__(
        self,
        place: DemoFolder,
        trades: pa.Table,
        files: int,
        view: View,
        crash_after: int | None,
        master: str | None = None,
    ) -> None:
        self.place, self.view, self.crash_after, self.master = place, view, crash_after, master
        bounds = np.linspace(0, len(trades), files + 1).astype(int).tolist()
        self._files = [trades.slice(a, b - a) for a, b in pairwise(bounds)]
        self._child: Child | None = None
        self._delivered_at = 0.0

    @property
    def facts(self) -> ViewFacts:
        return self.view.facts

    def run(self) -> Verdict:
        """Run all steps; on success or failure, no process is left running."""
        try:
            self._start()
            self._answer_until(self.crash_after if self.crash_after is not None else len(self._files) - 1)
            if self.crash_after is not None:
                self._crash()
                self._start()
                self._answer_until(len(self._files) - 1)
            return self._finish()
        finally:
            if self._child is not None:
                self._child.kill()

    # --- steps ----------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        again = self._child is not None
        done = max(self.place.batches("commits"), default=-1)
        self._child = Child(self.place, self.master)
        if again:
            self.view.say(
                f"a new Spark process, {self._child.pid}, starts from the checkpoint; trades keep arriving meanwhile"
            )
        else:
            self.view.say(f"Spark starts in a process of its own, {self._child.pid}: this takes ten to twenty seconds")
        self.view.wait("Spark starts")
        self._wait_for("session")
        self.view.say("the Spark session is there; the query starts")
        self.view.wait("the query starts")
        self._wait_for("started")
        self.view.wait("first batch: Spark starts its Python workers")
        if again:
            self.facts.answered = max(self.facts.answered, min(done + 1, len(self._files)))
            self.view.say(f"it knows that batch {done} was the last one done, and continues with {done + 1}", "green")

    def _answer_until(self, batch: int) -> None:
        """Handle messages until this batch is answered; batches before a restart are answered already."""
        while self.facts.answered <= batch:
            self._wait_for("batch")
            self.view.wait("")

    def _crash(self) -> None:
        """Kill Spark in the middle of a batch."""
        assert self._child is not None
        batch = None
        while batch is None and self.facts.answered < len(self._files):
            self._handle(self._receive())
            batch = self._stopped_at(self._child)
        self._child.kill()
        when = "between two batches" if batch is None else f"in the middle of batch {batch}"
        self.view.say(f"kill -9 of process group {self._child.pid}, {when}", "bold red")

    def _stopped_at(self, child: Child) -> int | None:
        """The batch that Spark is running, with Spark paused so that it cannot finish it; None if it runs no batch."""
        begun = self.place.running_batch
        if begun is None:
            return None
        time.sleep(_INTO)
        child.pause()
        batch = self.place.running_batch
        if batch is None:
            child.resume()
        return batch

    def _finish(self) -> Verdict:
        assert self._child is not None
        self.view.say("all files are answered: nothing more will come, so every window can close")
        self.view.wait("closing the last windows")
        self._child.finish()
        self._wait_for("batch")
        self.view.say("the same question to plain Spark SQL, over the full history of what was not too late")
        self.view.wait("batch query")
        self._wait_for("batch answer")
        self._child.wait()
        self.view.wait("")
        return compare(self.view.answers, self.place)

    # --- messages -------------------------------------------------------------------------------------------------

    def _wait_for(self, what: str) -> dict[str, Any]:
        deadline = time.monotonic() + _GIVE_UP
        while True:
            message = self._receive()
            self._handle(message)
            if message is not None:
                deadline = time.monotonic() + _GIVE_UP
                if message["what"] == what:
                    return message
            elif time.monotonic() > deadline:
                raise HostError(f"Spark has sent no message for {_GIVE_UP:.0f} s", given=str(self.place.log))

    def _receive(self) -> dict[str, Any] | None:
        self._deliver()
        assert self._child is not None
        return self._child.receive(_LOOK)

    def _handle(self, message: dict[str, Any] | None) -> None:
        if message is None:
            return
        if message["what"] in ("failed", "ended"):
            text = message.get("text") or _last_lines(self.place)
            raise HostError(f"the Spark process failed:\n{text}", given=str(self.place.log))
        if message["what"] == "batch":
            self.facts.cti, self.facts.counts, self.facts.state = message["cti"], message["counts"], message["state"]
            self.facts.answered = min(message["number"] + 1, len(self._files))
            self.view.batch(message["number"], self.view.answers.follow())

    def _deliver(self) -> None:
        """Deliver the next file, if it is time and not too many files are waiting."""
        facts, now = self.facts, time.monotonic()
        if (
            facts.delivered < len(self._files)
            and now - self._delivered_at >= _PACE
            and facts.delivered - facts.answered < _AHEAD
        ):
            self.place.deliver(facts.delivered, self._files[facts.delivered])
            facts.delivered, self._delivered_at = facts.delivered + 1, now


def _last_lines(place: DemoFolder) -> str:
    return "\n".join(place.log.read_text(errors="replace").strip().splitlines()[-15:])
