"""Planted faults are caught by the default run: what caught each first is known, and is tried again with the fault.

`python -m tests.verification.catch` finds it anew; the seed makes the same cases everywhere.
"""

from __future__ import annotations

import json
from itertools import islice

import pytest
from tests.verification.catch import CAUGHT, SEED
from tests.verification.faults import FAULTS, fault
from tests.verification.planting import planted

from headrace.history.duckdb import DuckDBHistory
from headrace.testing.intents import read_intent
from headrace.testing.verify.campaign import cases_of_intent, try_case
from headrace.testing.verify.case import VerifyCase

KNOWN = json.loads(CAUGHT.read_text())


def case_that_caught(name: str) -> VerifyCase:
    number = int(KNOWN[name]["case"].partition(":")[2])
    return next(islice(cases_of_intent(read_intent(KNOWN[name]["intent"]), SEED), number, None))


def test_every_fault_is_caught():
    assert [name for name, found in KNOWN.items() if found is None] == []
    assert set(KNOWN) == {one.name for one in FAULTS}


@pytest.mark.parametrize("name", [one.name for one in FAULTS])
def test_a_fault_is_caught_by_the_default_run(name: str):
    """What caught it first is tried again, with the fault and without."""
    oracle = DuckDBHistory()
    try:
        with planted(fault(name)):
            failure = try_case(case_that_caught(name), oracle, shrinking=0)
        assert failure is not None
        assert failure.check == KNOWN[name]["check"]
        assert try_case(case_that_caught(name), oracle, shrinking=0) is None
    finally:
        oracle.close()
