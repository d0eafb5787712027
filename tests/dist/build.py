"""Build the packages, and check what is in them: `python -m tests.dist.build [FOLDER]`.

Each package is built twice: both builds must have the same bytes. Nothing is fetched; what builds packages is pinned.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from fnmatch import fnmatch
from pathlib import Path

__all__ = ["PACKAGES", "ROOT", "build", "problems_of_source", "problems_of_wheel"]

ROOT = Path(__file__).parents[2]
#: The packages, Headrace first: the folders of their pyproject.toml.
PACKAGES = (ROOT, *sorted((ROOT / "packages").iterdir()))
#: What a wheel of Headrace must have, beside modules, and all that it may have.
_NEEDED = (
    "headrace/py.typed",
    "headrace/sql/grammar.lark",
    "headrace/sql/shipped/*.sql",
    "headrace/host/spark/log4j2.properties",
    "headrace/dashboard/static/index.html",
    "headrace/dashboard/static/app.js",
    "headrace/dashboard/static/app.css",
    "headrace/dashboard/static/licences.txt",
    "headrace-*.dist-info/licenses/LICENSE",
)
_ALLOWED = (
    *_NEEDED,
    "headrace/*.py",
    "headrace_command/*.py",
    "pytest_headrace/*.py",
    "pytest_headrace/py.typed",
    "headrace/dashboard/static/*",
    "headrace-*.dist-info/*",
)
_LARGEST = 8_000_000


def build(package: Path, folder: Path) -> tuple[Path, Path]:
    """Build the source archive and the wheel into a folder; an error unless a second build has the same bytes."""
    with tempfile.TemporaryDirectory() as second:
        hashes = []
        for place in (folder, Path(second)):
            command = [sys.executable, "-m", "hatchling", "build", "-d", str(place.absolute())]
            subprocess.run(command, cwd=package, check=True, capture_output=True, text=True, env=_environment())
            name = f"{_project(package)}-*"
            files = sorted([*place.glob(f"{name}.tar.gz"), *place.glob(f"{name}.whl")])
            hashes.append({file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files})
    if len(hashes[0]) != 2 or hashes[0] != hashes[1]:
        raise SystemExit(f"two builds of {package.name} differ: {hashes}; the folder must have no earlier build")
    source, wheel = sorted((folder / file for file in hashes[0]), key=lambda path: path.suffix)
    return source, wheel


def _environment() -> dict[str, str]:
    """The variables of this process, without those that change what is built."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SOURCE_DATE_EPOCH")}


def _project(package: Path) -> str:
    return str(tomllib.loads((package / "pyproject.toml").read_text())["project"]["name"]).replace("-", "_")


def problems_of_wheel(wheel: Path) -> list[str]:
    """What is wrong with the content of Headrace's wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    missing = [pattern for pattern in _NEEDED if not any(fnmatch(name, pattern) for name in names)]
    extra = [name for name in names if not any(fnmatch(name, pattern) for pattern in _ALLOWED)]
    large = [f"{wheel.name} has {wheel.stat().st_size:,} bytes"] if wheel.stat().st_size > _LARGEST else []
    return [*(f"no {name}" for name in missing), *(f"not for users: {name}" for name in extra), *large]


def problems_of_source(source: Path) -> list[str]:
    """What is wrong with the content of Headrace's source archive, which has all that builds and tests it."""
    with tarfile.open(source) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    needed = ("LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "src/headrace/__init__.py", "tests/conftest.py")
    never = (
        "*.pyc",
        "*/__pycache__/*",
        "*/node_modules/*",
        ".venv/*",
        "build/*",
        "dist/*",
        ".git/*",
        "*.class",
        "*.jar",
    )
    missing = [f"no {name}" for name in needed if name not in names]
    return [*missing, *(f"left over: {name}" for name in names if any(fnmatch(name, one) for one in never))]


def main(folder: Path) -> None:
    """Build all packages into an empty folder and print them."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in [*folder.glob("*.whl"), *folder.glob("*.tar.gz")]:
        old.unlink()
    for package in PACKAGES:
        source, wheel = build(package, folder)
        problems = [*problems_of_wheel(wheel), *problems_of_source(source)] if package == ROOT else []
        if problems:
            raise SystemExit("\n".join(problems))
        for file in (source, wheel):
            print(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.stat().st_size:>9,}  {file}")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist")
