"""`headrace verify`: test a query, or the engine, on random streams in any order."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headrace.cli.loading import find_stream
from headrace.display.words import counted
from headrace.errors import IntentError
from headrace.meter import working

if TYPE_CHECKING:
    from headrace.api.stream import Stream
    from headrace.testing.verify import VerificationReport
    from headrace.testing.verify.pool import CaseShare

__all__ = ["command", "load_stream"]

_TENTHS = 10


def command(
    target: Annotated[
        str,
        typer.Argument(
            metavar="[FILE[:NAME]]",
            help="A query of a Python file or a SQL script. Default: test the engine itself.",
        ),
    ] = "",
    *,
    intent: Annotated[
        list[str] | None,
        typer.Option(
            "--intent",
            metavar="TEXT",
            help="What to test: 'equi_join over highly_out_of_order & speculative'. For a query, what its streams are "
            "like: 'eager_ctis & (long | infinite)'. May be repeated.",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", min=0, help="The number of random streams.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="The random seed: the same seed gives the same run.")] = 0,
    case: Annotated[str, typer.Option(metavar="SEED:NUMBER", help="Repeat one case that a run reported.")] = "",
    jobs: Annotated[int, typer.Option(min=1, help="How many processes share the work.")] = os.cpu_count() or 1,
    failures: Annotated[int, typer.Option(min=1, help="Stop after this many failures.")] = 1,
    spark: Annotated[int, typer.Option(min=0, help="Run this many more cases on Spark.")] = 0,
    shape: Annotated[
        str, typer.Option(help="The declared shape of the query's answers: point, interval or edge.")
    ] = "interval",
    order: Annotated[str, typer.Option(help="The declared order of the output: corrections or full.")] = "corrections",
    own: Annotated[bool, typer.Option(help="Also check the query on its own data.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Check that a query gives the right answers for any order and any revisions of its events.

    Its answers must equal batch SQL over the history, its output must keep its promises, and batches, partitions,
    order, restarts and the optimizer must make no difference. On a failure the command prints the smallest stream that
    shows it as a drawn table, with the seed that repeats it; the exit status is 1.
    """
    # Imported here, since `headrace --help` does not need it.
    from headrace.testing.verify import verify_cases
    from headrace.testing.verify.pool import run_shares

    console = Console(highlight=False, soft_wrap=True, stderr=as_json, width=None if sys.stdout.isatty() else 160)
    if target and own and not case:
        _own_data(find_stream(target)[1], console, shape, order)
    if case:
        share = replace(_repeated(target, intent or [], case), shape=shape, order=order)
        _finish(verify_cases(share.make(load_stream)), console, as_json=as_json)
        return
    declared = {"shape": shape, "order": order}
    shares = _shares(target, intent or [], declared, seed, seeds, jobs, failures)
    with _telling(console, seeds) as tell:
        report = run_shares(shares, jobs, tell, load_stream)
    if spark:
        shares = _shares(target, intent or [], declared, seed, spark, 1, failures)
        report.add(_on_spark(shares, spark, console))
    _finish(report, console, as_json=as_json)


def _shares(
    target: str, intents: list[str], declared: dict[str, str], seed: int, cases: int, jobs: int, failures: int
) -> list[CaseShare]:
    """Divide the cases, of the query if one is named, among processes."""
    # Imported here, since `headrace --help` does not need it.
    from headrace.testing.intents import KINDS
    from headrace.testing.verify.pool import shares_of_intents, shares_of_query

    if not target:
        return shares_of_intents(intents or list(KINDS), seed, cases, jobs, failures)
    if len(intents) > 1:
        raise IntentError("a query's streams are described once", given=intents, instead="--intent 'nulls & lulls'")
    shares = shares_of_query(target, (intents or [""])[0], seed, cases, jobs, failures)
    return [replace(share, shape=declared["shape"], order=declared["order"]) for share in shares]


def load_stream(target: str) -> Stream:
    """The stream that a target names; worker processes call this function too."""
    return find_stream(target)[1]


def _own_data(stream: Stream, console: Console, shape: str, order: str) -> None:
    """Compare the live answer over the query's own inputs with the history's."""
    from headrace.testing.verify.own_data import verify_own_data

    with working("its own data, live and as history"):
        rows = verify_own_data(stream.node, shape=shape, order=order)  # type: ignore[arg-type]
    console.print(
        Text("its own data: not checked, since its inputs do not end here or late rows are not stored", style="dim")
        if rows is None
        else Text(f"its own data: the live answer is that of the history, {rows} rows", style="green")
    )


def _repeated(target: str, intents: list[str], case: str) -> CaseShare:
    """The case of this name."""
    from headrace.testing.verify.pool import CaseShare

    seed, _, number = case.partition(":")
    if not (seed.isdigit() and number.isdigit()) or (not target and len(intents) != 1):
        raise IntentError(
            "a case is repeated by its name and its one intent", given=case, instead="--intent equi_join --case 0:17"
        )
    return CaseShare(int(seed), int(number) + 1, int(number), 1, (intents or [""])[0], target)


def _on_spark(shares: list[CaseShare], cases: int, console: Console) -> VerificationReport:
    from headrace.testing.verify.on_spark import verify_on_spark

    with _telling(console, cases, "on Spark") as tell:
        cases_to_run = (case for share in shares for case in share.make(load_stream))
        return verify_on_spark(cases_to_run, tell=tell)


@contextmanager
def _telling(console: Console, cases: int, what: str = "cases") -> Iterator[Callable[[VerificationReport], None]]:
    """Show the progress of a run: a bar on a terminal, a text line for every tenth elsewhere."""
    tenths = 0

    def tell(report: VerificationReport) -> None:
        nonlocal tenths
        work.cases = report.cases
        tenth = report.cases * _TENTHS // max(cases, 1)
        if not console.is_terminal and tenth > tenths:
            tenths = tenth
            console.print(f"{report.cases} of {cases} {what}, {len(report.failures)} failed")

    with working(f"verify {what}") as work:
        work.total_cases = cases
        yield tell


def _finish(report: VerificationReport, console: Console, *, as_json: bool) -> None:
    from headrace.testing.verify.tables import coverage, operators, policies

    if as_json:
        typer.echo(json.dumps(_data(report), indent=2, ensure_ascii=False))
    else:
        for rows in (operators(report), policies(report), coverage(report)):
            if len(rows) > 1:
                console.print(_table(rows))
        for failure in report.failures:
            console.print(Text(str(failure), style="red"))
        checks = sum(report.checks.values())
        summary = f"{counted(report.cases, 'case')}, {counted(report.rows, 'row')}, {counted(checks, 'check')}"
        verdict = (
            "nothing was tested" if not checks else "all passed" if report.ok else f"{len(report.failures)} failed"
        )
        console.print(Text(f"{summary}: {verdict}", "green" if report.ok else "red"))
    if not report.ok:
        sys.exit(1)


def _table(rows: list[list[str]]) -> Table:
    table = Table(*rows[0], box=None, pad_edge=False)
    for row in rows[1:]:
        table.add_row(*row)
    return table


def _data(report: VerificationReport) -> dict[str, Any]:
    return {
        "cases": report.cases,
        "rows": report.rows,
        "checks": dict(report.checks),
        "policies": {name: dict(counts) for name, counts in report.policies.items()},
        "operators": {name: dict(counts) for name, counts in report.operators.items()},
        "covered": {name: dict(counts) for name, counts in report.covered.items()},
        "failures": [vars(failure) for failure in report.failures],
    }
