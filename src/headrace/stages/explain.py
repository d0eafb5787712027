"""What a query does, told to people: the plan as it will run, level by level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.operators.aggregate.accumulators import Layout
from headrace.operators.aggregate.snapshots import adds_up
from headrace.operators.ordered.sums import RunSums
from headrace.operators.ordered.tumbling import at_once, goes_by_slots
from headrace.optimizer import RULES
from headrace.plan.nodes import (
    Aggregate,
    Combine,
    Diverted,
    Failures,
    Fold,
    Match,
    Merge,
    Node,
    Orphans,
    Output,
    Over,
    PerWindow,
    Recurse,
    Source,
)
from headrace.plan.ordered import NUMBER, Frame, Ordered
from headrace.stages import patterns
from headrace.stages.cut import Line, line_of
from headrace.stages.job import in_place, job_of, shuffled_to
from headrace.stages.liveliness import liveliness_of
from headrace.stages.loops import how_it_runs, loop_lines

__all__ = ["Stage", "Step", "box", "code", "explain", "stages", "steps"]


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
    #: What is inside, if it is a loop or a pattern.
    loop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stage:
    """A level of a cut plan: how its rows came there, and its operators, inputs first."""

    level: int
    rows: str
    #: What is shuffled on its way there; and what is not, because it is partitioned as it must be.
    shuffled: tuple[str, ...]
    in_place: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def title(self) -> str:
        """The level in one line."""
        return f"stage {self.level}: {self.rows}" if self.level else f"intake: {self.rows}"

    def moves(self) -> list[str]:
        """What is shuffled and what is not, in lines."""
        found = {"shuffled": self.shuffled, "not shuffled again": self.in_place}
        return [f"{what}: {'; '.join(parts)}" for what, parts in found.items() if parts]


def code(line: Line) -> list[tuple[str, str]]:
    """The code that was made for aggregates written in SQL: which aggregate and how it runs, and the code."""
    found: dict[str, str] = {}
    for node in line.nodes:
        slots = at_once(node) if isinstance(node, (Over, Fold)) and goes_by_slots(node) else None
        if slots is not None and isinstance(node, PerWindow):
            pairs = zip(node.modules, slots, strict=True)
            found |= {f"{module}, {box(node)}: native code": getattr(one, "code", "") for module, one in pairs}
        elif isinstance(node, Fold):
            found[f"{node.module}, {box(node)}: {node.folder.language}"] = node.folder.code
        elif isinstance(node, PerWindow):
            made = {f"{module}, over whole windows: Python": getattr(module, "source", "") for module in node.modules}
            found |= made
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
            runs=_runs(node),
            insert_only=node.properties.insert_only,
            **vars(liveliness_of(node)),
            loop=_loop(node, numbers),
        )
        for node in line.nodes
    ]


def _loop(node: Node, numbers: Mapping[str, int]) -> tuple[str, ...]:
    if isinstance(node, Match):
        return patterns.automaton_lines(node)
    if not isinstance(node, Recurse):
        return ()
    return loop_lines(node, numbers[node.fingerprint], [numbers[child.fingerprint] for child in node.inputs])


def _runs(node: Node) -> str:
    if isinstance(node, Source):
        return "columnar" if node.pushed is None else "columnar, filter in the reader"
    if isinstance(node, (Combine, Merge)):
        layout = Layout(node.aggregate)
        bags = [str(a.expr) for a in layout.arguments.values() if a.bag and not a.sketch]
        sketches = [str(a.expr) for a in layout.arguments.values() if a.sketch]
        squared = [str(a.expr) for a in layout.arguments.values() if a.squared]
        how = "columnar, incremental"
        how += f"; keeps the values of {', '.join(bags)}" if bags else ""
        how += f"; keeps a sketch of the values of {', '.join(sketches)}" if sketches else ""
        how += "".join(
            f"; {call} is exact, because its input takes events back"
            for call in node.aggregate.split[0].values()
            if call.function == "approx_distinct" and not layout.insert_only
        )
        exact = squared and isinstance(node, Merge)  # numbers too large for 64 bits: Python's own, one answer at a time
        return f"{how}; variance of {', '.join(squared)} in exact arithmetic, answer by answer" if exact else how
    if isinstance(node, PerWindow):
        return _runs_once(node) if node.final else _runs_windows(node)
    if isinstance(node, Match):
        return patterns.how_it_runs(node)
    if isinstance(node, Recurse):
        return how_it_runs(node)
    return "columnar" if node.linear else "columnar, incremental"


def _runs_once(node: PerWindow) -> str:
    """Where only final answers are asked for."""
    names = ", ".join(module.name for module in node.modules)
    how = f"Python; {names} called with all items of a window" if names else "columnar, all items of a window"
    return f"{how} once, when it is closed"


def _runs_windows(node: PerWindow) -> str:
    """Windows are looked at again when something in them changes; only users' modules run in Python."""
    if isinstance(node, Aggregate) and adds_up(node):
        return "columnar, incremental"
    if isinstance(node.window, Frame):
        language = "Python" if node.modules else "columnar"
        language = node.folder.language if isinstance(node, Fold) else language
        if isinstance(node, (Over, Fold)) and goes_by_slots(node) and at_once(node) is not None:
            language = "native code"
        return f"{language}; {box(node)}, {_kept_up(node)}"
    ordered = isinstance(node.window, Ordered)
    if not node.modules:
        return "columnar, open windows of changed groups anew" if ordered else "columnar, changed windows anew"
    if ordered:
        names = ", ".join(module.name for module in node.modules)
        return f"Python; {names} called for open windows of changed groups with all their items"
    kinds = []
    for module in node.modules:
        if not module.incremental:
            kinds.append(f"{module.name} called for changed windows with all their items")
        elif module.invertible:
            kinds.append(f"{module.name} keeps a state that takes changes in and out (invertible)")
        elif module.order_sensitive:
            kinds.append(f"{module.name}'s state made anew in order (order-sensitive)")
        else:
            kinds.append(f"{module.name} keeps a state that grows, made anew when items are taken back")
    return "Python; " + "; ".join(kinds)


