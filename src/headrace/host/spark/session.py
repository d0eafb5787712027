"""Spark sessions: all options that Headrace sets, each with its reason.

Only public API is used, so the same code serves a local master, a cluster and a Spark Connect server. There are two
kinds of options. *Launch options* must be known before the JVM starts; they apply when Headrace starts the session.
*Query options* are SQL options that a running session accepts. The session may belong to the user: a query runs in a
new session `beside` it, and the given one stays as it is.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib
import os
import shutil
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cache import cache_folder
from headrace.errors import HostError
from headrace.host.spark.failures import explaining, failure
from headrace.io.temporary import log_file

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["beside", "get_session", "is_connect", "warm_up"]

MASTER_VARIABLE = "HEADRACE_MASTER"
LEVEL_VARIABLE = "HEADRACE_LOG_LEVEL"
LOG_VARIABLE = "HEADRACE_SPARK_LOG"
ARCHIVE_VARIABLE = "HEADRACE_CLASS_ARCHIVE"
_HOUR = 3600

# option, value, reason
_LAUNCH: tuple[tuple[str, str, str], ...] = (
    ("spark.ui.enabled", "false", "saves start-up time and memory; with it, a batch is a job under its query's name"),
    ("spark.ui.showConsoleProgress", "false", "progress bars would run through the answers on a terminal"),
    ("spark.driver.memory", "2g", "a shuffle of 16 MB chunks fits with room; the data stays in Python"),
    ("spark.python.worker.reuse", "true", "workers keep the stages they have run between batches"),
    (
        "spark.python.unix.domain.socket.enabled",
        "true",
        "chunks cross a Unix socket, quicker than TCP for a small batch",
    ),
    (
        "spark.hadoop.fs.AbstractFileSystem.file.impl",
        "org.apache.hadoop.fs.local.RawLocalFs",
        "Spark's log of what only it can read: no .crc twin files, each of which costs a forked chmod",
    ),
    ("spark.locality.wait", "0s", "a free core is always better than a wait for a nearer one"),
    ("spark.task.maxFailures", "4", "a dead Python worker costs a retry, not the query (a cluster's default)"),
)

# Only for a local master: on a cluster, workers of a machine without Headrace should fail with their own message.
_LOCAL: tuple[tuple[str, str, str], ...] = (
    (
        "spark.python.daemon.module",
        "headrace.host.spark.daemon",
        "workers are forked from a process that has imported Headrace: once, not once for each",
    ),
)

# A local JVM schedules and stores while Python computes, on the same few cores. The optimising compiler starts ten
# times later than usual, to leave the cores to the first batches; code that stays hot is still optimised. Stopping at
# the first compiler (-XX:TieredStopAtLevel=1) starts sooner still, but slows Spark's own readers and aggregates.
_LOCAL_JVM = (
    "-Xss16m",  # stopping in mid-batch, Spark matches the Python error text with a regex that overflows 4 MB stacks
    "-XX:+UseSerialGC",
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)

_QUERY: tuple[tuple[str, str, str], ...] = (
    ("spark.sql.adaptive.enabled", "false", "partition i of a shuffle must stay bucket i"),
    ("spark.sql.execution.arrow.useLargeVarTypes", "false", "chunks stay far below the 2 GB limit of small binaries"),
    (
        "spark.sql.execution.arrow.maxRecordsPerBatch",
        "10000",
        "a row is a chunk: there are a few hundred at most",
    ),
    ("spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled", "true", "a user's error without Spark's frames"),
    ("spark.sql.variable.substitute", "false", "a text such as ${env:SECRET} is a text, not what it names"),
)


def get_session(
    master: str | None = None,
    options: Mapping[str, str] | None = None,
    app: str = "headrace",
    log: str | Path | None = None,
) -> SparkSession:
    """The active Spark session, or a new one.

    `master` is any Spark master URL, `sc://host:port` for a Connect server, or `remote:local[2]` for a Connect server
    started in this process; the default is HEADRACE_MASTER, else all cores of this machine. `options` are Spark options
    and take precedence. The standard error of the JVM and the Python workers goes to the file `log` (or
    HEADRACE_SPARK_LOG), by default to a file in the temporary directory.
    """
    wanted = master or os.environ.get(MASTER_VARIABLE)
    active = _active()
    if active is not None:
        _check_kind(active, wanted)
        return active
    url = wanted or f"local[{os.cpu_count() or 1},4]"
    _check_java(url)
    _use_this_python()
    named = log or os.environ.get(LOG_VARIABLE)
    file = Path(named) if named else _quiet_log()
    session = _start(url, _launch_options(url, options or {}, app), file)
    if not named:  # after a failed start the file stays
        atexit.register(lambda: file.unlink(missing_ok=True))
    return session


def _quiet_log() -> Path:
    """A file for the messages of the JVM and its workers."""
    return log_file("spark")


def beside(spark: SparkSession, options: Mapping[str, str] | None = None) -> SparkSession:
    """A new session of the same Spark with the options of a given one, and `options`, by default those of queries."""
    session = spark.newSession()
    current, known = spark.conf.getAll, session.conf.getAll
    for name, value in current.items():
        if known.get(name) != value:
            with suppress(Exception):  # static options hold for every session
                session.conf.set(name, value)
    new = {name: value for name, value, _ in _QUERY} if options is None else options
    for name, value in new.items():
        session.conf.set(name, value)
    return session


def is_connect(spark: SparkSession) -> bool:
    """Whether `spark` talks to a Spark Connect server."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def warm_up(spark: SparkSession, modules: Sequence[str] = (), workers: int = 2) -> threading.Thread:
    """Start Python workers and import `modules` in them, in the background, while the query is being built.

    This takes the start of workers out of the first batch. Failures are ignored: the query itself will report them.
    """

    def run() -> None:
        with suppress(Exception):
            spark.range(0, workers, 1, workers).mapInArrow(_importer(tuple(modules)), "id long").collect()

    thread = threading.Thread(target=run, name="headrace-warm-up", daemon=True)
    thread.start()
    return thread


