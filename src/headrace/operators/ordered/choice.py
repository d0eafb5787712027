"""Which kernel runs a frame that goes from tuple to tuple, and why (rules 7.4 and 7.5)."""

from __future__ import annotations

from headrace.expr import Expr, lit
from headrace.modules import ModuleCall
from headrace.modules.folding import Folding
from headrace.operators.choice import KernelChoice
from headrace.operators.ordered.fold import FoldKernel, Folds, fold_kernel
from headrace.operators.ordered.over import OverKernel
from headrace.operators.ordered.tumbling import Rows, Together, TupleNumbers, Values, at_once
from headrace.plan.nodes import Fold, Over
from headrace.plan.ordered import NUMBER, Frame
from headrace.schema import Schema

__all__ = ["fold_choice", "over_choice"]


def over_choice(node: Over) -> KernelChoice:
    """What keeps as little as possible."""
    if node.by_slots:
        return _by_slots(node)
    kept_up = "computed anew over each frame"
    if node.aggregate.by_sums:
        kept_up = "by a total of each group" if node.frame.endless else "by running sums"
    runs = f"{'Python' if node.modules else 'columnar'}; {box(node)}, {kept_up}"
    if _only_numbers(node):
        return KernelChoice(lambda: FoldKernel(_folds(node, (("one", lit(1)),)), TupleNumbers(node)), runs)
    return KernelChoice(lambda: OverKernel(node), runs, lambda: _sources(node))


def fold_choice(node: Fold) -> KernelChoice:
    """As `over_choice`, of a module that returns rows."""
    parts = at_once(node) if node.by_slots else None
    if parts is not None:
        folding = parts[0]
        return KernelChoice(
            lambda: FoldKernel(fold_kernel(node).folds, folding),
            f"native code; {box(node)}, by a state of each slot",
            lambda: _native(node, parts),
        )
    language, path = node.folder.language, "by a state of each slot" if node.by_slots else node.folder.path
    return KernelChoice(
        lambda: FoldKernel(fold_kernel(node).folds, Rows(node)) if node.by_slots else fold_kernel(node),
        f"{language}; {box(node)}, {path}",
        lambda: {f"{node.module}, {box(node)}: {language}": node.folder.code},
    )


def _by_slots(node: Over) -> KernelChoice:
    parts = at_once(node)
    runs = f"{box(node)}, by a state of each slot"
    folds = _folds(node, _arguments(node))
    if parts is None:
        language = "Python" if node.modules else "columnar"
        return KernelChoice(lambda: FoldKernel(folds, Values(node)), f"{language}; {runs}", lambda: _sources(node))
    return KernelChoice(
        lambda: FoldKernel(folds, Together(node, parts)), f"native code; {runs}", lambda: _native(node, parts)
    )


def _arguments(node: Over) -> tuple[tuple[str, Expr], ...]:
    """What the modules of slots are given, by names that tell modules apart."""
    arguments, calls = [], node.aggregate.split[0].values()
    for number, call in enumerate(calls, 1):
        assert isinstance(call, ModuleCall)
        whose = f"{call.module.name}#{number}." if len(calls) > 1 else ""
        for name, expr in call.mapping.items():
            kind = call.module.fields[name].type
            plain = expr.type(node.input.schema) is kind
            arguments.append((whose + name, expr if plain else expr.cast(kind)))
    return tuple(arguments)


def _folds(node: Over, arguments: tuple[tuple[str, Expr], ...]) -> Folds:
    return Folds(node, arguments, Schema(node.aggregate.schema.fields[len(node.keys) :]), beside=True)


def _only_numbers(node: Over) -> bool:
    """Whether no more is asked than the number of each tuple in its group."""
    frame, calls = node.frame, list(node.aggregate.split[0].values())
    counts = len(calls) == 1 and calls[0].function == "count" and calls[0].argument is None
    return frame.endless and frame.slide is None and counts


# --- in words --------------------------------------------------------------------------------------------------------


def box(node: Over | Fold) -> str:
    """Where figure 2 of the ESL paper has it: how windows come down to the versions of an aggregate (rule 7.5)."""
    frame = node.frame
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


def _sources(node: Over) -> dict[str, str]:
    return {f"{module}, over whole windows: Python": getattr(module, "source", "") for module in node.modules}


def _native(node: Over | Fold, parts: list[Folding]) -> dict[str, str]:
    pairs = zip(node.modules, parts, strict=True)
    return {f"{module}, {box(node)}: native code": getattr(part, "code", "") for module, part in pairs}
