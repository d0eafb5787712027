"""Install the built wheels into empty environments and try them: `python -m tests.dist.install [PYTHON ...]`.

Each PYTHON is an interpreter, such as python3.12; without one, that of this process. Dependencies are fetched, with the
versions of constraints.txt. `--lowest` takes the lowest versions that pyproject.toml allows, `--newest` the newest.
`--spark` also runs the demo and a query on Spark. `--borrow` fetches nothing: the dependencies are those of the
environment of this process, which must have the same Python.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from tests.dist.build import ROOT
from tests.dist.build import main as build_all

__all__ = ["EXTRAS", "borrowing", "install", "smoke"]

#: The extras of users: what a wheel is installed with.
EXTRAS = ("delta", "objects", "kafka", "postgres", "server", "notebook", "otel")


def borrowing(folder: Path, wheels: Path) -> Path:
    """An environment with the wheels, and with the dependencies of this process; return its Python.

    A line of a .pth file adds a folder without the .pth files in it, so an editable Headrace there is not seen.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    site = next((folder / "lib").glob("python3*")) / "site-packages"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, *map(str, sorted(wheels.glob("*.whl")))], check=True, env=_environment())
    (site / "dependencies.pth").write_text("\n".join(one for one in sys.path if one.endswith("site-packages")))
    return python


def install(folder: Path, wheels: Path, python: str, resolution: str) -> Path:
    """An environment with the wheels and their dependencies, from the index; return its Python."""
    environment = _environment()
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "--quiet", "--python", python, str(folder)], check=True, env=environment)
    inside = folder / "bin" / "python"
    fetch = [*uv, "pip", "install", "--quiet", "--python", str(inside)]
    if resolution == "pinned":
        chosen = ["--constraint", str(ROOT / "constraints.txt")]
    else:
        chosen = ["--resolution", "lowest-direct" if resolution == "lowest" else "highest"]
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    direct = [*needs["dependencies"], *(one for extra in EXTRAS for one in needs["optional-dependencies"][extra])]
    subprocess.run([*fetch, *chosen, *direct], check=True, env=environment)
    subprocess.run([*fetch, "--no-deps", *map(str, sorted(wheels.glob("*.whl")))], check=True, env=environment)
    subprocess.run([*uv, "pip", "check", "--quiet", "--python", str(inside)], check=True, env=environment)
    return inside


def smoke(python: Path, folder: Path, *extras: str) -> None:
    """Run `smoke.py` in an empty folder."""
    folder.mkdir()
    shutil.copy(ROOT / "tests" / "dist" / "smoke.py", folder)
    subprocess.run([str(python), "smoke.py", *extras], cwd=folder, check=True, env=_environment())


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def main() -> None:
    """Build, install and try."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="*", default=[sys.executable], metavar="PYTHON")
    parser.add_argument("--borrow", action="store_const", const="borrow", dest="resolution", default="pinned")
    parser.add_argument("--lowest", action="store_const", const="lowest", dest="resolution")
    parser.add_argument("--newest", action="store_const", const="newest", dest="resolution")
    parser.add_argument("--spark", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-dist-") as place:
        folder, wheels = Path(place), Path(place) / "wheels"
        build_all(wheels)
        for number, python in enumerate(given.pythons):
            sys.stdout.write(f"== {python}, dependencies: {given.resolution}\n")
            sys.stdout.flush()
            home = folder / f"environment-{number}"
            borrow = given.resolution == "borrow"
            inside = borrowing(home, wheels) if borrow else install(home, wheels, python, given.resolution)
            smoke(inside, folder / f"run-{number}", "server", *(["spark"] if given.spark else []))


if __name__ == "__main__":
    main()
