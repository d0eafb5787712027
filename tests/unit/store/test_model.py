"""Everything that can happen to small runs of the protocol; and the model notices when the protocol is changed."""

from __future__ import annotations

import os

import pytest
from tests.unit.store.model import Broken, Driver, Protocol, Reader, explore

FUZZ = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
SMALL = {
    "two drivers, 3 batches": (3, (Driver(), Driver())),
    "two drivers, one crashes, 2 batches": (2, (Driver(crashes=1), Driver())),
    "two drivers and a reader, 2 batches": (2, (Driver(), Driver(), Reader())),
    "a driver that crashes and a reader, 4 batches": (4, (Driver(crashes=1), Reader())),
}
CHANGE = Driver("look at version", changes=True, first="look at version")
NEW = Driver("look at version", first="look at version")
SMALL |= {
    "a driver that crashes and a change, 3 batches": (3, (NEW._replace(crashes=1), CHANGE)),
    "a driver and a change that crashes, 3 batches": (3, (Driver(), CHANGE._replace(crashes=1))),
}
LARGE = {
    "a driver, a change and a driver after it, 3 batches": (3, (Driver(), CHANGE, NEW)),
    "a driver and two changes, 3 batches": (3, (Driver(), CHANGE, CHANGE)),
    "two drivers that crash, 2 batches": (2, (Driver(crashes=1), Driver(crashes=1))),
    "three drivers, 2 batches": (2, (Driver(), Driver(), Driver())),
    "two drivers, one crashes, and a reader, 2 batches": (2, (Driver(crashes=1), Driver(), Reader())),
    "two drivers and a reader, 4 batches": (4, (Driver(), Driver(), Reader())),
}
RUNS = SMALL | (LARGE if FUZZ else {})

#: What is changed, and in which runs the model sees it.
FAULTS = {
    "no owner": "two drivers, 3 batches",
    "overwrite": "two drivers, 3 batches",
    "no owner, overwrite": "two drivers, 3 batches",
    "no adoption": "two drivers, 3 batches",
    "plan not fixed": "two drivers, 3 batches",
    "publish before commit": "two drivers, one crashes, 2 batches",
    "no resume": "two drivers, one crashes, 2 batches",
    "no floor check": "two drivers, 3 batches",
    "no floor": "two drivers, 3 batches",
    "clean before commit": "two drivers, 3 batches",
    "clean running batch, clean all epochs": "two drivers, 3 batches",
    "pin after floor": "a driver that crashes and a reader, 4 batches",
    "pins before floor": "a driver that crashes and a reader, 4 batches",
    "version ignored": "a driver that crashes and a change, 3 batches",
    "change unpublished": "a driver that crashes and a change, 3 batches",
    "keep one": "two drivers, 3 batches",
    "commits before plans": "two drivers, 3 batches",
    "floor before commits": "two drivers, 3 batches",
}


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_whatever_happens_every_promise_holds(run: str):
    batches, processes = RUNS[run]
    assert explore(Protocol(batches), processes) > 1_000


@pytest.mark.parametrize(("fault", "run"), FAULTS.items())
def test_a_changed_protocol_breaks_a_promise(fault: str, run: str):
    batches, processes = SMALL[run]
    with pytest.raises(Broken) as broken:
        explore(Protocol(batches, frozenset(fault.split(", "))), processes)
    assert broken.value.__notes__, "the way there"


def test_a_way_that_breaks_a_promise_is_told():
    with pytest.raises(Broken) as broken:
        explore(Protocol(1, frozenset({"publish before commit"})), (Driver(), Driver()))
    assert "0: write data" in broken.value.__notes__[0]
