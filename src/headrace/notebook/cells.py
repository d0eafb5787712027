"""Headrace SQL in notebooks: `%load_ext headrace`, then cells that begin with `%%headrace`.

    %%headrace busy
    SELECT symbol, count(*) AS n FROM ticks [TUMBLING 1 min] GROUP BY symbol

A notebook has one session: later cells can use what a cell creates, and the streams that are Python variables. The
answer of a cell's last query is shown as a table, in the view of `SET view`, and assigned to the name after the magic,
if there is one: `busy.stream`, `busy.table()`, `busy.to_pandas()`, `busy.plot()`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import pyarrow as pa

from headrace.api.running import Run, run_quietly
from headrace.api.stream import Stream
from headrace.display.html import html_table
from headrace.display.timeline import Timeline
from headrace.errors import HeadraceError, PlanError
from headrace.host.result import Result
from headrace.sql.session import Answers, Delivery, Done, Outcome, ShownTable, SqlSession, Verified, Words
from headrace.sql.views import Cell, Shown, ViewRow, view

__all__ = ["Answer", "Cells", "load_ipython_extension"]


@dataclass(frozen=True, eq=False)
class Answer:
    """The answer of a query, and its stream."""

    name: str
    stream: Stream
    result: Result
    shown: Shown
    #: The losses as text; shown below the table.
    losses: str = ""

    def table(self) -> pa.Table:
        """The history, as an Arrow table."""
        return self.result.cht()

    def to_pandas(self) -> Any:
        """The history, as a frame."""
        return self.table().to_pandas()

    def events(self) -> pa.Table:
        """The physical events, in their order."""
        return self.result.events()

    def plot(self, by: str | Sequence[str] = (), **look: Any) -> Timeline:
        """A timeline of the answer; see `Stream.plot`."""
        return self.result.plot(by, **look)

    def _repr_html_(self) -> str:
        return _html(self.shown) + (f"<p>{escape(self.losses)}</p>" if self.losses else "")

    def __repr__(self) -> str:
        losses = f"\n{self.losses}" if self.losses else ""
        return f"{self.name} ({self.stream.schema}): {self.table().num_rows} rows{losses}"


@dataclass(frozen=True)
class CellOutputs:
    """The outputs of several statements of a cell, one below the other."""

    parts: tuple[Any, ...]

    def _repr_html_(self) -> str:
        return "\n".join(part._repr_html_() for part in self.parts)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.parts))


@dataclass(frozen=True)
class TextOutput:
    """A text, or a table of texts."""

    text: str
    shown: Shown | None = None

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.text)}</pre>" if self.shown is None else _html(self.shown)

    def __repr__(self) -> str:
        return self.text


class Cells:
    """The session of a notebook."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.session = SqlSession()
        self._names = names  # the variables of the notebook
        self._added: set[str] = set()

    def execute(self, line: str, cell: str) -> Any:
        """Execute the statements of a cell; `line`, the text after the magic, is a name for the answer."""
        name = line.strip()
        if name and not name.isidentifier():
            raise PlanError("this is not a name for an answer", given=name, instead="%%headrace answer")
        self._add_streams()
        outcomes = self.session.execute(cell)
        last = next((outcome for outcome in reversed(outcomes) if isinstance(outcome, Answers)), None)
        parts = [part for outcome in outcomes if (part := self._part(outcome, last)) is not None]
        answer = next((part for part in parts if isinstance(part, Answer)), None)
        if name:
            if answer is None:
                raise PlanError("this cell has no answer to name", given=name, instead="SELECT … at its end")
            self._names[name] = answer
        return parts[0] if len(parts) == 1 else CellOutputs(tuple(parts)) if parts else None

    def _add_streams(self) -> None:
        """Add the streams of Python variables under their names, unless statements use those names."""
        streams = self.session.catalog.streams
        for name, value in list(self._names.items()):
            if isinstance(value, Stream) and not name.startswith("_") and (name not in streams or name in self._added):
                self.session.add(name, value)
                self._added.add(name)

    def _part(self, outcome: Outcome, last: Answers | None) -> Any:
        """The output of an outcome; only the last query runs."""
        if isinstance(outcome, Answers):
            return self._answer(outcome) if outcome is last else None
        if isinstance(outcome, Delivery):
            done = self._ran(outcome, sinks={outcome.name: outcome.sink})
            return TextOutput(done.losses()) if done.lost else None
        if isinstance(outcome, ShownTable):
            rows = tuple(tuple(row) for row in outcome.rows)
            return TextOutput(
                "\n".join(" | ".join(row) for row in (outcome.columns, *rows)), _texts(outcome.columns, rows)
            )
        if isinstance(outcome, Verified):
            return TextOutput(f"{outcome.report.cases} cases: all passed")
        assert isinstance(outcome, (Done, Words))
        return TextOutput(outcome.message if isinstance(outcome, Done) else outcome.text)

    def _answer(self, outcome: Answers) -> Answer:
        settings = self.session.catalog.settings
        done = self._ran(outcome)
        result = done.results[outcome.name]
        shown = view(settings["view"], result, settings["rows"], relation=outcome.relation)
        return Answer(outcome.name, outcome.stream, result, shown, done.losses())

    def _ran(self, outcome: Answers | Delivery, **sinks: Any) -> Run:
        done = run_quietly({outcome.name: outcome.stream}, **sinks, **self.session.options())
        self.session.latest = done
        return done


def load_ipython_extension(ipython: Any) -> None:
    """The entry point of `%load_ext headrace`."""
    cells = Cells(ipython.user_ns)

    def headrace(line: str, cell: str) -> Any:
        """Execute statements of Headrace SQL; a name after the magic keeps the answer of the last query."""
        try:
            return cells.execute(line, cell)
        except HeadraceError as error:
            text = str(error)
            # The error shows the place in the text; the Python traceback is not useful.
            vars(error)["_render_traceback_"] = text.splitlines
            raise

    ipython.register_magic_function(headrace, "cell", "headrace")


# --- tables ----------------------------------------------------------------------------------------------------------


def _texts(columns: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> Shown:
    return Shown(columns, tuple(ViewRow(tuple(map(Cell, row))) for row in rows))


def _html(shown: Shown) -> str:
    marked = any(line.mark for line in shown.lines)
    rows = [([escape(line.mark)] if marked else []) + list(map(_cell, line.cells)) for line in shown.lines]
    more = f"<p>and {shown.more} more (SET rows = … shows more)</p>" if shown.more else ""
    return html_table(([""] if marked else []) + list(shown.columns), rows) + more


def _cell(cell: Cell) -> str:
    before = "" if cell.before is None else f"<s>{escape(cell.before)}</s> → "
    return f"{before}{escape(cell.text)}"
