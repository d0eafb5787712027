"""`headrace doctor --master URL`: check the workers of a cluster beside this machine.

Nothing is installed on them: they get the driver's Headrace, as in a query (`host/spark/shipping.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.cli.doctor import DoctorCheck
from headrace.errors import HeadraceError
from headrace.host.saved.folder import storage_at
from headrace.host.spark.session import get_session
from headrace.host.spark.shipping import ship_headrace
from headrace.host.spark.workers import (
    WorkerFacts,
    clock_offset,
    cluster_cores,
    differences,
    examine,
    own_facts,
    reach_storage,
)

__all__ = ["clock_check", "cluster_checks", "package_checks", "worker_check"]

#: Seconds by which clocks may differ: more is worth a warning; object stores refuse requests at 15 minutes.
WARN_OFFSET, MAX_OFFSET = 1.0, 300.0


def cluster_checks(master: str, place: str | None) -> list[DoctorCheck]:
    """All checks of a cluster; if its workers cannot run Python, only that."""
    try:
        session = get_session(master, app="headrace doctor")
    except HeadraceError as error:
        return [DoctorCheck("cluster", str(error), ok=False, advice="check the URL, and that the master runs")]
    try:
        ship_headrace(session)
        workers = examine(session)
        results = [worker_check(workers, cluster_cores(session)), *package_checks(own_facts(), workers)]
        if all(check.ok for check in results):
            results.append(clock_check(clock_offset(session)))
            results += [storage_check(place, reach_storage(session, storage_at(place), place))] if place else []
    except HeadraceError as error:
        return [DoctorCheck("workers", str(error), ok=False, advice="set PYSPARK_PYTHON to an interpreter on workers")]
    finally:
        session.stop()
    return results


def worker_check(workers: Sequence[WorkerFacts], cores: int) -> DoctorCheck:
    """Headrace can be imported on every worker."""
    hosts = sorted({worker.host for worker in workers})
    found = f"{cores} cores, on {', '.join(hosts)}"
    errors = sorted({f"{worker.host}: {worker.error}" for worker in workers if worker.error})
    if errors:
        advice = "install what is missing there: all packages that the driver's Headrace needs"
        return DoctorCheck("workers", f"{found}; {'; '.join(errors)}", ok=False, advice=advice)
    return DoctorCheck("workers", found, ok=True)


def package_checks(driver: WorkerFacts, workers: Iterable[WorkerFacts]) -> list[DoctorCheck]:
    """Python and packages of workers are those of the driver."""
    wrong: dict[str, bool] = {}
    for worker in workers:
        for text, fatal in differences(driver, worker):
            wrong[f"{text} ({worker.host})"] = fatal
    if not wrong:
        packages = ", ".join(f"{name} {version}" for name, version in driver.packages.items())
        return [DoctorCheck("packages there", f"as here: Python {driver.python}, {packages}", ok=True)]
    advice = {
        True: "install the driver's version on every worker",
        False: "answers are checked with equal versions only; a package for some sources or sinks may be missing",
    }
    return [DoctorCheck("packages there", text, not fatal, advice[fatal]) for text, fatal in sorted(wrong.items())]


def clock_check(offset: float) -> DoctorCheck:
    """The clocks of workers are that of the driver."""
    if abs(offset) < WARN_OFFSET:
        return DoctorCheck("clocks there", f"as here, within {WARN_OFFSET:g} s and the time of a job", ok=True)
    found = f"a worker is {abs(offset):.0f} s {'ahead' if offset > 0 else 'behind'}"
    advice = "let all machines synchronise their clocks (NTP): object stores refuse requests with another time"
    return DoctorCheck("clocks there", found, abs(offset) < MAX_OFFSET, advice)


def storage_check(place: str, failures: Sequence[str]) -> DoctorCheck:
    """Workers read what the driver writes to a place, and the other way round."""
    if not failures:
        return DoctorCheck("storage there", f"{place}: workers read and write", ok=True)
    advice = "a place that every machine reaches: an object store with its keys set here, or a mounted directory"
    return DoctorCheck("storage there", f"{place}: {failures[0]}", ok=False, advice=advice)
