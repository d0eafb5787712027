"""Runs cells: features × disruptions, each cell from a seed."""

from __future__ import annotations

import logging
import os
import random
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pyarrow as pa
from tests.grid.damage import DAMAGES
from tests.grid.disruptions import Disruption
from tests.grid.features import Feature
from tests.grid.kills import KILLS
from tests.grid.network import NETWORK
from tests.grid.processes import PROCESSES
from tests.grid.published import PUBLISHED
from tests.grid.queries import QUERIES
from tests.grid.rivals import RIVALS
from tests.grid.services import SERVICES
from tests.grid.sinks import SINKS
from tests.grid.sources import SOURCES
from tests.grid.store_faults import STORE_FAULTS
from tests.grid.upgrades import UPGRADES
from tests.grid.workers import WORKERS
from tests.grid.world import Cell, HostName, Workplace, Wrong, hook

__all__ = ["DISRUPTIONS", "FEATURES", "CellResult", "Outcome", "run_cell", "run_row", "silence", "workplace"]

FEATURES: dict[str, Feature] = {
    feature.name: feature for feature in [*QUERIES, *SOURCES, *SINKS, *SERVICES, *PUBLISHED]
}
DISRUPTIONS: dict[str, Disruption] = {
    disruption.name: disruption
    for disruption in [*KILLS, *PROCESSES, *WORKERS, *STORE_FAULTS, *DAMAGES, *RIVALS, *UPGRADES, *NETWORK]
}
#: Cells run in memory, where there is a file system for that: what they test does not depend on the device.
MEMORY = next((path for path in ["/dev/shm"] if os.access(path, os.W_OK)), None)  # noqa: S108 - a folder of its own
#: How often a cell is run until a fault takes place.
ATTEMPTS = 5
Outcome = Literal["exact", "typed error", "wrong", "not applicable"]


@dataclass(frozen=True)
class CellResult:
    """How a cell ended: `typed error` if errors were shown before the exact answer, `exact` if none was."""

    feature: str
    disruption: str
    outcome: Outcome
    text: str = ""
    seconds: float = 0.0


def silence() -> None:
    """Log nothing in this process, since cells check errors; and one thread of Arrow is enough for small inputs."""
    logging.disable(logging.CRITICAL)
    pa.set_cpu_count(1)


@contextmanager
def workplace(feature: Feature, host: HostName = "local") -> Iterator[Workplace]:
    """The prepared folder of a feature."""
    with tempfile.TemporaryDirectory(prefix="headrace-grid-", dir=MEMORY) as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        place = Workplace(feature, Path(folder).resolve(), host=host)
        place.prepare()
        yield place


def run_cell(place: Workplace, disruption: Disruption, seed: int = 0) -> CellResult:
    """Run one cell.

    A random call may not be reached, if the run has fewer than the undisturbed one had: then an earlier one is drawn.
    """
    for attempt in range(ATTEMPTS):
        result, reached = _run_once(place, disruption, seed, attempt)
        if reached or result.outcome == "wrong":
            return result
    return replace(result, outcome="wrong", text=f"no fault took place in {ATTEMPTS} attempts")


def _run_once(place: Workplace, disruption: Disruption, seed: int, attempt: int) -> tuple[CellResult, bool]:
    """Run one cell once; say, too, whether a fault took place, if some were aimed at it."""
    names = place.feature.name, disruption.name
    reason = disruption.why_not(place.feature, place.host)
    if reason is not None:
        return CellResult(*names, "not applicable", reason), True
    began = time.monotonic()
    cell = Cell(place, random.Random(f"{seed} {attempt} {names}"), attempt, host=place.host)
    try:
        cell.begin()
        disruption.disturb(cell)
        cell.live()
        cell.check()
    except Wrong as error:
        return CellResult(*names, "wrong", str(error), time.monotonic() - began), True
    except Exception as error:  # noqa: BLE001 - any other error is a wrong cell, and the others still run
        text = "".join(traceback.format_exception(error, limit=-4))
        return CellResult(*names, "wrong", text, time.monotonic() - began), True
    finally:
        hook.rest()
    outcome: Outcome = "typed error" if cell.errors else "exact"
    faults = [*cell.faults, *cell.network]
    reached = not faults or any(fault.happened for fault in faults)
    return CellResult(*names, outcome, "\n".join(cell.errors), time.monotonic() - began), reached


def run_row(feature: str, disruptions: Sequence[str], seed: int = 0, host: HostName = "local") -> list[CellResult]:
    """The cells of one row; if the undisturbed run is wrong, all of them are."""
    try:
        with workplace(FEATURES[feature], host) as place:
            return [run_cell(place, DISRUPTIONS[name], seed) for name in disruptions]
    except Exception as error:  # noqa: BLE001 - as above
        text = "".join(traceback.format_exception(error, limit=-4))
        return [CellResult(feature, name, "wrong", text) for name in disruptions]
