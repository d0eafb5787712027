"""The workers of a cluster: what they run, beside what the driver runs.

Every worker gets Headrace from the driver (`shipping.py`), but Python and the packages that Headrace builds on are its
own. A query on workers that cannot run it is refused at its start, with the differences.
"""

from __future__ import annotations

import importlib
import json
import logging
import platform
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from headrace.errors import HeadraceError, HostError
from headrace.host.spark.failures import failure
from headrace.host.spark.session import is_connect
from headrace.host.spark.shipping import may_be_elsewhere, ship_headrace
from headrace.store.environment import Environment
from headrace.store.storage import Storage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = [
    "WorkerFacts", "clock_offset", "cluster_cores", "differences", "examine", "own_facts", "prepare_workers",
    "reach_storage",
]  # fmt: skip

_log = logging.getLogger("headrace")
#: Packages that every query needs on every worker; the other ones are for some sources, sinks and stores.
NEEDED = ("pyarrow", "numpy", "numba", "pandas", "sqlglot", "lark", "duckdb", "rich")
OPTIONAL = ("obstore", "confluent-kafka", "psycopg", "deltalake")
_PREPARED: WeakSet[Any] = WeakSet()


@dataclass(frozen=True)
class WorkerFacts:
    """What a Python process of a worker runs; `error` if Headrace could not be imported there."""

    host: str
    python: str
    packages: dict[str, str] = field(default_factory=dict)
    clock: float = 0.0
    error: str = ""


def prepare_workers(spark: SparkSession) -> None:
    """Ship Headrace to workers on other machines and check them, once for each session."""
    owner = spark if is_connect(spark) else spark.sparkContext
    if owner in _PREPARED or not may_be_elsewhere(spark):
        return
    ship_headrace(spark)
    check(own_facts(), examine(spark))
    _PREPARED.add(owner)


def cluster_cores(spark: SparkSession) -> int:
    """The tasks that Spark runs at once: the partitions that it gives to rows of no source."""
    if not is_connect(spark):
        return spark.sparkContext.defaultParallelism
    # A Connect client cannot ask; but it can look at the numbers of partitions.
    frame = spark.sql("SELECT max(p) FROM (SELECT spark_partition_id() AS p FROM range(100000))")
    return int(frame.collect()[0][0]) + 1


def reach_storage(spark: SparkSession, storage: Storage, place: str) -> list[str]:
    """Let every worker read a file of the driver from a store, and write one; return the failures, by worker."""
    tasks, folder = cluster_cores(spark), f"headrace-doctor-{uuid.uuid4().hex}"
    keys = [f"{folder}/{task}" for task in range(tasks)]
    try:
        storage.create(f"{folder}/driver", folder.encode())
        task = _StorageTask(storage, folder, Environment([place]))
        failures = spark.range(0, tasks, 1, tasks).mapInArrow(task, "failure string").collect()
        found = [row[0] for row in failures if row[0]]
        return found or [f"the driver does not find {key}" for key in keys if key not in storage.sizes(folder)]
    except HeadraceError as error:
        return [f"the driver: {error}"]
    finally:
        for key in [f"{folder}/driver", *keys]:
            with suppress(HeadraceError):
                storage.remove(key)


def clock_offset(spark: SparkSession) -> float:
    """The most seconds by which a worker's clock is certainly ahead of the driver's, or behind it (negative)."""
    start = time.time()
    workers = examine(spark)
    end = time.time()
    offsets = [max(0.0, worker.clock - end) + min(0.0, worker.clock - start) for worker in workers]
    return max(offsets, key=abs, default=0.0)


def own_facts() -> WorkerFacts:
    """Those of this process."""
    return WorkerFacts(**_facts(NEEDED + OPTIONAL)())


