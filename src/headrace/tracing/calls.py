"""Breakpoints at calls of users' functions and modules, and Python's debugger inside of them.

Python tells a trace function of every call in its thread. It is set only in the thread of a session, and only while
there is such a breakpoint: every call then costs a look-up.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CodeType, FrameType
from typing import Any

from headrace.changes import Changes
from headrace.display.words import clipped
from headrace.errors import TraceError, nearest
from headrace.modules import Module
from headrace.plan.base import walk
from headrace.plan.functions import udfs_of
from headrace.tracing.breakpoints import Breakpoint, OperatorStep
from headrace.tracing.record import TracedOperator

__all__ = ["AtCall", "CallTracer", "call_text", "calls_named"]

#: The methods of a module that the engine calls.
_METHODS = ("compute", "add", "remove", "merge", "initial")
_SHOWN = 60


class AtCall(Breakpoint):
    """Stops when a function or a method of a module is called."""

    kind = "call"

    def __init__(self, name: str, codes: Iterable[CodeType], operators: Sequence[TracedOperator]) -> None:
        super().__init__(operators[0] if len(operators) == 1 else None)
        self.name, self.codes, self.operators = name, frozenset(codes), operators

    @property
    def text(self) -> str:
        return f"call of {self.name}"

    @property
    def general(self) -> bool:
        return False

    def fitting(self, step: OperatorStep) -> Changes | None:  # noqa: ARG002 - it stops inside of operators
        return None


def calls_named(operators: Sequence[TracedOperator], name: str) -> AtCall:
    """A breakpoint at a function, a module or one of its methods: `"mid"`, `"MyAverage"`, `"MyAverage.add"`."""
    if not isinstance(name, str):
        raise TraceError("a call is named by a text", given=name, allowed="the name of a function, or of a method")
    found: dict[str, tuple[set[CodeType], list[TracedOperator]]] = {}
    limited = set[str]()
    for operator in operators:
        named: list[tuple[str, CodeType | None]] = []
        for node in (operator.node, *walk(*operator.node.inside)):
            for udf in udfs_of(node):
                code = getattr(inspect.unwrap(udf.function), "__code__", None)
                limited |= {udf.name} if udf.time_limit is not None else set()
                named.append((udf.name, code))
            for module in getattr(node, "modules", ()):
                named += _methods(module)
        for called, code in named:
            if code is not None:
                codes, callers = found.setdefault(called, (set(), []))
                codes.add(code)
                callers += [operator] if operator not in callers else []
    if name in limited or name not in found:
        near = nearest(name, found)
        raise TraceError(
            f"{name} runs in a thread of its own, because it has a time limit" if name in limited
            else f"the query calls nothing of Python's that is named {name}",
            given=name,
            allowed=", ".join(one for one in found if one not in limited) or "(it calls no Python)",
            instead="the function without time_limit" if name in limited else near or "",
        )  # fmt: skip
    return AtCall(name, *found[name])


def _methods(module: Module) -> Iterator[tuple[str, CodeType | None]]:
    """The methods of a module that are written in Python, also under the name of the module alone."""
    module = getattr(module, "module", module)
    for method in _METHODS:
        code = getattr(getattr(type(module), method), "__code__", None)
        if code is not getattr(Module, method).__code__:
            yield f"{module.name}.{method}", code
            if method != "initial":  # without arguments, there is little to see
                yield module.name, code


def call_text(frame: FrameType) -> str:
    """A call with its arguments, as text."""
    code = frame.f_code
    names = [name for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if name != "self"]
    return f"{code.co_name}({', '.join(f'{name}={_shown(frame.f_locals[name])}' for name in names)})"


def _shown(value: Any) -> str:
    try:
        return clipped(repr(value), _SHOWN)
    except Exception as error:  # noqa: BLE001 - a value of a user may raise anything
        return f"<{type(value).__name__}: {type(error).__name__}>"


class CallTracer:
    """Watches the calls of one thread."""

    def __init__(self, called: Callable[[FrameType, Sequence[AtCall]], None]) -> None:
        self._called = called
        self._by_code: dict[CodeType, list[AtCall]] = {}
        self._outer: Any = None

    def watch(self, breakpoints: Iterable[Breakpoint]) -> None:
        """Watch for these calls, in the thread that calls this."""
        by_code: dict[CodeType, list[AtCall]] = {}
        for one in breakpoints:
            if isinstance(one, AtCall) and one.enabled:
                for code in one.codes:
                    by_code.setdefault(code, []).append(one)
        if by_code and not self._by_code:
            self._outer = sys.gettrace()
        if by_code:
            sys.settrace(self.trace)
        elif self._by_code:
            sys.settrace(self._outer)
        self._by_code = by_code

    def trace(self, frame: FrameType, event: str, arg: Any) -> None:  # noqa: ARG002 - the signature of a trace function
        """Python's trace function."""
        if event == "call" and frame.f_code in self._by_code:
            self._called(frame, self._by_code[frame.f_code])

    def debug(self, frame: FrameType) -> None:
        """Stop in Python's debugger at the first line of the call."""
        # Imported when it is needed: few runs need it, and every import of the package would load it.
        from headrace.tracing.python_debugger import PythonDebugger

        PythonDebugger(self.trace).set_trace(frame)
