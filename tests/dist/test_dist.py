"""The wheels and source archives that users get: what is in them, and that an environment with them works."""

from __future__ import annotations

import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from tests.dist.build import PACKAGES, ROOT, build, problems_of_source, problems_of_wheel
from tests.dist.install import EXTRAS, borrowing, smoke

import headrace as hr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All packages, built twice each."""
    folder = tmp_path_factory.mktemp("dist")
    for package in PACKAGES:
        build(package, folder)
    return folder


def test_the_wheel_has_what_users_need_and_nothing_else(built: Path):
    (wheel,) = built.glob("headrace-*.whl")
    assert problems_of_wheel(wheel) == []
    with zipfile.ZipFile(wheel) as archive:
        stored = {name for name in archive.namelist() if name.startswith("headrace/")}
    tracked = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src/headrace").rglob("*.py")}
    assert {name for name in stored if name.endswith(".py")} == tracked


def test_the_source_archive_builds_the_same_wheel(built: Path, tmp_path: Path):
    (source,) = built.glob("headrace-*.tar.gz")
    (wheel,) = built.glob("headrace-*.whl")
    assert problems_of_source(source) == []
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (package,) = (tmp_path / "source").iterdir()
    folder = tmp_path / "again"
    folder.mkdir()
    build(package, folder)
    (again,) = folder.glob("*.whl")
    assert again.read_bytes() == wheel.read_bytes()


def test_a_wheel_with_a_test_or_without_the_grammar_is_refused(built: Path, tmp_path: Path):
    (wheel,) = built.glob("headrace-*.whl")
    changed = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as before, zipfile.ZipFile(changed, "w") as after:
        for name in before.namelist():
            if name != "headrace/sql/grammar.lark":
                after.writestr(name, before.read(name))
        after.writestr("tests/test_left_over.py", "")
    assert problems_of_wheel(changed) == ["no headrace/sql/grammar.lark", "not for users: tests/test_left_over.py"]


def test_an_environment_with_the_wheels_works(built: Path, tmp_path: Path):
    smoke(borrowing(tmp_path / "environment", built), tmp_path / "run", "server")


def test_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == hr.__version__
    assert f"## [{hr.__version__}]" in (ROOT / "CHANGELOG.md").read_text()
    assert f"This is version {hr.__version__}," in (ROOT / "README.md").read_text()
    minor = hr.__version__.rpartition(".")[0]
    assert f"The newest minor version, now {minor}," in (ROOT / "SECURITY.md").read_text()
    assert set(EXTRAS) == set(project["optional-dependencies"]) - {"test", "dev", "docs"}
