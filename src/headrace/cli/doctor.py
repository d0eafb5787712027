"""`headrace doctor`: check that Headrace can run here, with advice where it cannot.

A check is a function that examines one thing and returns a `DoctorCheck`; it never raises. Arguments of a check default
to the facts of this machine, so that a test can pass those of another one.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headrace.cli.version import installed

__all__ = ["DoctorCheck", "checks", "command"]

MIN_PYTHON = (3, 11)
SUPPORTED_JAVA = (17, 21, 25)
MIN_MEMORY = 4 * 10**9
MIN_DISK, ENOUGH_DISK = 1 * 10**9, 5 * 10**9
# package -> why Headrace needs it
PACKAGES: dict[str, str] = {
    "pyspark": "runs the pipelines",
    "pandas": "PySpark needs it to run Python functions",
    "pyarrow": "holds changes and traces",
    "grpcio": "Spark Connect needs it",
}
_MODULES = {"grpcio": "grpc"}  # where the package's module has another name
_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


@dataclass(frozen=True)
class DoctorCheck:
    """The name of a check, what it found, whether that is good enough, and what to do otherwise.

    Advice on a check that is ok is a warning: Headrace runs, but may not for long.
    """

    name: str
    found: str
    ok: bool
    advice: str = ""

    @property
    def verdict(self) -> str:
        """✓ fine, ! runs, but has advice, ✗ does not run."""
        if not self.ok:
            return "✗"
        return "!" if self.advice else "✓"


def command(
    *,
    spark: Annotated[bool, typer.Option("--spark", help="Also start local Spark and run a tiny query.")] = False,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Also check the workers of this cluster, or of a Connect server.")
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(metavar="PLACE", help="With --master: check that its workers reach this directory or s3:// URL."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False,
) -> None:
    """Check that Python, Java, packages, memory and disk are as Headrace needs them."""
    results = checks()
    if spark:
        results = [*results, spark_check()]
    if master is not None:
        from headrace.cli.cluster import cluster_checks  # it imports PySpark

        results = [*results, *cluster_checks(master, storage)]
    ok = all(check.ok for check in results)
    if as_json:
        typer.echo(json.dumps({"ok": ok, "checks": [asdict(c) for c in results]}, indent=2, ensure_ascii=False))
    else:
        Console().print(table(results))
    if not ok:
        raise typer.Exit(1)


def checks() -> list[DoctorCheck]:
    """All quick checks, in the order in which to fix them."""
    here, temporary = Path.cwd(), Path(tempfile.gettempdir())
    return [
        python_check(),
        java_check(),
        *(package_check(package) for package in PACKAGES),
        memory_check(),
        write_check("temporary directory", temporary),
        write_check("current directory", here),
        disk_check(temporary),
    ]


def table(results: Iterable[DoctorCheck]) -> Table:
    """The checks as a table for the terminal."""
    colours = {"✓": "green", "!": "yellow", "✗": "red"}
    output = Table("check", "found", "", "what to do", title="headrace doctor", title_justify="left")
    for check in results:
        colour = colours[check.verdict]
        output.add_row(check.name, escape(check.found), f"[{colour}]{check.verdict}[/]", escape(check.advice))
    return output


def python_check(version: tuple[int, ...] = tuple(sys.version_info[:3])) -> DoctorCheck:
    """Python is new enough."""
    required = ".".join(map(str, MIN_PYTHON))
    ok = version[:2] >= MIN_PYTHON
    advice = "" if ok else f"install Python {required} or newer and make a new environment with it"
    return DoctorCheck("Python", ".".join(map(str, version)), ok, advice)


def java_check(environment: Mapping[str, str] = os.environ) -> DoctorCheck:
    """The Java that Spark will start: the one at JAVA_HOME, or the first on the PATH."""
    required = " or ".join(map(str, SUPPORTED_JAVA))
    home = environment.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH"))
    location = f"JAVA_HOME={home}" if home else "java on the PATH"
    if java is None:
        return DoctorCheck("Java", "no JAVA_HOME, no java on the PATH", ok=False, advice=f"install Java {required}")
    try:
        # Java prints its version on stderr.
        text = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True).stderr  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        advice = f"point JAVA_HOME at a Java {required}" + (", or unset it" if home else "")
        return DoctorCheck("Java", f"{location} does not run ({type(error).__name__})", ok=False, advice=advice)
    version = java_version(text)
    ok = version in SUPPORTED_JAVA
    found = f"{version or 'unknown version'} ({location})"
    return DoctorCheck("Java", found, ok, "" if ok else f"install Java {required} and point JAVA_HOME at it")


def java_version(text: str) -> int | None:
    """The major version in the output of `java -version`, or None.

    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0_401"')
    (17, 8)
    """
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def package_check(package: str) -> DoctorCheck:
    """The package is installed and can be imported."""
    purpose, version = PACKAGES[package], installed(package)
    if version is None:
        return DoctorCheck(package, "not installed", ok=False, advice=f"pip install {package} ({purpose})")
    try:
        importlib.import_module(_MODULES.get(package, package))
    except Exception as error:  # noqa: BLE001 - a broken package may raise anything
        advice = f"pip install --force-reinstall {package} ({purpose})"
        return DoctorCheck(package, f"{version}, import fails: {error}", ok=False, advice=advice)
    return DoctorCheck(package, version, ok=True)


def memory_check(total: int | None = None) -> DoctorCheck:
    """The memory is enough for a JVM and two Python workers."""
    total = _total_memory() if total is None else total
    ok = total >= MIN_MEMORY
    advice = "" if ok else f"Spark and its Python workers need {_gigabytes(MIN_MEMORY)}: raise the limit or add memory"
    return DoctorCheck("memory", f"{_gigabytes(total)} in all", ok, advice)


def _total_memory() -> int:
    """The memory that this process may use: the machine's, or less if its container has a limit."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    texts = [path.read_text().strip() for path in _CGROUP_LIMITS if path.is_file()]
    return min(limits + [int(text) for text in texts if text.isdigit()])  # "max" means no limit


