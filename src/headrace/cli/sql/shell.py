"""The shell: execute statements and commands in order, and show their outcomes.

It does not read the keyboard: `prompt`, a file or a pipe passes it texts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rich.console import Console
from rich.live import Live
from rich.text import Text

from headrace.api.running import Run, run_quietly
from headrace.cli.loading import endless, folder_of, read_text
from headrace.cli.sql.follow import FollowedInProcess, FollowedQuery, FollowedStarted, needs_start
from headrace.cli.sql.pieces import Piece, pieces
from headrace.cli.sql.show import answer, plain_table
from headrace.cli.sql.texts import ELSEWHERE, HELP
from headrace.errors import PlanError, nearest
from headrace.host.result import Result
from headrace.io.sinks import FileSink
from headrace.meter import working
from headrace.sql import syntax as s
from headrace.sql.bind.context import Context
from headrace.sql.parse import following, parse
from headrace.sql.session import Answers, Delivery, Done, Outcome, ShownTable, SqlSession, Verified, Words
from headrace.sql.views import VIEWS, view
from headrace.time import format_ticks

__all__ = ["Command", "ExitShell", "Shell"]

#: What `\\d` lists, as SHOW calls it.
_LISTED = ("STREAMS", "TABLES", "VIEWS")
_POLL = 0.2  # seconds between two polls of a followed query
_SECONDS = 1.0


class ExitShell(Exception):
    """The user quits the shell."""


@dataclass(frozen=True)
class Command:
    """A shell command: its usage, its help text, and how many words may follow."""

    usage: str
    help_text: str
    run: Callable[..., None]
    max_arguments: int = 0
    short: tuple[str, ...] = ()
    min_arguments: int = 0


class Shell:
    """A SQL session and the consoles that show its answers. Errors are raised to the caller."""

    def __init__(self, session: SqlSession, console: Console, errors: Console) -> None:
        self.session, self.console, self.errors = session, console, errors
        #: The executed queries, by name; `\\watch` follows the last one.
        self.queries: dict[str, Answers] = {}
        self.followed: FollowedQuery | None = None
        self._followed_name = ""
        self._open_files: list[Path] = []  # files that are being executed

    def execute(self, text: str) -> None:
        """Execute the pieces of a text."""
        for piece in pieces(text):
            if piece.is_command:
                self._command(piece)
            else:
                self._statement(piece.placed(text))

    def include(self, file: Path) -> None:
        """Execute a file; relative paths in it start from its directory."""
        place = file.resolve()
        if place in self._open_files:
            raise PlanError(
                "this file includes itself", given=str(file), allowed="files that do not include each other in a cycle"
            )
        text, base = read_text(file), self.session.catalog.base
        self.session.catalog.base = file.parent
        self._open_files.append(place)
        try:
            self.execute(text)
        finally:
            self.session.catalog.base = base
            self._open_files.pop()

    def show_error(self, error: BaseException) -> None:
        """Show an error."""
        self.errors.print(Text(str(error), "red"), soft_wrap=True)

    def close(self) -> None:
        """End the followed query."""
        if self.followed is not None:
            self.followed.stop()
            self.followed = None

    # --- statements --------------------------------------------------------------------------------------------------

    def _statement(self, text: str) -> None:
        context = Context(text)
        for statement in parse(text).statements:
            if isinstance(statement, s.Show) and statement.what == "queries":
                self._show(self._queries(statement))
            else:
                self._show(self.session.statement(context, statement))

    def _show(self, outcome: Outcome) -> None:
        self._shown[type(outcome)](self, outcome)

    def _done(self, outcome: Done) -> None:
        self.errors.print(Text(outcome.message, "dim"), soft_wrap=True)

    def _rows(self, outcome: ShownTable) -> None:
        self.console.print(plain_table(outcome.columns, outcome.rows))
        if not outcome.rows:
            self.console.print(Text("(none)", "dim"))

    def _words(self, outcome: Words) -> None:
        self.console.print(Text(outcome.text), soft_wrap=True)

    def _verified(self, outcome: Verified) -> None:
        report = outcome.report
        checks = sum(report.checks.values())
        self.console.print(Text(f"{report.cases} cases, {report.rows} rows, {checks} checks: all passed", "green"))

    def _queries(self, statement: s.Show) -> ShownTable:
        def state(name: str) -> str:
            return "is watched" if self.followed is not None and name == self._followed_name else ""

        rows = tuple((name, str(query.stream.schema), state(name)) for name, query in self.queries.items())
        return ShownTable(statement, ("query", "columns", ""), rows)

    def _answers(self, outcome: Answers) -> None:
        self.queries.pop(outcome.name, None)
        self.queries[outcome.name] = outcome
        if inputs := endless([outcome.stream]):
            self.console.print(Text(f"{', '.join(inputs)} has no end: \\watch follows the answers of {outcome.name}"))
            return
        with working(f"{outcome.name}: on {self._setting('host')}"):
            run = run_quietly({outcome.name: outcome.shown}, **self.session.options())
        self.console.print(answer(self._view(run.results[outcome.name], outcome)))
        self._show_losses(run)

    def _delivery(self, outcome: Delivery) -> None:
        options, sink = self.session.options(), outcome.sink
        where = sink.path if isinstance(sink, FileSink) else "the console"
        if options["host"] == "spark" and self._setting("checkpoint") is not None and isinstance(sink, FileSink):
            options |= {"checkpoint": self._checkpoint(Path(sink.path).name), "finish": False}
        with working(f"{where}: on {self._setting('host')}"):
            run = run_quietly({outcome.name: outcome.stream}, sinks={outcome.name: sink}, **options)
        self.errors.print(Text(f"written to {where}", "dim"), soft_wrap=True)
        self._show_losses(run)

    def _show_losses(self, run: Run) -> None:
        self.session.latest = run
        if run.lost:
            self.errors.print(Text(f"{run.losses()}\nSHOW DIVERTED lists them", "dim"), soft_wrap=True)

    def _setting(self, name: str) -> Any:
        return self.session.catalog.settings[name]

    def _checkpoint(self, name: str) -> str:
        return f"{self.session.catalog.place(self._setting('checkpoint')).rstrip('/')}/{folder_of(name)}"

    def _view(self, result: Result, query: Answers, *, newest: bool = False) -> Any:
        kind, rows, order = self._setting("view"), self._setting("rows"), () if newest else query.order
        return view(kind, result, rows, newest=newest, relation=query.relation, order=order)

    # --- commands ----------------------------------------------------------------------------------------------------

    def _command(self, piece: Piece) -> None:
        """Run a command. As in psql, a semicolon may follow it."""
        name, *arguments = piece.text.removeprefix("\\").rstrip("; \t").split() or [""]
        key = name if name in self.commands else name.lower()
        command = self.commands.get(key) or next((c for c in self.commands.values() if key in c.short), None)
        if command is None:
            close = nearest(name, self.commands, least=0.7)
            raise PlanError(
                f"there is no command \\{name}",
                allowed=", ".join(f"\\{command_name}" for command_name in self.commands),
                instead=ELSEWHERE.get(name) or (f"\\{close}" if close else "\\help"),
            )
        if len(arguments) < command.min_arguments:
            raise PlanError(f"\\{name} needs another word", allowed=command.usage)
        if len(arguments) > command.max_arguments:
            raise PlanError(f"\\{name} takes fewer words", allowed=command.usage)
        command.run(self, *arguments)

    def _help(self, *_: str) -> None:
        rows = [(command.usage, command.help_text) for command in self.commands.values()]
        self.console.print(plain_table(("command", "what it does"), rows))
        self.console.print(Text(HELP))

    def _quit(self) -> None:
        raise ExitShell

    def _clear(self) -> None:
        self.console.clear()

    def _list(self, name: str | None = None) -> None:
        """The streams and tables; or the columns of one, and where its rows come from."""
        if name is not None:
            self._statement(f"DESCRIBE {name}")
        allowed = following("SHOW ")
        rows = []
        for kind in (kind for kind in _LISTED if kind in allowed):
            for outcome in self.session.execute(f"SHOW {kind}"):
                assert isinstance(outcome, ShownTable)
                rows += [(row[0], kind.lower()[:-1], *row[1:]) for row in outcome.rows]
        if name is not None:
            origins = [row[3] for row in rows if row[0].lower() == name.strip('"`').lower() and len(row) > 3]
            if origins:
                self.console.print(Text(f"from {origins[0]}", "dim"), soft_wrap=True)
        elif rows:
            self.console.print(plain_table(("name", "kind", "columns"), [row[:3] for row in rows]))
        else:
            self.console.print(Text("nothing exists yet: CREATE STREAM …;", "dim"))

    def _list_streams(self) -> None:
        self._statement("SHOW STREAMS")

    def _list_tables(self) -> None:
        self._statement("SHOW TABLES")

    def _list_functions(self) -> None:
        self._statement("SHOW FUNCTIONS")

    def set_view(self, kind: str | None = None) -> None:
        """Set the view of answers, or print the current one."""
        if kind is not None:
            self.session.execute(f"SET view = '{kind.replace(chr(39), '')}'")
        else:
            self.console.print(Text(f"view = {self._setting('view')}, of auto, {', '.join(VIEWS)}", "dim"))

    def _include(self, name: str) -> None:
        self.include(self.session.catalog.base / Path(name).expanduser())

    def _watch(self, seconds: str | None = None, times: str | None = None) -> None:
        pause, updates = _number(seconds, _SECONDS), None if times is None else int(_number(times, 1))
        if updates is None and not self.console.is_terminal:
            raise PlanError(
                "there is no terminal to watch on",
                given="\\watch",
                allowed="a terminal",
                instead=f"\\watch {pause:g} 1",
            )
        name, followed = self._begin()
        self.session.latest = followed.run
        try:
            self._update_until(name, followed, pause, updates)
        except KeyboardInterrupt:
            self._end_watch(name)
        except BaseException:
            self.close()
            raise
        else:
            self._end_watch(name)

    def _begin(self) -> tuple[str, FollowedQuery]:
        """The query to watch: the last one, started unless it is followed already."""
        if not self.queries:
            raise PlanError("there is nothing to watch", given="\\watch", allowed="after a query", instead="SELECT …;")
        name, query = list(self.queries.items())[-1]
        if self.followed is not None and name == self._followed_name:
            return name, self.followed
        self.close()
        options = self.session.options()
        spark = options.pop("host") == "spark"
        if spark or needs_start(query.stream):
            if self._setting("checkpoint") is not None:
                options["checkpoint"] = self._checkpoint(name)
            with working(f"{name}: starting{' on Spark' if spark else ''}"):
                options["host"] = "spark" if spark else "local"
                self.followed = FollowedStarted(query.stream, name=name, **options)
        else:
            self.followed = FollowedInProcess(query.stream, options.get("buckets", 1))
        self._followed_name = name
        return name, self.followed

    def _update_until(self, name: str, followed: FollowedQuery, pause: float, updates: int | None) -> None:
        with Live(console=self.console, auto_refresh=False, vertical_overflow="crop") as live:
            next_look = time.monotonic()
            while updates is None or updates > 0:
                followed.poll()
                if time.monotonic() >= next_look:
                    shown = self._view(followed.result, self.queries[name], newest=True)
                    notes = "".join(f"\n{note}" for note in followed.notes())
                    live.update(answer(shown, f" · {name} · CTI {_cti(followed.result)}{notes}"), refresh=True)
                    next_look += pause
                    updates = None if updates is None else updates - 1
                time.sleep(min(_POLL, pause))

    def _end_watch(self, name: str) -> None:
        if isinstance(self.followed, FollowedStarted):
            self.console.print(Text(f"{name} keeps running: \\watch shows it again, \\stop ends it", "dim"))
        else:
            self.close()

    def _stop(self) -> None:
        if self.followed is None:
            raise PlanError("nothing is running", given="\\stop", allowed="after \\watch, on Spark or over tables")
        self.close()
        self.console.print(Text(f"{self._followed_name} was stopped", "dim"))

    _shown: ClassVar[Mapping[type[Outcome], Callable[[Any, Any], None]]] = {
        Done: _done,
        ShownTable: _rows,
        Words: _words,
        Verified: _verified,
        Answers: _answers,
        Delivery: _delivery,
    }
    commands: ClassVar[Mapping[str, Command]] = {
        "help": Command("\\help, \\?", "this list", _help, 9, ("h", "?")),
        "d": Command("\\d [NAME]", "the streams and tables; the columns of one", _list, 1, ("d+",)),
        "ds": Command("\\ds", "the streams, as SHOW STREAMS", _list_streams),
        "dt": Command("\\dt", "the tables, as SHOW TABLES", _list_tables),
        "df": Command("\\df", "the functions, as SHOW FUNCTIONS", _list_functions),
        "view": Command("\\view [rows|events|changes|history]", "how answers are shown, as SET view = …", set_view, 1),
        "watch": Command("\\watch [SECONDS]", "follow the last query, in a table kept up to date", _watch, 2, ("w",)),
        "stop": Command("\\stop", "end the query that runs on Spark", _stop),
        "i": Command("\\i FILE", "execute a file; relative paths in it start from its place", _include, 1, ("ir",), 1),
        "clear": Command("\\clear", "clear the screen", _clear),
        "quit": Command("\\quit, \\q", "quit, as Ctrl-D does", _quit, short=("q", "exit")),
    }


def _cti(result: Result) -> str:
    if not result.batches:
        return "-∞"
    cti = result.batches[-1][1].cti
    return format_ticks(cti, dates=result.dates)


def _number(text: str | None, default: float) -> float:
    try:
        value = default if text is None else float(text)
    except ValueError:
        value = 0.0
    if value <= 0:
        raise PlanError("this must be a number above 0", given=text, instead="\\watch 2")
    return value
