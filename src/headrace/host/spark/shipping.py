"""Code on its way to workers: the driver's own Headrace, and the modules that a query uses.

A machine of a cluster needs Python and the packages that Headrace builds on, but no Headrace: all workers run the one
of the driver, whatever they have installed. It travels as an archive, once for each session, by Spark's own means
(`addArtifacts`), so that no path need be shared.

Users' functions are pickled by value if they are defined in a script or a notebook; all others are imported by name.
So the modules which the pickled query names, and those which these use in turn, travel too, unless they are installed
(in a `site-packages`) or part of Python. What they load in other ways is named by the user: `py_files=`.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import headrace
from headrace.entry_points import WHEEL_PREFIX
from headrace.errors import HostError
from headrace.host.spark import unpacking
from headrace.host.spark.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["may_be_elsewhere", "ship_code", "ship_headrace", "used_modules"]

#: The names of the archives that a session has.
_SHIPPED: WeakKeyDictionary[object, set[str]] = WeakKeyDictionary()
#: All files of an archive have this date, so that its checksum depends on their content only.
_DATE = (1980, 1, 1, 0, 0, 0)
_INSTALLED = {"site-packages", "dist-packages"}
_ARCHIVES = (".zip", ".egg", ".whl")


def may_be_elsewhere(spark: SparkSession) -> bool:
    """Whether the workers of a session may be on other machines."""
    if is_connect(spark):
        return "SPARK_LOCAL_REMOTE" not in os.environ  # set if this process has started the server
    return not str(spark.sparkContext.master).startswith("local")


def ship_headrace(spark: SparkSession) -> None:
    """Let the workers of a session import the driver's Headrace."""
    root = Path(headrace.__file__).parent
    files = {f"{unpacking.CONTENT}/headrace/{name}": data for name, data in _files_below(root)}
    _ship(spark, "headrace", {"headrace.py": Path(unpacking.__file__).read_bytes(), **files})


def ship_code(spark: SparkSession, modules: Iterable[str], py_files: Sequence[str] = ()) -> None:
    """Let the workers of a session import the files given, and on other machines modules of this process.

    Wheels that a server installed travel to workers on this machine, too: they are not where Python looks for packages.
    """
    for path in map(Path, py_files):
        _ship_file(spark, path)
    elsewhere = may_be_elsewhere(spark)
    roots = {_root(name) for name in used_modules(modules) if elsewhere or name.startswith(WHEEL_PREFIX)}
    files = {path: data for root in sorted(roots) for path, data in _sources(root)}
    if files:
        _ship(spark, "modules", files)


def used_modules(names: Iterable[str]) -> set[str]:
    """The modules of these names, and those that they use, without installed ones."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        module = sys.modules.get(name)
        if module is None or name in found or not _must_travel(module):
            continue
        found.add(name)
        for value in list(vars(module).values()):
            used = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            if isinstance(used, str):
                waiting.append(used)
    return found


def _must_travel(module: ModuleType) -> bool:
    """Whether workers cannot be expected to have a module."""
    top = module.__name__.partition(".")[0]
    if top in sys.stdlib_module_names or top in ("headrace", "__main__"):
        return False
    return module.__file__ is not None and not _INSTALLED & set(Path(module.__file__).parts)


def _root(name: str) -> str:
    """The module or package to send: the outermost package, below those without a file `__init__.py`."""
    parts = name.split(".")
    outer = (".".join(parts[:count]) for count in range(1, len(parts)))
    return next((package for package in outer if sys.modules[package].__file__ is not None), name)


def _sources(name: str) -> Iterator[tuple[str, bytes]]:
    """The files of a module, or of a package with all that is below it."""
    module, place = sys.modules[name], name.replace(".", "/")
    file = Path(str(module.__file__))
    if hasattr(module, "__path__"):
        yield from ((f"{place}/{below}", data) for below, data in _files_below(file.parent))
    else:
        yield f"{place}.py", file.read_bytes()


def _files_below(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(folder).as_posix(), path.read_bytes()


def _ship_file(spark: SparkSession, path: Path) -> None:
    if path.is_dir():
        _ship(spark, path.name, {f"{path.name}/{name}": data for name, data in _files_below(path)})
    elif path.suffix == ".py" and path.is_file():
        _ship(spark, path.stem, {path.name: path.read_bytes()})
    elif path.suffix in _ARCHIVES and path.is_file():
        _send(spark, path.stem, path.read_bytes())
    else:
        raise HostError(
            "py_files= names code to send to workers",
            given=str(path),
            allowed=f"a file .py, {', '.join(_ARCHIVES)}, or the directory of a package",
            instead="the path of such a file on this machine",
        )


def _ship(spark: SparkSession, name: str, files: dict[str, bytes]) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        folders = {f"{parent}/" for path in files for parent in PurePosixPath(path).parents if parent.name}
        for folder in sorted(folders):  # Python needs them to find packages without a file `__init__.py`
            archive.writestr(zipfile.ZipInfo(folder, _DATE), b"")
        for path, content in files.items():
            archive.writestr(zipfile.ZipInfo(path, _DATE), content, zipfile.ZIP_DEFLATED)
    _send(spark, name, data.getvalue())


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """The archives, while this process lives: an executor that starts later fetches them, too."""
    return tempfile.TemporaryDirectory(prefix="headrace-archives-")


def _send(spark: SparkSession, name: str, archive: bytes) -> None:
    """Send an archive; its name contains its checksum, so that nothing is sent twice, and nothing is overwritten."""
    name = f"{name}-{hashlib.sha256(archive).hexdigest()[:16]}.zip"
    owner: object = spark if is_connect(spark) else spark.sparkContext  # which all sessions of a classic Spark share
    shipped = _SHIPPED.setdefault(owner, set())
    if name in shipped:
        return
    path_here, path = list(sys.path), Path(_folder().name, name)
    path.write_bytes(archive)
    spark.addArtifacts(str(path), pyfile=True)
    sys.path[:] = path_here  # Spark has added the archive, but this process has the modules
    shipped.add(name)
