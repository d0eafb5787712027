"""`headrace explain FILE.py[:name]`: what a query does, as it will run, stage by stage."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from headrace.cli.loading import load_file
from headrace.errors import PlanError, nearest

if TYPE_CHECKING:
    from headrace.api.stream import Stream
    from headrace.stages.explain import Step

__all__ = ["command", "find_stream"]

_TARGET = re.compile(r"(?P<file>.+?\.py)(?::(?P<name>\w+))?")


def command(
    target: Annotated[
        str, typer.Argument(metavar="FILE.py[:NAME]", help="A Python file, and the name of a stream in it.")
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the steps as JSON.")] = False,
    liveliness: Annotated[bool, typer.Option(help="Say how far behind answers are final, with advice.")] = False,
) -> None:
    """Say what a query does: which operators run where, what they remember, and when their answers are final.

    The file is imported, so what it does at module level is done.
    """
    # Here, and not above: `headrace --help` needs none of it.
    from headrace.api.running import outputs_of
    from headrace.optimizer import RULES, optimize
    from headrace.stages.cut import cut
    from headrace.stages.explain import stages

    name, stream = find_stream(target)
    line = cut(optimize(outputs_of({"out": stream.node})))
    found = stages(line)
    rules = [rule.__name__ for rule in RULES]
    if as_json:
        shown = [{"stage": s.level, "rows": s.rows, "steps": [asdict(step) for step in s.steps]} for s in found]
        typer.echo(json.dumps({"stream": name, "rules": rules, "stages": shown}, indent=2, ensure_ascii=False))
        return
    tree = Tree(Text(f"{name}, after the rules {', '.join(rules)}"))
    for stage in found:
        branch = tree.add(
            Text(f"stage {stage.level}: {stage.rows}" if stage.level else f"intake: {stage.rows}", "bold")
        )
        for step in stage.steps:
            branch.add(label(step, liveliness=liveliness))
    Console().print(tree)


def label(step: Step, *, liveliness: bool = False) -> Text:
    """An operator, and below it what is worth knowing about it."""
    reads = f" ← {', '.join(f'#{number}' for number in step.reads)}" if step.reads else ""
    facts = f"\n   runs {step.runs} · state: {step.state} · CTI: {step.cti}"
    corrects = ("", "") if step.insert_only else (" · corrects itself", "yellow")
    lively = f"\n   CTI delay: {step.delay}" + "".join(f"\n   advice: {advice}" for advice in step.advice)
    more = (lively, "green") if liveliness else ("", "")
    return Text.assemble((f"#{step.number} ", "cyan"), step.operator, (reads, "cyan"), (facts, "dim"), corrects, more)


def find_stream(target: str) -> tuple[str, Stream]:
    """The stream that `FILE.py:NAME` names, or the only one at the top level of `FILE.py` that no other one reads."""
    match = _TARGET.fullmatch(target)
    if match is None:
        raise PlanError("this names no Python file", given=target, allowed="FILE.py or FILE.py:NAME")
    streams = _streams(load_file(Path(match["file"])))
    if match["name"] is not None:
        return match["name"], _named(match["name"], streams, match["file"])
    if not streams:
        raise PlanError("no stream is at the top level of this file", given=target, instead="vwap = ticks.where(...)")
    last = {name: stream for name, stream in streams.items() if not _is_read(stream, streams)}
    if len({stream.node for stream in last.values()}) == 1:
        return next(iter(last.items()))
    names = ", ".join(last)
    raise PlanError("several streams are in this file", given=names, instead=f"{match['file']}:{next(iter(last))}")


def _is_read(stream: Stream, streams: dict[str, Stream]) -> bool:
    """Whether another stream is made from this one."""
    from headrace.plan.nodes import walk

    others = [other.node for other in streams.values() if other.node != stream.node]
    return any(stream.node in walk(other) for other in others)


def _named(name: str, streams: dict[str, Stream], file: str) -> Stream:
    if name in streams:
        return streams[name]
    close = nearest(name, streams)
    instead = f"{file}:{close}" if close else ""
    raise PlanError(
        f"there is no stream {name!r} in {file}",
        given=name,
        allowed=", ".join(streams) or "(no streams)",
        instead=instead,
    )


def _streams(module: ModuleType) -> dict[str, Stream]:
    from headrace.api.stream import Stream

    return {name: value for name, value in vars(module).items() if isinstance(value, Stream)}
