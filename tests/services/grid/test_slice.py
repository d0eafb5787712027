"""A seeded slice of the fault grid for rows that need a service: each row meets some columns of every family."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator

import pytest
from tests.fixtures.s3_server import S3Server
from tests.grid.run import DISRUPTIONS, FEATURES, run_cell, workplace
from tests.grid.servers import servers
from tests.services.broker import Broker
from tests.services.database import Database

#: How many columns of each family a row meets; they are dealt in turn, so that every column meets some rows.
CELLS = {
    "killed": 2, "process": 1, "store": 1, "disk": 1, "task": 1, "damage": 2, "rival": 2, "change": 2, "clock": 1,
    "network": 3,
}  # fmt: skip
SEED = 24
SERVICES = {name: feature for name, feature in FEATURES.items() if feature.services}


def dealt() -> dict[str, list[str]]:
    """The columns of each row: of each family, from the one on at which the row before has stopped."""
    draw = random.Random(SEED)
    decks: dict[str, list[str]] = defaultdict(list)
    for disruption in DISRUPTIONS.values():
        if "local" not in disruption.not_on:
            decks[disruption.family].append(disruption.name)
    found: dict[str, list[str]] = {name: [] for name in SERVICES}
    for family, count in CELLS.items():
        deck = draw.sample(decks[family], len(decks[family]))
        for name, feature in SERVICES.items():
            fitting = [card for card in deck if DISRUPTIONS[card].why_not(feature) is None][:count]
            found[name] += fitting
            deck = [*(card for card in deck if card not in fitting), *fitting]
    return found


SLICE = dealt()


@pytest.fixture
def _services(
    broker: Broker, database: Database, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)  # rows set others, which are taken back
    servers.use(broker=broker, database=database, objects=s3_server)
    return


def test_every_column_that_fits_some_row_is_in_the_slice():
    fitting = {d.name for d in DISRUPTIONS.values() for row in SERVICES.values() if d.why_not(row) is None}
    assert {name for names in SLICE.values() for name in names} == fitting


@pytest.mark.usefixtures("_services")
@pytest.mark.parametrize("name", SERVICES)
def test_row(name: str):
    with workplace(SERVICES[name]) as place:
        results = [run_cell(place, DISRUPTIONS[disruption], SEED) for disruption in SLICE[name]]
    wrong = [f"{result.disruption}: {result.text}" for result in results if result.outcome == "wrong"]
    assert not wrong, "\n".join(wrong)
