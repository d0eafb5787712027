"""`headrace explain FILE.py[:name]`: what a query does, as it will run, stage by stage."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.text import Text

__all__ = ["command", "find_stream"]

_TARGET = re.compile(r"(?P<file>.+?\.py)(?::(?P<name>\w+))?")


def command(
    target: Annotated[
        str, typer.Argument(metavar="FILE.py[:NAME]", help="A Python file, and the name of a stream in it.")
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the steps as JSON.")] = False,
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
    tables = [table(f"stage {s.level}: {s.rows}" if s.level else f"intake: {s.rows}", s.steps) for s in found]
    Console().print(Group(Text(f"{name}, after the rules {', '.join(rules)}"), *tables))
