"""Each kind of file, and each folder, of a checkpoint and its sinks, damaged in each way: the exact answer or an error.

The query has died between the plan and the commit of its second batch, so that there is one file at least of each kind.
`test_damage.py` says which error it is, and has the files of large states.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.recovery.small_run import Run, live
from tests.recovery.steps import Death, Steps

import headrace as hr
from headrace.errors import CheckpointError, SinkError

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.slow, pytest.mark.timeout(600)]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)


WAYS: dict[str, Callable[[Path], None]] = {"cut": cut, "empty": empty, "flip": flip, "delete": Path.unlink}


@pytest.fixture(scope="module")
def made(spark: object, tmp_path_factory: pytest.TempPathFactory) -> Run:  # noqa: ARG001 - it must run
    """A run whose second driver has died before its commit."""
    folder = tmp_path_factory.mktemp("run")
    made, steps = Run(folder, 2, 1), Steps()
    steps.watch(*made.watched, at="commits/000000000001")
    with suppress(Death, hr.HeadraceError):
        live(folder)
    assert steps.happened
    steps.rest()
    for name in ("state", "out"):
        shutil.rmtree(folder / "begun" / name)
        shutil.copytree(folder / name, folder / "begun" / name)
    return made


@pytest.fixture
def run(made: Run) -> Run:
    made.begin_again()
    return made


def kinds(folder: Path) -> dict[str, Path]:
    """The newest file of each folder; batches that were published are in the hands of whoever reads them."""
    places = [path for name in ("state", "out") for path in sorted((folder / name).rglob("*"))]
    files = [path for path in places if path.is_file() and not path.parent.name.startswith("batch-")]
    named = [path for path in files if path.parent == folder / "state"]
    return {str(path.relative_to(folder)): path for path in [*{path.parent: path for path in files}.values(), *named]}


def folders(folder: Path) -> list[Path]:
    return [path for name in ("state", "out") for path in sorted((folder / name).rglob("*")) if path.is_dir()]


def go_on(run: Run, what: str) -> bool:
    """Start the query; gives whether it was refused."""
    try:
        live(run.folder)
    except (CheckpointError, SinkError):
        return True
    assert run.right(), what
    return False


def test_any_file(run: Run):
    found = kinds(run.folder)
    assert {"commits", "plans", "epochs"} <= {path.parent.name for path in found.values()}
    assert {"headrace.json", "lock", "_owner"} <= {path.name for path in found.values()}
    for name, path in found.items():
        for way, damage in WAYS.items():
            if not path.stat().st_size and way != "delete":
                continue
            damage(path)
            refused = go_on(run, f"{way} {name}")
            assert refused or (path.parent.name != "commits" and path.name != "_owner"), f"{way} {name}"
            run.begin_again()


def test_any_folder(run: Run):
    for path in folders(run.folder):
        run.begin_again()
        shutil.rmtree(path)
        refused = go_on(run, f"without {path.relative_to(run.folder)}")
        assert refused or path.parent != run.folder / "out", "output that is gone is missed"


def test_a_file_of_somebody_else_in_any_folder(run: Run):
    for path in folders(run.folder):
        if path.is_relative_to(run.folder / "state"):  # what else is in a sink's directory is not ours
            run.begin_again()
            (path / "notes.txt").write_text("not ours")
            go_on(run, f"notes in {path.relative_to(run.folder)}")
