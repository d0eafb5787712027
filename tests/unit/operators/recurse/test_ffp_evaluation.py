"""The evaluation of flying fixed-point in small: the runs are right, and Hybrid has the best of both (rule 9.2)."""

from __future__ import annotations

import re
from functools import cache
from typing import get_args

import pytest
from benchmarks.ffp_runs import WINDOW, Found, Setting, arrivals, matches, run

from headrace.operators.recurse.ffp import Definite
from headrace.plan.recurse import LoopProgress

STRATEGIES = get_args(LoopProgress)
SETTINGS = {
    "in order": Setting(symbols=1_000),
    "early": Setting(symbols=1_000, early=4),
    "slow": Setting(symbols=1_000, interval=6_000),
    "lulls": Setting(symbols=2_000, lull=0.8),
}


@cache
def ran(name: str, strategy: LoopProgress) -> Found:
    return run(SETTINGS[name], strategy)


def by_hand(setting: Setting) -> list[tuple[int, int]]:
    """All places between which the symbols, none of them missing, are the pattern."""
    letters = {place: letter for arrival in arrivals(setting) for place, letter in arrival.symbols}
    found = []
    for begin in letters:
        for end in range(begin + 4, begin + WINDOW):
            text = "".join(letters.get(place, "?") for place in range(begin, end + 1))
            if re.fullmatch("UD+U+D+U+", text) and text.count("D") == text.count("U") - 1:
                found.append((begin, end))
    return sorted(found)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_loop_finds_the_pattern_and_keeps_its_promises(name: str, strategy: LoopProgress):
    found = ran(name, strategy)
    expected = by_hand(SETTINGS[name])
    assert expected
    assert matches(found) == expected
    promised = 0
    for _, message in found.out:
        assert message.time > promised if isinstance(message, Definite) else message.time >= promised
        promised = message.time if isinstance(message, Definite) else promised


def test_hybrid_takes_the_best_of_both():
    for name in SETTINGS:
        hwm, probing, hybrid = (ran(name, strategy) for strategy in ("hwm", "probing", "hybrid"))
        assert hybrid.lag <= 1.1 * min(hwm.lag, probing.lag)
        assert hybrid.state <= 1.1 * min(hwm.state, probing.state)
        assert hybrid.promises >= 0.9 * max(hwm.promises, probing.promises)
        assert hybrid.guesses <= 1.1 * hybrid.promises, "hardly a guess that teaches nothing"
        assert hybrid.guesses < probing.guesses / 5
    assert ran("lulls", "hybrid").unresponsive <= ran("lulls", "probing").unresponsive


def test_what_the_paper_says_of_the_others():
    assert ran("early", "hwm").lag > 3 * ran("early", "probing").lag
    assert ran("early", "hwm").promises < ran("in order", "hwm").promises / 4
    assert ran("slow", "probing").guesses > 5 * ran("in order", "probing").guesses
    assert ran("slow", "hybrid").guesses == ran("in order", "hybrid").guesses
    assert ran("lulls", "hwm").unresponsive >= 3 * ran("lulls", "probing").unresponsive


def test_in_order_the_lag_is_near_the_bound():
    """Half the time between two promises, 100, is the least there can be when input comes evenly."""
    for batch in (1, 10):
        assert run(Setting(symbols=1_000, batch=batch), "hybrid").lag <= 1.25 * 50
