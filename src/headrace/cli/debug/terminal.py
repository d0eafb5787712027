"""The terminal debugger: reads commands, moves a session, and prints what is there."""

from __future__ import annotations

import cmd
import sys
from collections.abc import Callable
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.compute as pc
import typer

from headrace.api.conditions import condition_of
from headrace.api.stream import Stream
from headrace.cli.debug.texts import HELP, SHORT, help_lines
from headrace.cli.debug.words import after_number, edit_of, number_of, split_at, split_when
from headrace.cli.loading import find_stream
from headrace.display.words import clipped, counted
from headrace.errors import HeadraceError, PlanError, nearest
from headrace.expr import Expr
from headrace.io.console import show_table
from headrace.tracing.debugging import DebugSession
from headrace.tracing.stepping import Pause

__all__ = ["Terminal"]

#: An empty line repeats these.
_REPEATED = ("batch", "operator", "event")


class Terminal(cmd.Cmd):
    """Commands over a session, each a method; `texts.py` has their help."""

    def __init__(self, name: str, session: DebugSession, rows: int, commands: TextIO | None = None) -> None:
        self.interactive = commands is None and sys.stdin.isatty()
        super().__init__(stdin=commands)
        self.use_rawinput = self.interactive
        self.prompt = f"({name}) " if self.interactive else ""
        self.intro = f"{name}: {session.pause}. `help` lists the commands." if self.interactive else None
        self.session, self.rows = session, rows
        #: Whether a command has failed.
        self.failed = False

    # --- reading -----------------------------------------------------------------------------------------------------

    def onecmd(self, line: str) -> bool:
        """Execute a line; an error is shown, and ends the command only."""
        try:
            return bool(super().onecmd(_expanded(line)))
        except HeadraceError as error:
            self.failed = True
            typer.echo(str(error))
        except KeyboardInterrupt:
            typer.echo("interrupted")
        return False

    def emptyline(self) -> bool:
        """Repeat a step."""
        return self.onecmd(self.lastcmd) if self.interactive and self.lastcmd in _REPEATED else False

    def default(self, line: str) -> None:
        """A command that is not there."""
        word = line.split(maxsplit=1)[0]
        near = nearest(word, HELP)
        raise PlanError("there is no such command", given=word, allowed="help lists them", instead=near or "help")

    def completenames(self, text: str, *_: Any) -> list[str]:
        """The commands that begin with a text."""
        return [name for name in HELP if name.startswith(text)]

    # --- steps -------------------------------------------------------------------------------------------------------

    def do_batch(self, _: str) -> None:
        """Run a batch."""
        self._go(self.session.step_batch)

    def do_operator(self, _: str) -> None:
        """Run an operator."""
        self._go(self.session.step_operator)

    def do_event(self, _: str) -> None:
        """Run a row."""
        self._go(self.session.step_event)

    def do_run(self, _: str) -> None:
        """Run to the next breakpoint."""
        self._go(self.session.run)

    def do_into(self, _: str) -> None:
        """Python's debugger, inside of a call."""
        self._go(self.session.step_into)

    def do_restart(self, _: str) -> None:
        """Begin again."""
        self._go(self.session.restart)

    def _go(self, step: Callable[[], Pause]) -> None:
        pause = step()
        typer.echo(pause)
        for hit in pause.hits:
            if len(hit.changes):
                show_table(hit.rows, self.rows)

    # --- breakpoints -------------------------------------------------------------------------------------------------

    def do_break(self, text: str) -> None:
        """Set a breakpoint."""
        word, _, rest = text.strip().partition(" ")
        session, number = self.session, number_of(rest) if rest and word in ("retraction", "late") else None
        if word == "retraction":
            found = session.break_at_retraction(number)
        elif word == "late":
            found = session.break_at_late(number)
        elif word == "cti":
            operator, _, time = rest.strip().partition(" ")
            found = session.break_at_cti(number_of(operator), time.strip())
        elif word == "call":
            found = session.break_at_call(rest.strip())
        else:
            before, when = split_when(rest if word == "in" else text)
            found = session.break_at(number_of(before), when, on="input" if word == "in" else "output")
        typer.echo(found)

    def do_breakpoints(self, _: str) -> None:
        """List breakpoints."""
        typer.echo("\n".join(map(repr, self.session.breakpoints)) or "no breakpoints")

    def do_delete(self, text: str) -> None:
        """Delete a breakpoint."""
        self.session.delete(number_of(text, "breakpoint"))

    # --- looking -----------------------------------------------------------------------------------------------------

    def do_where(self, _: str) -> None:
        """Where the run is."""
        pause, trace = self.session.pause, self.session.trace
        typer.echo(pause)
        now = trace.batches.filter(pc.equal(trace.batches["batch"], len(trace.record.batches) - 1)).to_pylist()
        for row in trace.operators.to_pylist():
            here = pause.operator is not None and pause.operator.number == row["operator"]
            reads = f" ← {', '.join(f'#{number}' for number in row['inputs'])}" if row["inputs"] else ""
            given = counted(now[row["operator"] - 1]["changes_out"], "change")
            typer.echo(f"{'→' if here else ' '} #{row['operator']} {clipped(row['text'], 80)}{reads}: {given}")

    def do_in(self, text: str) -> None:
        """The changes into an operator."""
        number, batches = self._operator_and_batch(text)
        for producer in self.session.trace.record.operator(number).inputs:
            self._show(self.session.trace.of(producer, batches=batches))

    def do_out(self, text: str) -> None:
        """The changes of an operator."""
        number, batches = self._operator_and_batch(text)
        self._show(self.session.trace.of(number, batches=batches))

    def do_history(self, text: str) -> None:
        """The history of an operator."""
        number, rest = after_number(text)
        batch = number_of(rest, "batch") if rest else None
        self._show(self.session.trace.history(number, batch))

    def do_state(self, text: str) -> None:
        """The state of an operator."""
        number, rest = after_number(text)
        batch = number_of(rest, "batch") if rest else None
        tables = self.session.trace.state(number_of(text) if number is None else number, batch)
        for name, table in tables.items():
            typer.echo(f"{name}:")
            self._show(table)
        if not tables:
            typer.echo("nothing")

    def do_why(self, text: str) -> None:
        """Why an event is there."""
        text, at = split_at(text)
        number, condition = self._condition(text)
        typer.echo(self.session.trace.why(condition, operator=number, at=at))

    def do_whynot(self, text: str) -> None:
        """Why an event is not there."""
        text, at = split_at(text)
        number, condition = self._condition(text)
        typer.echo(self.session.trace.why_not(condition, operator=number, at=at))

    def do_retracted(self, text: str) -> None:
        """Why an event was taken back."""
        number, condition = self._condition(text)
        typer.echo(self.session.trace.why_retracted(condition, operator=number))

    def do_cti(self, text: str) -> None:
        """Why a CTI is where it is."""
        number, rest = after_number(text)
        typer.echo(self.session.trace.why_cti(number, number_of(rest, "batch") if rest else None))

    def do_forward(self, text: str) -> None:
        """What became of an input event."""
        number = after_number(text)[0] or 1
        _, condition = self._condition(text, number)
        self._show(self.session.trace.forward(condition, operator=number))

    # --- changes -----------------------------------------------------------------------------------------------------

    def do_edit(self, text: str) -> None:
        """Change an input."""
        number, edit = edit_of(text)
        self._go(lambda: self.session.change_input(number, **edit))

    def do_query(self, text: str) -> None:
        """Change the query."""
        _, stream = find_stream(text.strip())
        self._go(lambda: self.session.change_query(stream))

    def do_compare(self, _: str) -> None:
        """Compare with the run without changes."""
        typer.echo(self.session.original.compare(self.session.trace))

    # --- the rest ----------------------------------------------------------------------------------------------------

    def do_help(self, arg: str) -> None:
        """List the commands."""
        name = SHORT.get(arg.strip(), arg.strip())
        if name and name not in HELP:
            self.default(name)
        typer.echo("\n".join(help_lines(name or None)))

    def do_quit(self, _: str) -> bool:
        """Leave."""
        return True

    do_EOF = do_quit  # noqa: N815 - the name that `cmd` has for the end of the input

    def _show(self, table: pa.Table) -> None:
        show_table(table, self.rows)

    def _operator_and_batch(self, text: str) -> tuple[int, range]:
        number, rest = after_number(text)
        trace = self.session.trace
        last = len(trace.record.batches) - 1
        batch = trace.record.number(number_of(rest, "batch") if rest else last)
        return (number_of(text) if number is None else number), range(batch, batch + 1)

    def _condition(self, text: str, default: int | None = None) -> tuple[int | None, Expr]:
        number, rest = after_number(text)
        record = self.session.trace.record
        chosen = default if number is None else number
        operator = record.output if chosen is None else record.operator(chosen)
        return number, condition_of(Stream(operator.node), rest)


def _expanded(line: str) -> str:
    """A line with the whole name of its command."""
    word, space, rest = line.strip().partition(" ")
    return "" if word.startswith(("--", "#")) else f"{SHORT.get(word, word)}{space}{rest}"