def _importer(modules: tuple[str, ...]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def load(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for name in modules:
            importlib.import_module(name)
        yield from batches

    return load


def _active() -> SparkSession | None:
    from pyspark.sql import SparkSession

    with explaining(lambda error: failure(error, "Spark's session")):
        return SparkSession.getActiveSession()


def _check_kind(active: SparkSession, wanted: str | None) -> None:
    if wanted is not None and _remote(wanted) is not None and not is_connect(active):
        raise HostError(
            "a classic Spark session is active, and a process can hold only one kind of session",
            given=wanted,
            allowed="the active session",
            instead="spark.stop() first, or start the Connect client in a process of its own",
        )


def _remote(url: str) -> str | None:
    """The argument of `builder.remote`, or None for a classic master."""
    if url.startswith("sc://"):
        return url
    return url.removeprefix("remote:") if url.startswith("remote:") else None


def _check_java(url: str) -> None:
    if url.startswith(("sc://", "remote:sc://")):
        return
    home = os.environ.get("JAVA_HOME")
    if (home and Path(home, "bin", "java").exists()) or (not home and shutil.which("java")):
        return
    raise HostError(
        f"Spark needs Java, and JAVA_HOME={home!r} has no bin/java"
        if home
        else "Spark needs Java, and there is none on the PATH",
        allowed="Java 17, 21 or 25",
        instead="install a JDK (say openjdk-17-jre-headless), set JAVA_HOME, or give an sc:// URL as the master",
    )


def _use_this_python() -> None:
    """Let workers run this interpreter: by default Spark takes the first python3 on the PATH."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def _launch_options(url: str, options: Mapping[str, str], app: str) -> dict[str, str]:
    """All options for the builder; `options` take precedence, except that JVM options are joined."""
    remote = _remote(url)
    if remote is not None and not remote.startswith("local"):
        return {"spark.app.name": app, **options}
    jvm = "spark.driver.extraJavaOptions"
    defaults = {name: value for name, value, _ in _LAUNCH} | {name: value for name, value, _ in _QUERY}
    local = (remote or url).startswith("local")
    if local:
        defaults |= {name: value for name, value, _ in _LOCAL}
    merged = {"spark.app.name": app, **defaults, **options}
    merged[jvm] = " ".join(
        [*_log_flags(), *(_LOCAL_JVM if local else ()), *_archive_flags(), options.get(jvm, "")]
    ).strip()
    return merged


def _log_flags() -> list[str]:
    file = Path(__file__).with_name("log4j2.properties")
    level = os.environ.get(LEVEL_VARIABLE, "error").lower()
    tasks = "off" if level == "error" else level
    return [
        f"-Dlog4j2.configurationFile={file.as_uri()}",
        f"-Dheadrace.level={level}",
        f"-Dheadrace.task.level={tasks}",
    ]


def _archive_flags() -> list[str]:
    """Java's archive of loaded classes: the first JVM writes it when it ends, and later ones start a third faster.

    HEADRACE_CLASS_ARCHIVE names another file for it (about 160 MB), or is `off`. Java checks the archive against the
    jars, and ignores one that does not fit.
    """
    wanted = os.environ.get(ARCHIVE_VARIABLE)
    archive = None if wanted == "off" else Path(wanted) if wanted else _default_archive()
    if archive is None or not (archive.exists() or _to_be_written(archive)):
        return []
    use = "SharedArchiveFile" if archive.exists() else "ArchiveClassesAtExit"
    path = str(archive).replace("\\", "\\\\").replace('"', '\\"')  # it may contain spaces
    return [f'"-XX:{use}={path}"', "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr"]


def _default_archive() -> Path | None:
    """The archive in the cache folder for this Java and this Spark."""
    import pyspark

    folder = cache_folder("classes")
    java = Path(os.environ.get("JAVA_HOME") or Path(shutil.which("java") or "java").resolve().parents[1])
    jars = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent, "jars")
    if folder is None or not (java / "release").is_file() or not jars.is_dir():
        return None
    about = [(java / "release").read_text(), pyspark.__version__, str(jars), str(jars.stat().st_mtime_ns)]
    return folder / f"{hashlib.sha256(chr(10).join(about).encode()).hexdigest()[:16]}.jsa"


def _to_be_written(archive: Path) -> bool:
    """Whether this process is the one that writes it; if it fails, another may try an hour later."""
    mark = archive.with_suffix(".writing")
    try:
        with suppress(FileNotFoundError):
            if time.time() - mark.stat().st_mtime > _HOUR:
                mark.unlink()
        mark.touch(exist_ok=False)
    except OSError:
        return False
    return True


def _start(url: str, options: Mapping[str, str], log: str | Path | None) -> SparkSession:
    from pyspark.sql import SparkSession

    remote = _remote(url)
    builder = SparkSession.builder.remote(remote) if remote is not None else SparkSession.builder.master(url)
    for name, value in options.items():
        builder = builder.config(name, value)
    try:
        with _stderr_to(log), warnings.catch_warnings():
            # A Connect session starts its server with the launch options, then warns that it cannot set them again.
            warnings.filterwarnings("ignore", message="Failed to set spark")
            return builder.getOrCreate()
    except Exception as error:
        raise _failure(url, log, error) from error


def _failure(url: str, log: str | Path | None, error: Exception) -> HostError:
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    where = f"; read {log}" if log else f"; set {LEVEL_VARIABLE}=info to see Spark's messages"
    remote = _remote(url)
    advice = (
        "check that the Connect server runs and that pyspark[connect] has its version"
        if remote is not None and remote.startswith("sc://")
        else "check `java -version` (17, 21 or 25), the master URL and the Spark options given"
    )
    return HostError(f"the Spark session could not start: {first}", given=url, instead=advice + where)


@contextmanager
def _stderr_to(log: str | Path | None) -> Iterator[None]:
    """While the JVM starts, let descriptor 2 be `log`: the JVM and its Python workers inherit it."""
    if log is None:
        yield
        return
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    kept = os.dup(2)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(file, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(file)
