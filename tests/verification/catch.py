"""How soon the default run catches each planted fault: `python -m tests.verification.catch [FAULT …]`.

Every fault is switched on alone, and cases are tried in the order of the default run until one fails. What caught it is
written to `caught.json`, which `test_caught.py` replays: the same seed makes the same case.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from tests.verification.faults import FAULTS, fault
from tests.verification.planting import planted

from headrace.history.duckdb import DuckDBHistory
from headrace.testing.verify.campaign import default_cases, try_case

CAUGHT = Path(__file__).with_name("caught.json")
SEED = 0


def catch(name: str, limit: int) -> dict[str, Any] | None:
    """The first case of the default run that fails with the fault; None if none of so many does."""
    oracle = DuckDBHistory()
    try:
        with planted(fault(name)):
            for number, (intent, case) in enumerate(islice(default_cases(SEED), limit), 1):
                failure = try_case(case, oracle, shrinking=0)
                if failure is not None:
                    return {"intent": intent, "case": case.name, "check": failure.check, "streams": number}
    finally:
        oracle.close()
    return None


def _one(job: tuple[str, int]) -> tuple[str, dict[str, Any] | None, float]:
    begun = time.monotonic()
    return job[0], catch(*job), time.monotonic() - begun


def _all(names: list[str], limit: int, jobs: int) -> Iterator[tuple[str, dict[str, Any] | None, float]]:
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=4) as pool:
        yield from pool.imap_unordered(_one, [(name, limit) for name in names])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("faults", nargs="*")
    parser.add_argument("--limit", type=int, default=1500)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    known = json.loads(CAUGHT.read_text()) if CAUGHT.exists() else {}
    names = options.faults or [one.name for one in FAULTS]
    for name, found, seconds in _all(names, options.limit, options.jobs):
        known[name] = found
        told = f"{found['streams']:5} streams, by {found['check']}" if found else "not caught"
        print(f"{name:50} {told} ({seconds:.0f} s)", flush=True)  # noqa: T201 - a program
        CAUGHT.write_text(json.dumps(dict(sorted(known.items())), indent=1, ensure_ascii=False) + "\n")
    caught = [found["streams"] for found in known.values() if found]
    median = statistics.median(caught)
    print(f"caught {len(caught)} of {len(known)}, by the median after {median:.0f} streams")  # noqa: T201 - a program


if __name__ == "__main__":
    main()
