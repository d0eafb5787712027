"""A wheel under a name of its own, so that versions of one package are there side by side.

Python has one package of a name in a process, and a query keeps the version that it began with. So the packages of a
wheel are put into a package whose name has the wheel's checksum, and their imports of each other are written with that
name (as Java's tools do when they shade, and pip does with what it vendors):

    from headrace_finance.averages import Vwap
    from headrace_wheel_finance_0_1_0_3fa8c0d1e2b49f60.headrace_finance.averages import Vwap

Relative imports stay as they are. Classes are then pickled by that name, so a state, a worker on Spark and the
fingerprint of a plan all tell versions apart. An import by a text cannot be rewritten and is refused.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping

from headrace.errors import ModuleError

__all__ = ["shaded"]

_FROM = re.compile(rb"from(?:[ \t\f]|\\\r?\n)+")
#: Functions that take the name of a package or module as a text.
_BY_TEXT = frozenset({"__import__", "files", "find_spec", "get_data", "import_module"})


def shaded(files: Mapping[str, bytes], folder: str) -> dict[str, bytes]:
    """The files of a wheel, in `folder`, with imports that find each other there."""
    modules = frozenset(_modules(files))
    found = {
        f"{folder}/{path}": _rewritten(path, content, folder, modules) if path.endswith(".py") else content
        for path, content in files.items()
    }
    return {f"{folder}/__init__.py": b'"""A wheel that a server installed."""\n', **found}


def _modules(files: Mapping[str, bytes]) -> Iterator[str]:
    """The names of all packages and modules of a wheel."""
    for path in files:
        if path.endswith(".py"):
            parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
            yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _rewritten(path: str, source: bytes, folder: str, modules: frozenset[str]) -> bytes:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        text = source.decode(encoding)
        tree = ast.parse(source, path)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ModuleError(f"{path} of the wheel is no Python: {error}") from error
    data = text.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    edits = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            _check_text(path, node, modules)
        if not isinstance(node, ast.Import | ast.ImportFrom) or node.end_lineno is None or node.end_col_offset is None:
            continue
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        if isinstance(node, ast.Import) and any(alias.name in modules for alias in node.names):
            edits.append((start, end, "; ".join(_imports(node, folder, modules)).encode()))
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module in modules:
            word = _FROM.match(data, start)
            assert word is not None
            edits.append((word.end(), word.end(), f"{folder}.".encode()))
    for start, end, new in sorted(edits, reverse=True):
        data = data[:start] + new + data[end:]
    return data.decode().encode(encoding)


def _imports(node: ast.Import, folder: str, modules: frozenset[str]) -> Iterator[str]:
    """The statements that do what `import a.b, c as d` does, for modules of the wheel under their new names."""
    for alias in node.names:
        behind = f" as {alias.asname}" if alias.asname else ""
        if alias.name not in modules:
            yield f"import {alias.name}{behind}"
            continue
        if alias.asname or "." in alias.name:
            yield f"import {folder}.{alias.name}{behind}"
        if not alias.asname:
            yield f"from {folder} import {alias.name.partition('.')[0]}"


def _check_text(path: str, call: ast.Call, modules: frozenset[str]) -> None:
    function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    first = call.args[0] if call.args else None
    if function in _BY_TEXT and isinstance(first, ast.Constant) and first.value in modules:
        raise ModuleError(
            f"{path} line {call.lineno} names its own package in a text: its versions would be one",
            given=ast.unparse(call), allowed="import statements, and __package__",
            instead=f"import {first.value}, or a name that begins with __package__",
        )  # fmt: skip
