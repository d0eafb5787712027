"""How soon the default run catches each planted fault: `python -m tests.verification.catch [FAULT …]`.

Cases are tried in the order of the default run. Every fault that is not caught yet is switched on alone for each, and
what caught it first is written to `caught.json`, which `test_caught.py` replays: the same seed makes the same case.
A case in which the faulty function does not run says nothing about it, and is passed over.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tests.verification.faults import FAULTS, fault
from tests.verification.planting import planted, site

from headrace.history.duckdb import DuckDBHistory
from headrace.testing.verify.campaign import default_cases, try_case

CAUGHT = Path(__file__).with_name("caught.json")
SEED = 0

#: What caught a fault.
Found = dict[str, Any]


def catch(names: list[str], limit: int) -> Iterator[tuple[str, Found | None]]:
    """The first case of the default run that fails with each fault; None if none of so many does."""
    left = {name: site(fault(name)) for name in names}
    oracle = DuckDBHistory()
    try:
        for number, (intent, case) in enumerate(islice(default_cases(SEED), limit), 1):
            if not left:
                return
            right, ran = _watched(lambda case=case: try_case(case, oracle, shrinking=0), left)
            if right is not None:  # it would be caught whatever the fault
                print(f"{case.name} of {intent} fails without any fault: {right}", file=sys.stderr)  # noqa: T201
                continue
            for name in ran:
                with planted(fault(name)):
                    failure = try_case(case, oracle, shrinking=0)
                if failure is not None:
                    del left[name]
                    yield name, {"intent": intent, "case": case.name, "check": failure.check, "streams": number}
    finally:
        oracle.close()
    yield from ((name, None) for name in left)


def _watched(run: Callable[[], Any], functions: Mapping[str, CodeType | None]) -> tuple[Any, list[str]]:
    """What a call gives, and the names of the functions that ran meanwhile; those without code always count as such."""
    seen: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            seen.add(frame.f_code)

    sys.setprofile(note)
    try:
        given = run()
    finally:
        sys.setprofile(None)
    return given, [name for name, code in functions.items() if code is None or code in seen]


def _caught(job: tuple[list[str], int]) -> list[tuple[str, Found | None]]:
    return list(catch(*job))


def _all(names: list[str], limit: int, jobs: int) -> Iterator[tuple[str, Found | None]]:
    if jobs == 1:
        yield from catch(names, limit)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for found in pool.imap_unordered(_caught, [(names[job::jobs], limit) for job in range(jobs)]):
            yield from found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("faults", nargs="*")
    parser.add_argument("--limit", type=int, default=1500)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    known = json.loads(CAUGHT.read_text()) if CAUGHT.exists() else {}
    names = options.faults or [one.name for one in FAULTS]
    begun = time.monotonic()
    for name, found in _all(names, options.limit, options.jobs):
        known[name] = found
        told = f"{found['streams']:5} streams, by {found['check']}" if found else "not caught"
        print(f"{name:50} {told} ({time.monotonic() - begun:.0f} s)", flush=True)  # noqa: T201 - a program
        CAUGHT.write_text(json.dumps(dict(sorted(known.items())), indent=1, ensure_ascii=False) + "\n")
    caught = [found["streams"] for found in known.values() if found]
    median = statistics.median(caught)
    print(f"caught {len(caught)} of {len(known)}, by the median after {median:.0f} streams")  # noqa: T201 - a program


if __name__ == "__main__":
    main()
