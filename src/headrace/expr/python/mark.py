"""The mark of a function: a short text that changes when its code changes.

It is made of the function's text without comments, layout and documentation; where there is no text (a lambda, code
typed into a console) of its compiled form. What the function refers to counts too: default values, variables it has
closed over, the object whose method it is, and the constants, functions and classes of its own package that it names.

Two functions that differ in what they give must never have the same mark. Where that is in doubt (an object that
cannot be stored) the mark is of this very object, and another process will take the function for another one.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import pickle
import textwrap
import types
from collections.abc import Iterator
from typing import Any

from headrace.entry_points import WHEEL_PREFIX

__all__ = ["code_mark"]

_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def code_mark(function: Any, *options: str) -> str:
    """Eight hexadecimal digits, the same in every process that runs the same code with the same options."""
    package = (getattr(function, "__module__", None) or "").partition(".")[0]
    wheel = [package] if package.startswith(WHEEL_PREFIX) else []  # another version is another function
    parts = [*options, *wheel, *_Walk(package).parts(function)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


class _Walk:
    """Visits everything that a function refers to, functions and classes once each."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._seen: set[int] = set()

    def parts(self, value: Any) -> Iterator[str]:
        """The texts that make up a value."""
        if isinstance(value, _PLAIN):
            yield repr(value)
        elif isinstance(value, (list, tuple)):
            yield from self._container(value)
        elif isinstance(value, (set, frozenset)):
            yield from self._container(sorted(value, key=repr))
        elif isinstance(value, dict):
            yield from self._container([item for pair in value.items() for item in pair])
        elif isinstance(value, types.ModuleType):
            yield value.__name__
        elif isinstance(value, types.CodeType):
            yield from self._code(value)
        else:
            yield from self._once(value)

    def _container(self, values: Any) -> Iterator[str]:
        yield f"{len(values)} of"
        for value in values:
            yield from self.parts(value)

    def _once(self, value: Any) -> Iterator[str]:
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        if isinstance(value, types.FunctionType):
            yield from self._function(value)
        elif isinstance(value, type):
            yield from self._class(value)
        elif isinstance(value, functools.partial):
            yield from self.parts([value.func, value.args, value.keywords])
        elif hasattr(value, "__qualname__"):  # a method, or a function of C
            yield _name(value)
            yield from self.parts([getattr(value, "__func__", None), getattr(value, "__self__", None)])
        elif isinstance(getattr(value, "mark", None), str):  # another function of a user
            yield value.mark
        else:
            yield _bytes(value)
            yield from self.parts(type(value))

    def _is_own(self, value: Any) -> bool:
        return (value.__module__ or "").partition(".")[0] == self._package

    def _function(self, function: types.FunctionType) -> Iterator[str]:
        yield function.__qualname__
        yield from self.parts([function.__defaults__, function.__kwdefaults__])
        yield from self.parts([_content(cell) for cell in function.__closure__ or ()])
        if not self._is_own(function):
            yield function.__module__ or ""
            return
        text = _text(function.__code__)
        yield from self._code(function.__code__) if text is None else [text]
        for name in sorted(set(_names(function.__code__))):
            # A function may refer to an earlier version of itself by its own name.
            if name in function.__globals__ and name != function.__name__:
                yield name
                yield from self.parts(function.__globals__[name])

    def _class(self, kind: type) -> Iterator[str]:
        yield _name(kind)
        for name, member in sorted(vars(kind).items()) if self._is_own(kind) else ():
            plain = getattr(member, "__func__", member)  # class and static methods
            if isinstance(plain, types.FunctionType) or (isinstance(plain, _PLAIN) and not name.startswith("__")):
                yield name
                yield from self.parts(plain)

    def _code(self, code: types.CodeType) -> Iterator[str]:
        yield code.co_code.hex()
        yield repr((code.co_names, code.co_varnames, code.co_freevars))
        yield from self.parts(code.co_consts)


def _name(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{value.__qualname__}"


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _text(code: types.CodeType) -> str | None:
    """The statements of a function as text; None without source text."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code))).body[0]
    except (OSError, TypeError, SyntaxError):
        return None
    if not isinstance(tree, ast.FunctionDef) or tree.name != code.co_name:
        return None
    tree.decorator_list = []
    if ast.get_docstring(tree) is not None:
        tree.body = tree.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def _bytes(value: Any) -> str:
    """Any other value: pickled, or, if that fails, by its identity."""
    try:
        return hashlib.sha256(pickle.dumps(value, protocol=4)).hexdigest()
    except Exception:  # noqa: BLE001 - a class of a user may raise anything when it is pickled
        return f"{type(value).__qualname__} at {id(value)}"