def write_check(name: str, directory: Path) -> DoctorCheck:
    """A file can be written to the directory: Spark keeps shuffles there, or queries keep checkpoints there."""
    try:
        with tempfile.NamedTemporaryFile(dir=directory, prefix=".headrace-doctor-") as file:
            file.write(b"headrace")
            file.flush()
    except OSError as error:
        advice = "set TMPDIR to a directory that can be written to, or run from another one"
        return DoctorCheck(name, f"{directory}: {error.strerror}", ok=False, advice=advice)
    return DoctorCheck(name, f"{directory}, writable", ok=True)


def disk_check(directory: Path, free: int | None = None) -> DoctorCheck:
    """The disk has room for shuffles, state and checkpoints."""
    try:
        free = shutil.disk_usage(directory).free if free is None else free
    except OSError as error:
        return DoctorCheck(
            "free disk", f"{directory}: {error.strerror}", ok=False, advice="set TMPDIR to another directory"
        )
    advice = "" if free >= ENOUGH_DISK else "make room, or set TMPDIR to a larger disk: shuffles are kept there"
    return DoctorCheck("free disk", f"{_gigabytes(free)} in {directory}", free >= MIN_DISK, advice)


def _gigabytes(size: int) -> str:
    return f"{size / 10**9:.1f} GB"


def spark_check() -> DoctorCheck:
    """A local session starts, and a query runs through the JVM and a Python worker."""
    start = time.perf_counter()
    try:
        total, started = _tiny_query()
    except Exception as error:  # noqa: BLE001 - Spark and the JVM raise errors of many types
        advice = "first fix the problems above; see also Spark's own output"
        return DoctorCheck("Spark", _reason(error), ok=False, advice=advice)
    seconds = time.perf_counter() - start
    found = f"session in {started - start:.1f} s, query in {seconds - (started - start):.1f} s"
    if total != sum(range(1000)):
        return DoctorCheck("Spark", f"{found}, wrong answer {total}", ok=False, advice="reinstall pyspark and pyarrow")
    return DoctorCheck("Spark", found, ok=True)


def _reason(error: Exception) -> str:
    """The most useful line of an error: in a worker's traceback, the line that names the exception."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return next((line for line in lines if re.match(r"[\w.]*(Error|Exception): ", line)), lines[0])[:200]


def _tiny_query() -> tuple[int, float]:
    """The sum of 0..999, computed by a Python worker, and the instant at which the session was ready."""
    from pyspark.sql import SparkSession

    # Otherwise Spark starts its workers with the first python3 on the PATH, not with this one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    options: dict[str, bool | float | int | str | None] = {"spark.ui.enabled": False, "spark.log.level": "ERROR"}
    session = SparkSession.builder.master("local[2]").appName("headrace doctor").config(map=options).getOrCreate()
    started = time.perf_counter()
    try:
        rows = session.range(1000).mapInArrow(lambda batches: batches, "id long").selectExpr("sum(id)").collect()
    finally:
        session.stop()
    return int(rows[0][0]), started
