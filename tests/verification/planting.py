"""Planting a fault: for a while the engine runs with one function's text changed, and as it was afterwards."""

from __future__ import annotations
import __future__

import functools
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, Literal

__all__ = ["Fault", "FaultError", "planted", "site"]


class FaultError(Exception):
    """A fault that cannot be planted: the function it speaks of has changed since."""


@dataclass(frozen=True)
class Fault:
    """One mistake: in the source of `function` (qualified, in `module`) the text `old`, found once, becomes `new`."""

    name: str
    module: str
    function: str
    old: str
    new: str
    why: str
    #: What a run must have to be able to find it: it stops and goes on, has several buckets, or reads files.
    needs: Literal["", "restarts", "buckets", "files"] = ""

    def __str__(self) -> str:
        return self.name


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """The engine with this fault in it; without it again afterwards.

    The function itself stays and only its code is exchanged. So the fault is there however others hold the function:
    imported by name, in a table of functions, or as a method, a property or a class method.
    """
    found = _attribute(fault)
    function = _function(found, fault)
    right = function.__code__
    function.__code__ = _faulty(function, fault)
    _forget(found)
    try:
        yield
    finally:
        function.__code__ = right
        _forget(found)


def site(fault: Fault) -> CodeType | None:
    """The code that the fault changes, while it is right; None if it may have run before it is needed."""
    found = _attribute(fault)
    return None if hasattr(found, "cache_clear") else _function(found, fault).__code__


def _attribute(fault: Fault) -> Any:
    """What the module or class has under the name: a function, or what a decorator has made of it."""
    owner: Any = importlib.import_module(fault.module)
    *path, name = fault.function.split(".")
    try:
        for part in path:
            owner = getattr(owner, part)
        return inspect.getattr_static(owner, name)
    except AttributeError as error:
        raise FaultError(f"{fault.name}: there is no {fault.module}.{fault.function}") from error


def _function(found: Any, fault: Fault) -> FunctionType:
    if isinstance(found, (staticmethod, classmethod)):
        found = found.__func__
    elif isinstance(found, property):
        found = found.fget
    elif isinstance(found, functools.cached_property):
        found = found.func
    found = inspect.unwrap(found)
    if not isinstance(found, FunctionType):
        raise FaultError(f"{fault.name}: {fault.module}.{fault.function} is no function")
    return found


def _forget(found: Any) -> None:
    """What a function has been asked before must be asked again."""
    if hasattr(found, "cache_clear"):
        found.cache_clear()


def _faulty(function: FunctionType, fault: Fault) -> CodeType:
    source = textwrap.dedent(inspect.getsource(function))
    times = source.count(fault.old)
    if times != 1:
        raise FaultError(f"{fault.name}: the text occurs {times} times in {fault.function}, not once: {fault.old!r}")
    source = source.replace(fault.old, fault.new)
    nested = bool(function.__code__.co_freevars)  # `super()` needs the class around it
    text = f"class _:\n{textwrap.indent(source, '    ')}" if nested else source
    flags = __future__.annotations.compiler_flag
    code = _found(compile(text, f"<fault: {fault.name}>", "exec", flags, dont_inherit=True), function.__name__)
    if code is None or code.co_freevars != function.__code__.co_freevars:
        raise FaultError(f"{fault.name}: {fault.function} uses names of a function around it")
    return code


def _found(code: CodeType, name: str) -> CodeType | None:
    """The code of the function of this name, at the top or in a class."""
    for part in code.co_consts:
        if isinstance(part, CodeType):
            inner = part if part.co_name == name else _found(part, name)
            if inner is not None:
                return inner
    return None