def examine(spark: SparkSession) -> list[WorkerFacts]:
    """The facts of every worker that a job with a task for each core reaches, one for each Python process."""
    tasks = cluster_cores(spark)
    try:
        rows = spark.range(0, tasks, 1, tasks).mapInArrow(_examiner(), "facts string").collect()
    except Exception as error:  # noqa: BLE001 - Spark raises what Python, Java and gRPC raise
        raise _unable(error) from None
    return [WorkerFacts(**json.loads(row[0])) for row in rows]


def check(driver: WorkerFacts, workers: Sequence[WorkerFacts]) -> None:
    """Refuse workers that cannot run the driver's queries; log what differs and may do no harm."""
    for worker in workers:
        found = differences(driver, worker)
        if any(fatal for _, fatal in found) or worker.error:
            texts = [text for text, fatal in found if fatal] or [worker.error]
            raise HostError(
                f"the worker on {worker.host} cannot run this query",
                given="; ".join(texts),
                allowed="the driver's Python 3.x and the packages of Headrace, of the same major version",
                instead="an environment like the driver's on every worker, and its interpreter as PYSPARK_PYTHON; "
                "headrace doctor --master URL compares all",
            )
        for text, _ in found:
            _log.warning("the worker on %s has other packages than the driver: %s", worker.host, text)


def differences(driver: WorkerFacts, worker: WorkerFacts) -> list[tuple[str, bool]]:
    """What a worker lacks or has in another version, and whether queries cannot run with it."""
    found = []
    if _minor(driver.python) != _minor(worker.python):
        found.append((f"Python {worker.python}, and {driver.python} at the driver", True))
    for package, version in driver.packages.items():
        other = worker.packages.get(package)
        needed = package in NEEDED
        if other is None:
            found.append((f"no {package}, and {version} at the driver", needed))
        elif other != version:
            found.append(
                (f"{package} {other}, and {version} at the driver", needed and _major(other) != _major(version))
            )
    return found


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


def _major(version: str) -> str:
    return version.partition(".")[0]


def _unable(error: Exception) -> HostError:
    """Workers that could not even be examined."""
    cause = str(failure(error, "the examination of the workers"))
    return HostError(
        f"the workers cannot run Python functions: {cause.removeprefix('[HOST] ')}",
        given=f"Python {platform.python_version()} here",
        instead="the same Python 3.x on every worker, with pyarrow and pandas; PYSPARK_PYTHON is its path there",
    )


class _StorageTask:
    """The function for `mapInArrow` over a range: each row is the number of a task, which reads and writes a file."""

    def __init__(self, storage: Storage, folder: str, environment: Environment) -> None:
        self.storage, self.folder, self.environment = storage, folder, environment

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for rows in batches:
            failures = [self._failure(task) for task in rows.column(0).to_pylist()]
            yield pa.RecordBatch.from_pydict({"failure": failures})

    def _failure(self, task: int) -> str:
        try:
            self.storage.read(f"{self.folder}/driver")
            self.storage.create(f"{self.folder}/{task}", str(task).encode())
        except (HeadraceError, OSError) as error:
            return f"{platform.node()}: {type(error).__name__}: {error}"
        return ""


def _facts(packages: tuple[str, ...]) -> Callable[[], dict[str, Any]]:
    """A function that runs where there is no Headrace: all that it uses is inside."""

    def facts() -> dict[str, Any]:
        import platform
        import time
        from importlib import metadata

        versions = {}
        for package in packages:
            try:
                versions[package] = metadata.version(package)
            except metadata.PackageNotFoundError:
                continue
        return {
            "host": platform.node(), "python": platform.python_version(), "packages": versions, "clock": time.time(),
        }  # fmt: skip

    return facts


def _examiner() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    facts = _facts(NEEDED + OPTIONAL)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for _ in batches:
            found = facts()
            try:
                importlib.import_module("headrace.host.spark.worker")
            except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
                found["error"] = f"{type(error).__name__}: {error}"
            yield pa.RecordBatch.from_pydict({"facts": [json.dumps(found)]})

    return run
