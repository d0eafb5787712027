"""The choice of the kernel for a frame that goes from tuple to tuple, and why (rules 7.4 and 7.5)."""

from __future__ import annotations

from headrace.expr import Expr, lit
from headrace.modules import ModuleCall
from headrace.modules.folding import Folding, FrameCode, PaneCode
from headrace.operators.choice import KernelChoice
from headrace.operators.ordered.fold import FoldKernel, Folds, fold_kernel
from headrace.operators.ordered.frames import FrameRows, FrameValues, frame_codes
from headrace.operators.ordered.over import OverKernel
from headrace.operators.ordered.paned import PanedValues
from headrace.operators.ordered.tumbling import NativeValues, TumbledRows, TumbledValues, TupleNumbers, native_folds
from headrace.plan.nodes import Fold, Over
from headrace.plan.ordered import NUMBER, Frame

__all__ = ["fold_choice", "over_choice"]


def over_choice(node: Over) -> KernelChoice:
    """The kernel that keeps the least state."""
    if node.by_slots:
        return _by_slots(node)
    if node.pane_code is not None:
        return _by_panes(node, node.pane_code)
    codes = "" if node.frame.endless or node.frame.peers or not _only_modules(node) else frame_codes(node)
    if codes and not isinstance(codes, str):
        return _by_frames(node, codes)
    method = "computed anew over each frame"
    if node.aggregate.by_sums:
        method = "by a total of each group" if node.frame.endless else "by running sums"
    language = f"Python ({codes})" if codes else "Python" if node.modules else "columnar"
    runs = f"{language}; {path_text(node)}, {method}"
    if _only_numbers(node):
        return KernelChoice(lambda: FoldKernel(_folds(node, (("one", lit(1)),)), TupleNumbers(node)), runs)
    return KernelChoice(lambda: OverKernel(node), runs, lambda: _sources(node))


def fold_choice(node: Fold) -> KernelChoice:
    """Like `over_choice`, for a module that returns rows."""
    parts = native_folds(node) if node.by_slots else None
    if parts is not None:
        folding = parts[0]
        return KernelChoice(
            lambda: FoldKernel(fold_kernel(node).folds, folding),
            f"native code; {path_text(node)}, by a state of each slot",
            lambda: _native_code(node, parts),
        )
    code = _module_frames(node)
    if code and not isinstance(code, str):
        return KernelChoice(
            lambda: FoldKernel(fold_kernel(node).folds, FrameRows(node, code)),
            f"native code; {path_text(node)}, {code.path}",
            lambda: {f"{node.module}, over each frame: native code": code.code},
        )
    language, path = node.folder.language, "by a state of each slot" if node.by_slots else node.folder.path
    language = f"{language} ({code})" if code else language
    return KernelChoice(
        lambda: FoldKernel(fold_kernel(node).folds, TumbledRows(node)) if node.by_slots else fold_kernel(node),
        f"{language}; {path_text(node)}, {path}",
        lambda: {f"{node.module}, {path_text(node)}: {language}": node.folder.code},
    )


def _module_frames(node: Fold) -> FrameCode | str:
    """The native code over frames of a module without a window version; the reason why there is none, if known."""
    if node.by_slots or node.frame.endless or node.module.folder(node.kind) is not None:
        return ""
    return "tuples leave by time alone" if node.active else node.module.by_frames()


def _by_slots(node: Over) -> KernelChoice:
    parts = native_folds(node)
    runs = f"{path_text(node)}, by a state of each slot"
    folds = _folds(node, _arguments(node))
    if parts is None:
        language = "Python" if node.modules else "columnar"
        return KernelChoice(
            lambda: FoldKernel(folds, TumbledValues(node)), f"{language}; {runs}", lambda: _sources(node)
        )
    return KernelChoice(
        lambda: FoldKernel(folds, NativeValues(node, parts)), f"native code; {runs}", lambda: _native_code(node, parts)
    )


def _by_panes(node: Over, code: PaneCode) -> KernelChoice:
    folding = PanedValues(node, code)
    return KernelChoice(
        lambda: FoldKernel(_folds(node, _arguments(node)), folding),
        f"native code; windows made of panes (box 4), each of {code.size} tuples, {code.path}",
        lambda: {f"{module}, panes and windows: native code": folding.code for module in node.modules},
    )


def _only_modules(node: Over) -> bool:
    return all(isinstance(call, ModuleCall) for call in node.aggregate.split[0].values())


def _by_frames(node: Over, codes: list[FrameCode]) -> KernelChoice:
    paths = dict.fromkeys(code.path for code in codes)
    pairs = zip(node.modules, codes, strict=True)
    return KernelChoice(
        lambda: FoldKernel(_folds(node, _arguments(node)), FrameValues(node, codes)),
        f"native code; {path_text(node)}, {'; '.join(paths)}",
        lambda: {f"{module}, over each frame: native code": code.code for module, code in pairs},
    )


def _arguments(node: Over) -> tuple[tuple[str, Expr], ...]:
    """The arguments of the modules of slots, by names that are unique across modules."""
    arguments, calls = [], node.aggregate.split[0].values()
    for number, call in enumerate(calls, 1):
        assert isinstance(call, ModuleCall)
        prefix = f"{call.module.name}#{number}." if len(calls) > 1 else ""
        for name, expr in call.mapping.items():
            kind = call.module.fields[name].type
            plain = expr.type(node.input.schema) is kind
            arguments.append((prefix + name, expr if plain else expr.cast(kind)))
    return tuple(arguments)


def _folds(node: Over, arguments: tuple[tuple[str, Expr], ...]) -> Folds:
    return Folds(node, arguments, node.answers, beside=True)


def _only_numbers(node: Over) -> bool:
    """Whether the only output is the number of each tuple in its group."""
    frame, calls = node.frame, list(node.aggregate.split[0].values())
    counts = len(calls) == 1 and calls[0].function == "count" and calls[0].argument is None
    return frame.endless and frame.slide is None and not frame.peers and counts


# --- in words --------------------------------------------------------------------------------------------------------


def path_text(node: Over | Fold) -> str:
    """The box in figure 2 of the ESL paper: how windows reduce to the versions of an aggregate (rule 7.5)."""
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


def _native_code(node: Over | Fold, parts: list[Folding]) -> dict[str, str]:
    pairs = zip(node.modules, parts, strict=True)
    return {f"{module}, {path_text(node)}: native code": getattr(part, "code", "") for module, part in pairs}