def box(node: PerWindow) -> str:
    """Where figure 2 of the ESL paper has it: how windows come down to the versions of an aggregate (rule 7.5)."""
    frame = node.window
    assert isinstance(frame, Frame)
    if NUMBER in node.schema and frame.tumbles:
        return "panes, a tumble for each (box 4)" if frame.rows is not None else "yield tuples are left (box 5)"
    below = getattr(node.inputs[0], "window", None)
    if NUMBER in node.inputs[0].schema and isinstance(below, Frame) and below.tumbles:
        return "windows made of panes (box 4)"
    if frame.endless:
        return "all that precedes (box 1)"
    if frame.slide is None:
        return "windows (box 2)"
    return "tumbles (box 3)" if frame.tumbles else "windows that slide without panes (box 5)"


def _kept_up(node: PerWindow) -> str:
    """Which way of rule 7.4 is taken."""
    assert isinstance(node.window, Frame)
    assert isinstance(node, (Fold, Over))
    if goes_by_slots(node):
        return "by a state of each slot"
    if isinstance(node, Fold):
        return node.folder.path
    if RunSums.of(node.aggregate) is not None:
        return "by a total of each group" if node.window.endless else "by running sums"
    return "computed anew over each frame"


def stages(line: Line) -> list[Stage]:
    """The stages of a cut plan, without what only counts and keeps the rows that no one asked for."""
    found, numbers = [], {node.fingerprint: i for i, node in enumerate(line.nodes, 1)}
    shown = [(step, node) for step, node in zip(steps(line), line.nodes, strict=True) if not _is_side(node)]
    for level in range(line.depth + 1):
        here = [(step, node) for step, node in shown if step.level == level]
        kept = tuple(filter(None, (in_place(line, node, numbers) for _, node in here)))
        rows, shuffled = _partitioning(line, level), shuffled_to(line, level, numbers)
        found.append(Stage(level, rows, shuffled, kept, tuple(step for step, _ in here)))
    return found


def _is_side(node: Node) -> bool:
    if isinstance(node, Output):
        return _is_side(node.input)
    return isinstance(node, (Failures, Orphans)) or (isinstance(node, Diverted) and not node.whole)


def explain(outputs: Sequence[Output], *, liveliness: bool = False) -> str:
    """The optimized plan as text; with `liveliness`, how soon answers are final and what would make that sooner."""
    lines = [f"rules: {', '.join(rule.__name__ for rule in RULES)}"]
    line = line_of(outputs)
    lines.append(job_of(line))
    for stage in stages(line):
        lines += [stage.title, *(f"  {move}" for move in stage.moves())]
        for step in stage.steps:
            reads = f" ← {', '.join(f'#{n}' for n in step.reads)}" if step.reads else ""
            corrects = "" if step.insert_only else "; corrects itself"
            lines.append(f"  #{step.number} {step.operator}{reads}")
            lines.append(f"       runs: {step.runs}; state: {step.state}; CTI: {step.cti}{corrects}")
            lines += [f"       {inner}" for inner in step.loop]
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
