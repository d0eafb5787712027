"""Display the demo: a live table on a terminal, plain text lines elsewhere. It computes no answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from headrace.cli.demo.answers import AnswerFiles, BatchUpdate, Correction, Key
from headrace.time import NEG_INFINITY, format_ticks

__all__ = ["View", "ViewFacts", "clock"]

_WINDOWS = 7  # how many windows the table shows
_CORRECTIONS = 3  # how many corrections a plain line shows


@dataclass
class ViewFacts:
    """The facts that the view shows beside the answers."""

    files: int
    delivered: int = 0
    answered: int = 0
    cti: int = NEG_INFINITY
    counts: dict[str, int] = field(default_factory=dict)
    state: dict[str, int] = field(default_factory=dict)

    @property
    def late(self) -> int:
        return self.counts.get("late", 0)


def clock(ticks: int) -> str:
    """The time of day of an instant, to the second."""
    text = format_ticks(ticks, dates=True)
    return text.partition("T")[2][:8] or text


class View:
    """Narration, and below it the current answers."""

    def __init__(
        self, console: Console, answers: AnswerFiles, facts: ViewFacts, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.console, self.answers, self.facts = console, answers, facts
        self._now, self._began = now, now()
        self._busy = ""
        self._spinner = Spinner("dots")
        self._update = BatchUpdate()
        self._live = (
            Live(get_renderable=self._screen, console=console, refresh_per_second=8) if console.is_terminal else None
        )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._busy = ""
        if self._live is not None:
            self._live.stop()

    @property
    def elapsed(self) -> float:
        return self._now() - self._began

    def say(self, text: str, style: str = "") -> None:
        """Print a text line of narration, with the elapsed seconds."""
        line = Text.assemble((f"{self.elapsed:5.1f} s  ", "dim"), (text, style))
        self.console.print(line, soft_wrap=self._live is None)

    def wait(self, for_what: str) -> None:
        """Show what the demo waits for; an empty text ends it."""
        self._busy = for_what

    def batch(self, number: int, update: BatchUpdate) -> None:
        """Show what a batch changed."""
        self._update = update
        if self._live is None:
            self.say(self._line(number, update))

    # --- plain ----------------------------------------------------------------------------------------------------

    def _line(self, number: int, update: BatchUpdate) -> str:
        parts = [f"batch {number:2}", f"CTI {clock(self.facts.cti)}", f"{len(update.fresh)} new answers"]
        if update.corrections:
            shown = [
                f"{c.key[2]} to {clock(c.key[1])}: {c.old:.3f} → {c.new:.3f}" for c in update.corrections[:_CORRECTIONS]
            ]
            more = [f"{len(update.corrections) - _CORRECTIONS} more"] if len(update.corrections) > _CORRECTIONS else []
            parts.append(f"{len(update.corrections)} corrected ({'; '.join([*shown, *more])})")
        if self.facts.late:
            parts.append(f"{self.facts.late} diverted as too late")
        return " · ".join([*parts, _state(self.facts.state)])

    # --- live -----------------------------------------------------------------------------------------------------

    def _screen(self) -> RenderableType:
        parts: list[RenderableType] = []
        if self.answers.current:
            parts += [Text(), self._table(), self._footer()]
        if self._busy:
            self._spinner.update(text=Text(f"{self._busy} · {self.elapsed:.0f} s"))
            parts.append(self._spinner)
        return Group(*parts)

    def _table(self) -> Table:
        current = dict(self.answers.current)  # the loop that fills it is another thread than the one that draws
        symbols = sorted({key[2] for key in current})
        windows = sorted({key[:2] for key in current}, key=lambda w: w[1])[-_WINDOWS:]
        table = Table(title="VWAP of the last 20 s", title_justify="left", title_style="bold")
        table.add_column("up to", no_wrap=True)
        for symbol in symbols:
            table.add_column(symbol, justify="right", no_wrap=True, width=19)
        for window in windows:
            final = window[1] <= self.facts.cti
            label = Text(clock(window[1]) + (" ✓" if final else ""), "dim" if final else "")
            table.add_row(label, *(self._cell(current, (*window, symbol), final=final) for symbol in symbols))
        return table

    def _cell(self, current: dict[Key, float], key: Key, *, final: bool) -> Text:
        if key not in current:
            return Text("–", "dim")
        old = next((c.old for c in self._update.corrections if c.key == key), None)
        if old is not None:
            return Text.assemble((f"{old:.3f}", "red"), (" → ", "dim"), (f"{current[key]:.3f}", "bold yellow"))
        style = "green" if key in self._update.fresh else "dim" if final else ""
        return Text(f"{current[key]:.3f}", style)

    def _footer(self) -> Text:
        facts, answers = self.facts, self.answers
        legend = Text.assemble(("new", "green"), " · ", ("old", "red"), (" → ", "dim"), ("corrected", "bold yellow"))
        legend.append(" · ✓ final: before the CTI, nothing changes any more", "dim")
        where = f"CTI {clock(facts.cti)} · files {facts.answered} of {facts.files} · {_state(facts.state)}"
        late = f"{facts.late} of {facts.counts.get('rows', 0)} rows too late, diverted"
        what = f"{answers.given} answers · {answers.corrected} corrections · {late}"
        return Text("\n").join([legend, Text(where), Text(what)])


def _largest(update: BatchUpdate) -> list[Correction]:
    return sorted(update.corrections, key=lambda c: -abs(c.new - c.old))[:_CORRECTIONS]


def _state(state: dict[str, Any]) -> str:
    return f"state {state.get('rows', 0)} rows, {state.get('bytes', 0) / 1000:.1f} kB"
