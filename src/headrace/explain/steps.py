"""List the operators of a plan as it will run, level by level, as data and as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.explain.cost import cost_of_run, cost_of_step, load_of_stage
from headrace.explain.job import in_place, job_of, shuffled_to
from headrace.explain.loops import loop_lines, loop_runs_as
from headrace.operators.registry import code_of, runs_as
from headrace.optimizer import RULES
from headrace.plan.nodes import (
    Diverted,
    Failures,
    Match,
    Node,
    Orphans,
    Output,
    Recurse,
)
from headrace.stages.cut import Line, line_of
from headrace.stages.measures import RunCost

__all__ = ["Stage", "Step", "code", "explain", "explain_line", "stages", "steps"]


@dataclass(frozen=True)
class Step:
    """One operator of a plan, as data."""

    level: int
    number: int
    operator: str
    reads: tuple[int, ...]
    runs: str
    insert_only: bool
    state: str
    cti: str
    delay: str
    advice: tuple[str, ...]
    #: The text lines that draw a loop or a pattern.
    loop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stage:
    """A level of a cut plan: how its rows are partitioned, and its operators, inputs first."""

    level: int
    rows: str
    #: The inputs that are shuffled to this level, and those that stay, since they are partitioned as needed.
    shuffled: tuple[str, ...]
    in_place: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def title(self) -> str:
        """The level and its partitioning, in one text line."""
        return f"stage {self.level}: {self.rows}" if self.level else f"intake: {self.rows}"

    def moves(self) -> list[str]:
        """What is shuffled and what stays, one text line each."""
        found = {"shuffled": self.shuffled, "not shuffled again": self.in_place}
        return [f"{what}: {'; '.join(parts)}" for what, parts in found.items() if parts]


def code(line: Line) -> list[tuple[str, str]]:
    """The code generated for SQL aggregates: a title (the aggregate, and how it runs) and the code."""
    found: dict[str, str] = {}
    for node in line.nodes:
        found |= code_of(node)
    return [(title, text) for title, text in found.items() if text]


def steps(line: Line) -> list[Step]:
    """The operators of a cut plan, inputs first."""
    numbers = {node.fingerprint: i for i, node in enumerate(line.nodes, 1)}
    return [
        Step(
            level=line.levels[node.fingerprint],
            number=numbers[node.fingerprint],
            operator=node.describe(),
            reads=tuple(numbers[child.fingerprint] for child in node.inputs),
            runs=loop_runs_as(node) if isinstance(node, Recurse) else runs_as(node),
            insert_only=node.properties.insert_only,
            **vars(node.liveliness),
            loop=_loop(node, numbers),
        )
        for node in line.nodes
    ]


def _loop(node: Node, numbers: Mapping[str, int]) -> tuple[str, ...]:
    if isinstance(node, Match):
        return tuple(f"│ {line}" for line in node.pattern.automaton.table())
    if not isinstance(node, Recurse):
        return ()
    return loop_lines(node, numbers[node.fingerprint], [numbers[child.fingerprint] for child in node.inputs])


def stages(line: Line) -> list[Stage]:
    """The stages of a cut plan, without the operators that only count and keep diverted rows."""
    found, numbers = [], {node.fingerprint: i for i, node in enumerate(line.nodes, 1)}
    shown = [(step, node) for step, node in zip(steps(line), line.nodes, strict=True) if not _is_side(node)]
    for level in range(line.depth + 1):
        members = [(step, node) for step, node in shown if step.level == level]
        in_place_texts = tuple(filter(None, (in_place(line, node, numbers) for _, node in members)))
        rows, shuffled = _partitioning(line, level), shuffled_to(line, level, numbers)
        found.append(Stage(level, rows, shuffled, in_place_texts, tuple(step for step, _ in members)))
    return found


def _is_side(node: Node) -> bool:
    if isinstance(node, Output):
        return _is_side(node.input)
    return isinstance(node, (Failures, Orphans)) or (isinstance(node, Diverted) and not node.whole)


def explain(outputs: Sequence[Output], *, liveliness: bool = False) -> str:
    """The optimized plan as text; with `liveliness`, how soon answers are final and what would make that sooner."""
    return explain_line(line_of(outputs), liveliness=liveliness)


def explain_line(line: Line, *, liveliness: bool = False, cost: RunCost | None = None) -> str:
    """A cut plan as text; with the `cost` of a run of it, what each operator did."""
    lines = [f"rules: {', '.join(rule.__name__ for rule in RULES)}"]
    lines.append(job_of(line) if cost is None else cost_of_run(cost))
    readers = Counter(number for stage in stages(line) for step in stage.steps for number in step.reads)
    for stage in stages(line):
        lines += [stage.title, *(f"  {move}" for move in [*stage.moves(), *load_of_stage(stage.level, cost)])]
        for step in stage.steps:
            reads = f" ← {', '.join(f'#{n}' for n in step.reads)}" if step.reads else ""
            corrects = "" if step.insert_only else "; corrects itself"
            lines.append(f"  #{step.number} {step.operator}{reads}")
            shared = "" if step.state == "none" or readers[step.number] < 2 else f", for {readers[step.number]} readers"
            lines.append(f"       runs: {step.runs}; state: {step.state}{shared}; CTI: {step.cti}{corrects}")
            lines += [f"       {inner}" for inner in step.loop]
            if cost is not None:
                lines.append(f"       measured: {cost_of_step(line.nodes[step.number - 1], cost)}")
            if liveliness:
                lines.append(f"       CTI delay: {step.delay}")
                lines += [f"       advice: {advice}" for advice in step.advice]
    return "\n".join(lines)


def _partitioning(line: Line, level: int) -> str:
    if level == 0:
        return "where the rows are read"
    routes = {edge.route for edge in line.edges if edge.to == level}
    together = sorted("in one bucket" if r == () else f"by {', '.join(r)}" for r in routes if r is not None)
    return "rows brought together " + " and ".join(together) if together else "rows wherever they are"
