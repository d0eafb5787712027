"""What reviews would say again and again, said by a test: where imports point, what is public, what is documented."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import types
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from tests.unit.folders import CALLS_UPWARD, FOLDERS, PAGE, table

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "headrace"
SOURCES = sorted(PACKAGE.rglob("*.py"))
MAX_LINES = 500

ORDER = [name for folder in FOLDERS for name in folder.names]
MAY_IMPORT_PYSPARK = ("host/spark/", "io/", "cli/doctor.py")
# An oracle that shares code with what it checks is worthless; only the guard around users' modules is the same.
HISTORY_MAY_IMPORT = {"headrace.operators.per_window.calling"}
MAY_IMPORT_TESTING = ("testing/", "cli/", "testing/verify/own_data.py")
#: The base class of users' modules, which is public, and the node that runs aggregates, whose name is in checkpoints.
DEFINED_TWICE = {"Aggregate": ["modules/base.py", "plan/aggregate.py"]}
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


def place(path: Path, found: Import) -> str:
    return f"{relative(path)}, line {found.line}"


@cache
def imports(path: Path) -> list[Import]:
    found: list[Import] = []
    waiting: list[tuple[ast.AST, bool]] = [(ast.parse(path.read_text()), False)]
    while waiting:
        node, in_function = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            found += [Import(module, node.lineno, in_function) for module in _modules(node, path)]
        elif not isinstance(node, ast.expr):  # no expression holds a statement
            inner = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            waiting += [(child, inner) for child in ast.iter_child_nodes(node)]
    return sorted(found, key=lambda i: i.line)


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


def test_every_folder_has_its_place():
    found = {part(path) for path in SOURCES} - {"__init__"}
    assert sorted(ORDER) == sorted(found)


def known_to(name: str) -> set[str]:
    """What a part may import: itself and what stands above it, less what it ignores."""
    own = next(folder for folder in FOLDERS if name in folder.names)
    return set(ORDER[: ORDER.index(name) + 1]) - set(own.ignores)


def test_imports_point_one_way():
    wrong = [
        f"{place(path, i)} imports {i.module}"
        for path in SOURCES
        if part(path) != "__init__"  # the package itself gathers the public names
        for i in imports(path)
        if (name := imported_part(i.module)) in ORDER
        and name not in known_to(part(path))
        and i.module not in HISTORY_MAY_IMPORT
        and not (i.in_function and (relative(path), name) in CALLS_UPWARD)
    ]
    assert not wrong, "the table of tests/unit/folders.py says who may import whom"


@pytest.mark.parametrize(("path", "name"), CALLS_UPWARD)
def test_calls_upward_are_made(path: str, name: str):
    assert any(i.in_function and imported_part(i.module) == name for i in imports(PACKAGE / path))


def test_the_architecture_shows_the_folders():
    assert table() in unlinked(PAGE.read_text()), "python -m tests.unit.folders, then python docs/link_terms.py"


def unlinked(page: str) -> str:
    """A page without its links to the glossary, which stand where a page first uses a term."""
    return re.sub(r"\[([^]]+)\]\(glossary\.md#[^)]+\)", r"\1", page)


def test_unit_tests_mirror_the_package():
    unit = ROOT / "tests" / "unit"
    folders = {path.parent.relative_to(unit) for path in unit.rglob("test_*.py")}
    assert not [str(folder) for folder in sorted(folders) if not (PACKAGE / folder).is_dir()]


def test_pyspark_stays_at_the_edge():
    wrong = [
        place(path, i)
        for path in SOURCES
        if not relative(path).startswith(MAY_IMPORT_PYSPARK)
        for i in imports(path)
        if i.module.split(".")[0] == "pyspark"
    ]
    assert not wrong, f"only in {', '.join(MAY_IMPORT_PYSPARK)}"


def test_history_shares_nothing_with_the_kernels():
    found = {i.module for path in SOURCES if part(path) == "history" for i in imports(path)}
    assert {module for module in found if imported_part(module) == "operators"} <= HISTORY_MAY_IMPORT


def test_an_import_inside_a_function_gives_its_reason():
    wrong = []
    for path in SOURCES:
        if relative(path).startswith(MAY_IMPORT_IN_FUNCTIONS):
            continue  # the reason is known: start-up time, and code that runs in Spark's workers
        lines = ["", *path.read_text().splitlines()]
        wrong += [
            f"{place(path, i)}: {lines[i.line].strip()}"
            for i in imports(path)
            if i.in_function and "#" not in lines[i.line] and not lines[i.line - 1].strip().startswith("#")
        ]
    assert not wrong, "import at the top, or write the reason in a comment on the line or above it"


def test_a_class_name_is_defined_once():
    # `sql/syntax` is a namespace of its own, named after the grammar: its classes are used as `s.Join`.
    defined: dict[str, list[str]] = {}
    for path in SOURCES:
        if not relative(path).startswith("sql/syntax/"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    defined.setdefault(node.name, []).append(relative(path))
    assert {name: places for name, places in defined.items() if len(places) > 1} == DEFINED_TWICE


def test_every_module_says_what_it_is():
    assert not [relative(path) for path in SOURCES if not ast.get_docstring(ast.parse(path.read_text()))]


def test_no_file_grows_into_a_giant():
    assert not [relative(path) for path in SOURCES if len(path.read_text().splitlines()) > MAX_LINES]


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


def test_no_module_imports_a_private_name_of_another():
    assert not [
        f"{relative(path)}, line {node.lineno}: {alias.name}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module != "__future__"
        for alias in node.names
        if alias.name.startswith("_")
    ]


@pytest.mark.parametrize(
    "name", [".ci/run", "scripts/java.sh", "scripts/services.sh", "scripts/test.sh", "scripts/venv.sh"]
)
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
