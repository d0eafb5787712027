"""`headrace trace FILE[:name]`: what every operator of a query did, batch by batch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.loading import Target, find_stream
from headrace.cli.replaying import trace_again
from headrace.errors import PlanError

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.expr import Expr
    from headrace.tracing.record import TracedOperator
    from headrace.tracing.traced import TracedRun

__all__ = ["command"]

_TABLES = ("operators", "batches", "edges", "changes")


def command(
    target: Target,
    *,
    operator: Annotated[
        int | None,
        typer.Option(help="Print the changes that this operator gave, by its number; with a question, ask about it."),
    ] = None,
    batches: Annotated[
        str | None,
        typer.Option(metavar="N|N..M", help="Only the changes of these batches, from 0; questions are about the last."),
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="The most changes to print.")] = 20,
    batch_rows: Annotated[
        int | None, typer.Option(min=1, help="The rows of a batch. Default: as the query reads its input.")
    ] = None,
    why: Annotated[
        str | None,
        typer.Option(metavar="CONDITION", help="Print why the one answer with this condition is there: \"k = 'a'\"."),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Run batches of this checkpoint of the query again, as they ran: those of --batches, else all that "
            "are kept. If a program started several streams together: FILE.py:A,B, in their order.",
        ),
    ] = None,
    why_not: Annotated[
        str | None, typer.Option(metavar="CONDITION", help="Print why no answer has this condition: \"k = 'b'\".")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="With --why and --why-not: a time at which the answer lasts, or should."),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Trace a query of this server, by its name, instead of a file."),
    ] = None,
    token: Annotated[str | None, typer.Option(envvar="HEADRACE_TOKEN", help="A token of the server.")] = None,
    why_cti: Annotated[
        bool, typer.Option("--why-cti", help="Print why the CTI of the answer, or of --operator, is where it is.")
    ] = False,
    why_retracted: Annotated[
        str | None, typer.Option(metavar="CONDITION", help="Print why the event with this condition was taken back.")
    ] = None,
    forward: Annotated[
        str | None,
        typer.Option(
            metavar="CONDITION",
            help="Print what became of the input event with this condition: of --operator, by default 1.",
        ),
    ] = None,
    compare: Annotated[
        str | None, typer.Option(metavar="FILE[:NAME]", help="Compare with another query over the same input.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help=f"Write the tables {', '.join(_TABLES)} as Parquet files into this folder.")
    ] = None,
) -> None:
    """Show what every operator of a query did, batch by batch: its changes, its progress and its state.

    The query runs in process, as it is written, to the end of its inputs; with --checkpoint, batches that a started
    query ran are run again. With --server, FILE[:NAME] is the name of a query there, which is computed again over what
    its streams have now, or its --batches as they ran. Without other options, print its operators with their numbers.
    """
    questions: dict[str, str | None] = {
        "--why": why, "--why-not": why_not, "--why-cti": "" if why_cti else None, "--why-retracted": why_retracted,
        "--forward": forward, "--compare": compare,
    }  # fmt: skip
    asked = next((name for name, value in questions.items() if value is not None), None)
    if server is not None:
        for option, value in {"--compare": compare, "--checkpoint": checkpoint}.items():
            if value is not None:
                raise PlanError("this option is not for queries of a server", given=option, instead="its dashboard")
    _check_questions(questions, at)
    if server is not None:
        if batches is not None:
            _batches(batches)
        question = {} if asked is None else {"question": _name(asked), "condition": questions[asked] or None, "at": at}
        options = {"batches": batches, "batch_rows": batch_rows}
        _on_server(server, token, target, options, question, operator=operator, rows=rows, save=save)
        return
    others = {"--operator": operator, "--batches": None if checkpoint is not None else batches}
    _check_options(asked, others, replayed=checkpoint is not None and batch_rows is not None)
    chosen = None if batches is None else _batches(batches)
    last = None if chosen is None else chosen[-1]
    name, trace = _traced(target, batch_rows) if checkpoint is None else trace_again(checkpoint, target, chosen)
    if save is not None:
        _save({table: getattr(trace, table) for table in _TABLES}, save)
    if compare is not None:
        typer.echo(trace.compare(find_stream(compare)[1].trace(batch_rows=batch_rows)))
    elif asked is not None:
        # Imported here, since `headrace --help` does not need it.
        from headrace.tracing.asking import ask

        text = questions[asked] or ""
        found = ask(trace, _name(asked), lambda one: _condition(one, text), operator=operator, batch=last, at=at)
        _print(found, rows)
    elif operator is not None or (chosen is not None and checkpoint is None):
        trace.show(operator, batches=chosen, n=rows)
    else:
        typer.echo(f"{name}: {trace}")


def _traced(target: str, batch_rows: int | None) -> tuple[str, TracedRun]:
    name, stream = find_stream(target)
    return name, stream.trace(batch_rows=batch_rows)


def _on_server(
    url: str, token: str | None, query: str, options: Mapping[str, object], asked: Mapping[str, object], *,
    operator: int | None, rows: int, save: Path | None,
) -> None:  # fmt: skip
    """Print the trace of a query of a server, the changes of an operator, or an answer; save its tables."""
    # Imported here, since `headrace --help` does not need it.
    from headrace.server.client import connect

    with connect(url, token) as client:
        if save is not None:
            _save(dict(zip(_TABLES, client.trace(query, _TABLES, **options), strict=True)), save)
        table = "text" if operator is None or asked else "changes"
        *_, found = client.trace(query, (table,), operator=operator, **options, **asked)
    if asked or table == "changes":
        lines = found.column_names == ["answer"]
        _print("\n".join(found["answer"].to_pylist()) if lines else found, rows)
    else:
        typer.echo(f"{query}: " + "\n".join(found["trace"].to_pylist()))


def _print(answer: str | pa.Table, rows: int) -> None:
    # Imported here, since `headrace --help` does not need it.
    from headrace.io.console import show_table

    if isinstance(answer, str):
        typer.echo(answer)
    else:
        show_table(answer, rows)


def _save(tables: Mapping[str, pa.Table], folder: Path) -> None:
    # Imported here, since `headrace --help` does not need it.
    import pyarrow.parquet as pq

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            pq.write_table(table, folder / f"{name}.parquet")
    except OSError as error:
        raise PlanError(
            f"the tables cannot be written: {error.strerror or error}",
            given=f"--save {folder}",
            allowed="a folder, or the name of a new one",
        ) from error


def _check_questions(questions: Mapping[str, str | None], at: str | None) -> None:
    """Raise if there are several questions, or a time without one that it belongs to."""
    asked = [name for name, value in questions.items() if value is not None]
    if len(asked) > 1:
        raise PlanError("a trace answers one question at a time", given=", ".join(asked), instead=asked[0])
    if at is not None and asked not in (["--why"], ["--why-not"]):
        raise PlanError("a time belongs to a question about an answer", given=f"--at {at}", instead="--why, --why-not")


def _check_options(asked: str | None, options: Mapping[str, int | str | None], *, replayed: bool) -> None:
    """Raise for options that would change nothing; `replayed` batches have the rows with which they ran."""
    if replayed and asked != "--compare":
        raise PlanError("the batches of a checkpoint are those that ran", given="--checkpoint with --batch-rows")
    whole = {"--compare": ("--operator", "--batches"), "--why-retracted": ("--batches",), "--forward": ("--batches",)}
    for option in whole.get(asked or "", ()):
        if options[option] is not None:
            raise PlanError(f"{asked} is about the whole run", given=f"{asked} with {option}", instead=asked or "")


def _name(option: str) -> str:
    """The name of the question that an option asks."""
    return option.removeprefix("--").replace("-", "_")


def _condition(operator: TracedOperator, text: str) -> Expr:
    # Imported here, since `headrace --help` does not need it.
    from headrace.api.conditions import condition_of
    from headrace.api.stream import Stream

    return condition_of(Stream(operator.node), text)


def _batches(text: str) -> range:
    found = re.fullmatch(r"(\d{1,18})(?:\.\.(\d{1,18}))?", text)
    if found is None:
        raise PlanError("these are not numbers of batches", given=text, allowed="N, or N..M", instead="--batches 2..4")
    first, last = int(found[1]), int(found[2] or found[1])
    if last < first:
        raise PlanError("the last batch is before the first", given=text, instead=f"--batches {last}..{first}")
    return range(first, last + 1)
