"""What reviews would say again and again, said by a test: where imports point, what is public, what is documented."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "headrace"
SOURCES = sorted(PACKAGE.rglob("*.py"))
MAX_LINES = 500

GROUND = {"errors", "time", "schema", "expr"}
SURFACE = {"api", "sql", "serve", "cli"}
RUNNING = {"operators", "stages", "host"}
ANYTHING = {path.stem for path in PACKAGE.iterdir() if path.suffix in ("", ".py")} | GROUND | SURFACE | RUNNING

# part -> the parts it may not import. `time, schema, expr ← plan ← {api, sql, optimizer}` is the first block,
# `changes, trace ← operators ← stages ← host` the second.
FORBIDDEN = {
    "errors": ANYTHING - {"errors"},
    "time": ANYTHING - {"errors"},
    "schema": ANYTHING - {"errors", "time"},
    "expr": {"plan", "optimizer", "events", "changes", "trace", "modules", "io"} | SURFACE | RUNNING,
    "plan": {"optimizer"} | SURFACE | RUNNING,
    "optimizer": SURFACE | {"host"},
    "api": {"serve", "cli"},
    "sql": {"serve", "cli"},
    "stdlib": (SURFACE - {"sql"}) | RUNNING,
    "changes": {"plan", "optimizer", "trace"} | SURFACE | RUNNING,
    "trace": {"plan", "optimizer"} | SURFACE | RUNNING,
    "operators": {"stages", "host", "optimizer"} | SURFACE,
    "stages": {"host"} | SURFACE,
    "history": {"optimizer", "changes", "trace"} | SURFACE | (RUNNING - {"operators"}),
    "host": SURFACE,
    "io": SURFACE,
    "modules": SURFACE | {"host"},
    "patterns": {"plan", "optimizer", "events", "changes", "trace", "modules", "io", "history"} | SURFACE | RUNNING,
    "testing": {"cli", "serve"},
}
MAY_IMPORT_PYSPARK = ("host/spark/", "io/", "cli/doctor.py")
# An oracle that shares code with what it checks is worthless; only the guard around users' modules is the same.
HISTORY_MAY_IMPORT = {"headrace.operators.windows.calling"}
MAY_IMPORT_TESTING = ("testing/", "cli/", "api/verification.py")
MAY_IMPORT_IN_FUNCTIONS = ("cli/", "host/spark/")


@dataclass(frozen=True)
class Import:
    """One imported module: where the statement stands, and whether it is inside a function."""

    module: str
    line: int
    in_function: bool


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def part(path: Path) -> str:
    """The module or package directly under `headrace` that a file belongs to."""
    return relative(path).split("/")[0].removesuffix(".py")


def imports(path: Path) -> list[Import]:
    return list(_imports(ast.parse(path.read_text()), path, in_function=False))


def _imports(node: ast.AST, path: Path, *, in_function: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            for module in _modules(child, path):
                yield Import(module, child.lineno, in_function)
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from _imports(child, path, in_function=in_function or is_function)


def _modules(node: ast.Import | ast.ImportFrom, path: Path) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    module = node.module or ""
    if node.level:
        package = ["headrace", *relative(path).split("/")[:-1]]
        module = ".".join([*package[: len(package) - node.level + 1], *module.split(".")]).rstrip(".")
    # `from headrace import plan` imports the part, so the names count; one level further down they no longer matter.
    return [f"{module}.{alias.name}" for alias in node.names] if module == "headrace" else [module]


def imported_part(module: str) -> str | None:
    names = module.split(".")
    return names[1] if names[0] == "headrace" and len(names) > 1 else None


def each_source(function: types.FunctionType) -> types.FunctionType:
    return pytest.mark.parametrize("path", SOURCES, ids=relative)(function)


@each_source
def test_imports_point_one_way(path: Path):
    forbidden = FORBIDDEN.get(part(path), set()) - {part(path)}
    wrong = [f"line {i.line}: {i.module}" for i in imports(path) if imported_part(i.module) in forbidden]
    assert not wrong, f"{part(path)} may not import {', '.join(sorted(forbidden))}"


@each_source
def test_pyspark_stays_at_the_edge(path: Path):
    wrong = [f"line {i.line}" for i in imports(path) if i.module.split(".")[0] == "pyspark"]
    assert not wrong or relative(path).startswith(MAY_IMPORT_PYSPARK), f"only in {', '.join(MAY_IMPORT_PYSPARK)}"


@pytest.mark.parametrize("path", [path for path in SOURCES if part(path) == "history"], ids=relative)
def test_history_shares_nothing_with_the_kernels(path: Path):
    kernels = {i.module for i in imports(path) if imported_part(i.module) == "operators"}
    assert kernels <= HISTORY_MAY_IMPORT


@each_source
def test_testing_is_imported_by_the_cli_and_tests_alone(path: Path):
    wrong = [f"line {i.line}" for i in imports(path) if imported_part(i.module) == "testing"]
    assert not wrong or relative(path).startswith(MAY_IMPORT_TESTING)


@each_source
def test_an_import_inside_a_function_gives_its_reason(path: Path):
    if relative(path).startswith(MAY_IMPORT_IN_FUNCTIONS):
        return  # the reason is known: start-up time, and code that runs in Spark's workers
    lines = ["", *path.read_text().splitlines()]
    wrong = [
        f"line {i.line}: {lines[i.line].strip()}"
        for i in imports(path)
        if i.in_function and "#" not in lines[i.line] and not lines[i.line - 1].strip().startswith("#")
    ]
    assert not wrong, "import at the top, or write the reason in a comment on the line or above it"


@each_source
def test_every_module_says_what_it_is(path: Path):
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    assert docstring, "a module opens with a docstring"


@each_source
def test_no_file_grows_into_a_giant(path: Path):
    assert len(path.read_text().splitlines()) <= MAX_LINES


def test_no_test_file_grows_into_a_giant():
    sizes = {path: len(path.read_text().splitlines()) for path in (ROOT / "tests").rglob("*.py")}
    assert {path: size for path, size in sizes.items() if size > MAX_LINES} == {}


def natural(name: str) -> tuple[int, str]:
    """The order ruff gives to `__all__`: constants, classes, functions."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2), name


def test_the_public_names_are_what_is_visible():
    headrace = importlib.import_module("headrace")
    visible = {
        name
        for name, value in vars(headrace).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType) and name != "annotations"
    }
    public = {name for name in headrace.__all__ if not name.startswith("_")}
    assert public == visible
    assert list(headrace.__all__) == sorted(headrace.__all__, key=natural)


@pytest.mark.parametrize("name", [".ci/run", "scripts/java.sh", "scripts/test.sh", "scripts/venv.sh"])
def test_scripts_can_be_run(name: str):
    assert os.access(ROOT / name, os.X_OK)


# ---- the checks above, checked


def test_imports_are_found_wherever_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    path = tmp_path / "plan" / "join.py"
    path.parent.mkdir()
    path.write_text(
        "import headrace.api.stream as s\n"
        "from headrace import host, col\n"
        "from . import nodes\n"
        "from ..stages.cut import cut\n"
        "def f():\n"
        "    if True:\n"
        "        from pyspark.sql import types\n"
    )
    found = imports(path)
    assert [(i.module, i.in_function) for i in found] == [
        ("headrace.api.stream", False),
        ("headrace.host", False),
        ("headrace.col", False),
        ("headrace.plan", False),
        ("headrace.stages.cut", False),
        ("pyspark.sql", True),
    ]
    assert part(path) == "plan"
    assert [imported_part(i.module) for i in found] == ["api", "host", "col", "plan", "stages", None]
