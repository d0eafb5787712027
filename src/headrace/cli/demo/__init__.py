"""`headrace demo`: answers that correct themselves, survive a crash of Spark, and agree with batch SQL."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from headrace.errors import HeadraceError, PlanError

if TYPE_CHECKING:
    from headrace.cli.demo.story import Verdict
    from headrace.cli.demo.view import View

__all__ = ["command"]

_FILES = 12
_TERMINATED = 143  # the exit status that shells report after SIGTERM


def command(
    *,
    events: Annotated[int, typer.Option(min=200, max=1_000_000, help="The number of trades.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same trades.")] = 7,
    crash: Annotated[
        bool, typer.Option("--crash/--no-crash", help="Kill Spark in the middle and let the query continue.")
    ] = True,
    keep: Annotated[
        Path | None, typer.Option(help="Keep trades, answers and checkpoint in this new or empty directory.")
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="HEADRACE_MASTER",
            help="A Spark master or Connect URL. Default: every core of this machine.",
        ),
    ] = None,
) -> None:
    """Watch a query answer early, correct itself, survive a crash, and agree with batch SQL. Takes about a minute."""
    console = Console(highlight=False)
    _check_crash(master, crash=crash)
    where = escape(f"at {master}") if master else "on this machine"
    title = f"[bold]Headrace[/bold] answers early and corrects itself. Watch it do so, on Spark, {where}."
    console.print(title, soft_wrap=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    root = _directory(keep)
    remove = keep is None
    try:
        agreed = _run(console, root, events, seed, crash=crash, master=master)
        remove = remove and agreed
    except HeadraceError:
        remove = False  # keep Spark's log for the user
        raise
    finally:
        shutil.rmtree(root if remove else root / "spark", ignore_errors=True)
        if not remove:
            console.print(f"Trades, answers, diverted rows and Spark's log are in {root}", soft_wrap=True)
    if not agreed:
        raise typer.Exit(1)


def _check_crash(master: str | None, *, crash: bool) -> None:
    if crash and master is not None and master.startswith(("sc://", "remote:sc://")):
        raise PlanError(
            "the demo cannot kill a Connect server that it has not started",
            given=master,
            allowed="another master, or no crash",
            instead=f"headrace demo --no-crash --master {master}",
        )


def _directory(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="headrace-demo-"))
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise PlanError("the directory to keep the demo in must be new or empty", given=str(keep))
    keep.mkdir(parents=True, exist_ok=True)
    return keep.absolute()


def _run(console: Console, root: Path, events: int, seed: int, *, crash: bool, master: str | None) -> bool:
    # Imported here, since `headrace --help` does not need it.
    from headrace.cli.demo.answers import AnswerFiles
    from headrace.cli.demo.story import DemoRun
    from headrace.cli.demo.trades import DemoFolder, trades
    from headrace.cli.demo.view import View, ViewFacts
    from headrace.io.generator import facts

    place = DemoFolder(root)
    place.input.mkdir()
    table = trades(events, seed)
    counts = facts(table)
    console.print(
        f"{events} trades of 3 symbols, {counts.rows} rows with their corrections, will arrive as {_FILES} files:\n"
        f"{counts.out_of_order} rows out of order, {counts.revised} prices wrong at first, and {counts.late} rows "
        "later than the 5 s that the query waits.\nThe query:\n", soft_wrap=True
    )  # fmt: skip
    _show_query(console)
    with View(console, AnswerFiles(place), ViewFacts(_FILES)) as view:
        story = DemoRun(place, table, _FILES, view, crash_after=_FILES // 2 - 1 if crash else None, master=master)
        verdict = story.run()
    _print_verdict(console, view, verdict)
    return verdict.equal


def _show_query(console: Console) -> None:
    """Print the source of the query."""
    import inspect

    from rich.syntax import Syntax

    from headrace.cli.demo.trades import vwap

    lines = inspect.cleandoc(inspect.getsource(vwap).split('"""')[2]).splitlines()
    code = "\n".join(f"    {line}" for line in lines if "# fmt" not in line)
    if console.is_terminal:
        console.print(Syntax(code, "python", theme="ansi_dark", background_color="default"), "")
    else:
        console.print(code, "", sep="\n", markup=False, soft_wrap=True)


def _print_verdict(console: Console, view: View, verdict: Verdict) -> None:
    counts, answers = view.facts.counts, view.answers
    console.print(
        f"\n{answers.given} answers were given, and {answers.corrected} times one of them was corrected. "
        f"Of {counts['rows']} rows\n{counts['accepted']} were accepted and {counts['diverted']} diverted, each with "
        "the reason.", soft_wrap=True
    )  # fmt: skip
    if verdict.equal:
        console.print(
            "[bold green]Equal.[/bold green] The live answer and the batch answer over the full history are the same "
            f"{verdict.rows} rows. ({view.elapsed:.0f} s)", soft_wrap=True
        )  # fmt: skip
    else:
        console.print("[bold red]Different.[/bold red] The live answer is not the batch answer:")
        console.print(verdict.difference, markup=False, soft_wrap=True)
