"""The causes that a trace names are the causes, and so are the reasons of what is missing: checked by deletion.

`tests/verification/causes.py` has the checks, and runs many cases: `python -m tests.verification.causes --cases 2000`.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.plans import plans
from tests.verification.causes import CauseCheck, case_of_kind

from headrace.api.stream import Stream
from headrace.testing.intents import KINDS

#: An example runs its query six times for each answer; `make fuzz` tries 2,000 of them.
EXAMPLES = 1_000 if settings().max_examples >= 1_000 else max(3, settings().max_examples // 10)


@settings(max_examples=EXAMPLES)
@given(plans(), st.integers(0, 2**16))
def test_random_plans(stream: Stream, seed: int):
    CauseCheck(stream, Random(seed)).run()


@settings(max_examples=EXAMPLES)
@given(st.sampled_from(sorted(KINDS)), st.integers(0, 2**16))
def test_every_kind_of_query(tmp_path_factory: pytest.TempPathFactory, kind: str, seed: int):
    stream = case_of_kind(kind, seed, tmp_path_factory.mktemp("rows"))
    if stream is not None:
        CauseCheck(stream, Random(seed)).run(2)


@pytest.mark.parametrize("number", range(8))
def test_the_same_cases_each_time(tmp_path: Path, number: int):
    """A slice of those of the command, of kinds that are far apart."""
    kinds = sorted(KINDS)
    stream = case_of_kind(kinds[number * len(kinds) // 8], 2, tmp_path)
    if stream is not None:
        check = CauseCheck(stream, Random(number))
        check.run(1)
        assert check.counts["why"] == 1 or not stream.cht().num_rows
