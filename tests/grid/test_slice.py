"""A seeded slice of the fault grid: every feature and every disruption several times; `make grid` runs all cells."""

from __future__ import annotations

import random

import pytest
from tests.grid.run import DISRUPTIONS, FEATURES, run_cell, workplace

#: Each feature meets so many disruptions; they are dealt in turn, so that every disruption meets some features.
CELLS = 5
SEED = 24
#: Columns and rows that need no service; `tests/services/grid` has the others.
CARDS = sorted(d.name for d in DISRUPTIONS.values() if "services" not in d.needs)
LOCAL = {name: feature for name, feature in FEATURES.items() if not feature.services}

pytestmark = pytest.mark.slow


def dealt() -> dict[str, list[str]]:
    """The disruptions of every feature: a shuffled deck, dealt round and round."""
    draw = random.Random(SEED)
    deck: list[str] = []
    found: dict[str, list[str]] = {}
    for name, feature in LOCAL.items():
        found[name] = []
        skipped = []
        while len(found[name]) < CELLS:
            if not deck:
                deck = draw.sample(CARDS, len(CARDS))
            card = deck.pop()
            fits = DISRUPTIONS[card].why_not(feature) is None and card not in found[name]
            (found[name] if fits else skipped).append(card)
        deck += skipped
    return found


SLICE = dealt()


def test_every_disruption_is_in_the_slice():
    here = {name for name in CARDS if "local" not in DISRUPTIONS[name].not_on}
    assert {name for names in SLICE.values() for name in names} == here


@pytest.mark.parametrize("name", LOCAL)
def test_feature(name: str):
    with workplace(FEATURES[name]) as place:
        results = [run_cell(place, DISRUPTIONS[disruption], SEED) for disruption in SLICE[name]]
    wrong = [f"{result.disruption}: {result.text}" for result in results if result.outcome == "wrong"]
    assert not wrong, "\n".join(wrong)


def test_cells_that_make_no_sense_have_a_reason():
    for feature in FEATURES.values():
        needs = {need for disruption in DISRUPTIONS.values() for need in disruption.needs}
        assert set(feature.lacks) <= needs | {"batch"}, feature.name
        assert all(feature.lacks.values()), feature.name
