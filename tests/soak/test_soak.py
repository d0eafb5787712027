"""The soak in small: its rule about curves, its answers after kills, and overload."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.soak.overload import CASES
from tests.soak.pictures import draw
from tests.soak.run import soak
from tests.soak.trend import trend_of

TIMES = np.arange(600.0)
NOISE = np.random.default_rng(7).normal(0, 3, 600)


@pytest.mark.parametrize(("curve", "fails"), [
    (100 + 0 * TIMES, False),
    (100 + NOISE, False),
    (100 + NOISE + TIMES / 10, True),  # a leak
    (100 + TIMES / 100, False),  # 3 % in the second half
    (np.minimum(100 + TIMES, 300), False),  # it grows, and then stays
    (100 + 50 * ((TIMES % 40) / 40), False),  # what a clean-up removes every 40 s
    (100 + 50 * ((TIMES % 40) / 40) + TIMES / 4, True),  # what it does not remove
    (300 - TIMES / 10 + NOISE, False),
    (np.where(TIMES == 500, 10_000, 100), False),  # a single outlier
])  # fmt: skip
def test_a_curve_that_grows_is_found_and_no_other(curve: np.ndarray, fails: bool):
    assert trend_of(TIMES.tolist(), curve.tolist(), noise=5).fails == fails


def test_growth_below_the_noise_of_a_unit_does_not_count():
    values = (2 + TIMES / 200).tolist()
    assert trend_of(TIMES.tolist(), values).fails
    assert not trend_of(TIMES.tolist(), values, noise=5).fails


@pytest.mark.volume("a process under load that is killed, with retention on, against a database")
def test_answers_are_right_after_a_kill_under_load(tmp_path: Path):
    report = soak(tmp_path, 12, rate=200, kills=1)
    assert report.wrong == ""
    assert len(report.kills) == 1
    assert report.rows > 1000
    if report.times:  # else the process has only just started, on a loaded machine
        draw(report, tmp_path / "soak.svg")
        assert (tmp_path / "soak.svg").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")
@pytest.mark.parametrize("name", CASES)
def test_overload_is_borne(name: str, tmp_path: Path):
    case, small, _ = CASES[name]
    assert case(tmp_path, small)
