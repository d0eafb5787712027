"""What a query does, told to people: the plan as it will run, level by level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.operators.accumulators import Layout
from headrace.optimizer import RULES, optimize
from headrace.plan.nodes import Admit, Combine, Diverted, Final, Join, Merge, Node, Orphans, Output, Source
from headrace.stages.cut import Line, cut

__all__ = ["Stage", "Step", "explain", "stages", "steps"]


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


@dataclass(frozen=True)
class Stage:
    """A level of a cut plan: how its rows came there, and its operators, inputs first."""

    level: int
    rows: str
    steps: tuple[Step, ...]


def steps(line: Line) -> list[Step]:
    """The operators of a cut plan, inputs first."""
    numbers = {node.fingerprint: i for i, node in enumerate(line.nodes, 1)}
    return [
        Step(
            level=line.levels[node.fingerprint],
            number=numbers[node.fingerprint],
            operator=node.describe(),
            reads=tuple(numbers[child.fingerprint] for child in node.inputs),
            runs=_runs(node),
            insert_only=node.properties.insert_only,
            state=_state(node),
            cti=_cti(node),
        )
        for node in line.nodes
    ]


def _runs(node: Node) -> str:
    if isinstance(node, Source):
        return "columnar" if node.pushed is None else "columnar, filter in the reader"
    if isinstance(node, (Combine, Merge)):
        layout = Layout(node.aggregate)
        bags = [str(a.expr) for a in layout.arguments.values() if a.bag]
        squared = [str(a.expr) for a in layout.arguments.values() if a.squared]
        how = "columnar, incremental"
        how += f"; keeps the values of {', '.join(bags)}" if bags else ""
        exact = squared and isinstance(node, Merge)  # numbers too large for 64 bits: Python's own, one answer at a time
        return f"{how}; variance of {', '.join(squared)} in exact arithmetic, answer by answer" if exact else how
    return "columnar" if node.linear else "columnar, incremental"


def _state(node: Node) -> str:
    if isinstance(node, Merge):
        return "groups × windows the CTI has not closed"
    if isinstance(node, Final):
        return "events the CTI has not made final"
    if isinstance(node, Join):
        return "events whose end the other side's CTI has not passed"
    if isinstance(node, Admit):
        return "events whose end the CTI has not passed"
    return "none" if node.linear or isinstance(node, Output) else "last sample per key, samples after the CTI"


def _cti(node: Node) -> str:
    if isinstance(node, Merge):
        return "start of the first open window"
    if isinstance(node, Final) and not node.input.properties.settled:
        return "start of the oldest event that waits"
    return "as its input" if node.inputs else "by its policy"


def stages(line: Line) -> list[Stage]:
    """The stages of a cut plan, without what only counts and keeps the rows that no one asked for."""
    shown = [step for step, node in zip(steps(line), line.nodes, strict=True) if not _is_side(node)]
    rows = {
        level: "where the rows are read" if level == 0 else _partitioning(line, level)
        for level in range(line.depth + 1)
    }
    return [Stage(level, rows[level], tuple(s for s in shown if s.level == level)) for level in range(line.depth + 1)]


def _is_side(node: Node) -> bool:
    if isinstance(node, Output):
        return _is_side(node.input)
    return isinstance(node, Orphans) or (isinstance(node, Diverted) and not node.whole)


def explain(outputs: Sequence[Output]) -> str:
    """The optimized plan as text."""
    lines = [f"rules: {', '.join(rule.__name__ for rule in RULES)}"]
    for stage in stages(cut(optimize(outputs))):
        lines.append(f"stage {stage.level}: {stage.rows}" if stage.level else f"intake: {stage.rows}")
        for step in stage.steps:
            reads = f" ← {', '.join(f'#{n}' for n in step.reads)}" if step.reads else ""
            corrects = "" if step.insert_only else "; corrects itself"
            lines.append(f"  #{step.number} {step.operator}{reads}")
            lines.append(f"       runs: {step.runs}; state: {step.state}; CTI: {step.cti}{corrects}")
    return "\n".join(lines)


def _partitioning(line: Line, level: int) -> str:
    if level == 0:
        return "where the rows are read"
    routes = {edge.route for edge in line.edges if edge.to == level}
    together = sorted("in one bucket" if r == () else f"by {', '.join(r)}" for r in routes if r is not None)
    return "rows brought together " + " and ".join(together) if together else "rows wherever they are"
