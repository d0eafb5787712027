"""`headrace explain FILE[:name]`: what a query does, as it will run, stage by stage."""

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
    liveliness: Annotated[bool, typer.Option(help="Say how far behind answers are final, with advice.")] = False,
    code: Annotated[bool, typer.Option("--code", help="Also print the code that aggregates in SQL run as.")] = False,
) -> None:
    """Say what a query does: which operators run where, what they remember, and when their answers are final.

    A Python file is imported, so what it does at module level is done. A script of SQL is explained as the one query it
    runs as: what several of its parts read is there once.
    """
    # Here, and not above: `headrace --help` needs none of it.
    from headrace.api.running import outputs_of
    from headrace.explain.job import job_of
    from headrace.explain.steps import code as code_of
    from headrace.explain.steps import stages
    from headrace.optimizer import RULES
    from headrace.stages.cut import line_of

    asked = find(target)
    made = _unused(asked)
    if code and made:
        _print_code([part for module in made for part in module.ways])
        return
    name = asked.name
    line = line_of(outputs_of(_nodes(asked, target)))
    found = stages(line)
    rules = [rule.__name__ for rule in RULES]
    if as_json:
        shown = [{"stage" if key == "level" else key: value for key, value in asdict(s).items()} for s in found]
        whole = {"stream": name, "rules": rules, "job": job_of(line), "stages": shown}
        typer.echo(json.dumps(whole, indent=2, ensure_ascii=False))
        return
    tree = Tree(Text(f"{name}, after the rules {', '.join(rules)}\n{job_of(line)}"))
    for stage in found:
        branch = tree.add(Text.assemble((stage.title, "bold"), *((f"\n{move}", "dim") for move in stage.moves())))
        for step in stage.steps:
            branch.add(label(step, liveliness=liveliness))
    Console().print(tree)
    if code:
        _print_code(code_of(line))


def _unused(asked: LoadedQuery) -> list[Any]:
    """The aggregates that a script makes and no query of it can use, since there is none."""
    if asked.session is None or asked.queries or asked.deliveries:
        return []
    catalog = asked.session.catalog
    return [catalog.own[name] for name in catalog.aggregates]


def _print_code(parts: list[tuple[str, str]]) -> None:
    console = Console()
    for title, text in parts:
        console.rule(title, align="left")
        if console.is_terminal:
            console.print(Syntax(text, "python", background_color="default", word_wrap=True))
        else:  # whole lines, for who reads it by other means
            typer.echo(text)


def _nodes(asked: LoadedQuery, target: str) -> dict[str, Node]:
    """The streams that leave, as their sinks want them; of a script that asks nothing, the one that it makes."""
    from headrace.stages.egress import prepared

    if asked.single:
        return {"out": next(iter(asked.queries.values())).node}
    nodes = {name: stream.node for name, stream in asked.queries.items()}
    nodes |= {name: prepared(stream.node, sink) for name, (stream, sink) in asked.deliveries.items()}
    if not nodes:
        name, stream = find_stream(target)
        return {name: stream.node}
    return nodes


def label(step: Step, *, liveliness: bool = False) -> Text:
    """An operator, and below it what is worth knowing about it."""
    reads = f" ← {', '.join(f'#{number}' for number in step.reads)}" if step.reads else ""
    facts = f"\n   runs {step.runs} · state: {step.state} · CTI: {step.cti}"
    corrects = ("", "") if step.insert_only else (" · corrects itself", "yellow")
    lively = f"\n   CTI delay: {step.delay}" + "".join(f"\n   advice: {advice}" for advice in step.advice)
    more = (lively, "green") if liveliness else ("", "")
    return Text.assemble((f"#{step.number} ", "cyan"), step.operator, (reads, "cyan"), (facts, "dim"), corrects, more)
