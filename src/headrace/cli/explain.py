"""`headrace explain FILE[:name]`: the plan of a query as it will run, stage by stage."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text
from rich.tree import Tree

from headrace.cli.loading import LoadedQuery, Target, find, find_stream

if TYPE_CHECKING:
    from headrace.explain.steps import Step
    from headrace.plan.nodes import Node

__all__ = ["command", "find_stream"]


def command(
    target: Target,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the steps as JSON.")] = False,
    liveliness: Annotated[bool, typer.Option(help="Show how soon answers are final, with advice.")] = False,
    code: Annotated[bool, typer.Option("--code", help="Also print the code generated for SQL aggregates.")] = False,
) -> None:
    """Show the plan of a query: which operators run where, what state they keep, and when their answers are final.

    A Python file is imported, so its module-level code runs. A SQL script is explained as the one query it runs as:
    operators that several statements share appear once.
    """
    # Imported here, since `headrace --help` does not need it.
    from headrace.api.running import outputs_of
    from headrace.explain.job import job_of
    from headrace.explain.steps import code as code_of
    from headrace.explain.steps import stages
    from headrace.optimizer import RULES
    from headrace.stages.cut import line_of

    loaded = find(target)
    aggregates = _unused(loaded)
    if code and aggregates:
        _print_code([part for module in aggregates for part in module.ways])
        return
    name = loaded.name
    line = line_of(outputs_of(_nodes(loaded, target)))
    plan_stages = stages(line)
    rules = [rule.__name__ for rule in RULES]
    if as_json:
        stage_data = [
            {"stage" if key == "level" else key: value for key, value in asdict(s).items()} for s in plan_stages
        ]
        report = {"stream": name, "rules": rules, "job": job_of(line), "stages": stage_data}
        typer.echo(json.dumps(report, indent=2, ensure_ascii=False))
        return
    tree = Tree(Text(f"{name}, after the rules {', '.join(rules)}\n{job_of(line)}"))
    for stage in plan_stages:
        branch = tree.add(Text.assemble((stage.title, "bold"), *((f"\n{move}", "dim") for move in stage.moves())))
        for step in stage.steps:
            branch.add(label(step, liveliness=liveliness))
    Console().print(tree)
    if code:
        _print_code(code_of(line))


def _unused(loaded: LoadedQuery) -> list[Any]:
    """The aggregates of a script that has no query."""
    if loaded.session is None or loaded.queries or loaded.deliveries:
        return []
    catalog = loaded.session.catalog
    return [catalog.own[name] for name in catalog.aggregates]


def _print_code(parts: list[tuple[str, str]]) -> None:
    console = Console()
    for title, text in parts:
        console.rule(title, align="left")
        if console.is_terminal:
            console.print(Syntax(text, "python", background_color="default", word_wrap=True))
        else:  # unwrapped lines, for other programs
            typer.echo(text)


def _nodes(loaded: LoadedQuery, target: str) -> dict[str, Node]:
    """The output streams, prepared for their sinks; for a script without outputs, its only stream."""
    from headrace.stages.egress import prepared

    if loaded.single:
        return {"out": next(iter(loaded.queries.values())).node}
    nodes = {name: stream.node for name, stream in loaded.queries.items()}
    nodes |= {name: prepared(stream.node, sink) for name, (stream, sink) in loaded.deliveries.items()}
    if not nodes:
        name, stream = find_stream(target)
        return {name: stream.node}
    return nodes


def label(step: Step, *, liveliness: bool = False) -> Text:
    """The text for an operator: its description, how it runs, its state and its CTI."""
    reads = f" ← {', '.join(f'#{number}' for number in step.reads)}" if step.reads else ""
    facts = f"\n   runs {step.runs} · state: {step.state} · CTI: {step.cti}"
    corrects = ("", "") if step.insert_only else (" · corrects itself", "yellow")
    lively = f"\n   CTI delay: {step.delay}" + "".join(f"\n   advice: {advice}" for advice in step.advice)
    more = (lively, "green") if liveliness else ("", "")
    return Text.assemble((f"#{step.number} ", "cyan"), step.operator, (reads, "cyan"), (facts, "dim"), corrects, more)
