"""The pytest plugin: a clock, a seed that is printed and can be repeated, and readable differences of histories.

    def test_idle_inputs_progress(manual_clock): ...           # a clock that only the test moves
    def test_with_random_data(headrace_seed): ...              # repeat with: pytest --headrace-seed N
    assert query.cht() == expected                             # two Arrow tables with `le` and `re`: differences by row

Every test run where Headrace is installed loads it. So it is not part of the package `headrace`, which would be loaded
too, and it imports only pytest; a fixture imports the rest when a test uses it.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from headrace.testing.clock import ManualClock

__all__ = ["headrace_seed", "manual_clock"]

_SEEDS = 2**32
_SEED = "headrace_seed"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--headrace-seed N`."""
    parser.getgroup("headrace").addoption(
        "--headrace-seed", type=int, default=None, metavar="N", help="seed of random streams, to repeat a run"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose a seed unless the option gives one; a worker of xdist uses that of the run."""
    if config.option.headrace_seed is None:
        seed = getattr(config, "workerinput", {}).get(_SEED)
        config.option.headrace_seed = random.SystemRandom().randrange(_SEEDS) if seed is None else seed


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Send the seed of the run to a worker of xdist."""
    node.workerinput[_SEED] = node.config.option.headrace_seed


def pytest_report_header(config: pytest.Config) -> str:
    """The header line with the seed."""
    return f"headrace: --headrace-seed {config.option.headrace_seed}"


@pytest.fixture(scope="session")
def headrace_seed(pytestconfig: pytest.Config) -> int:
    """The seed of this test run; printed at the start, and again when a test that uses it fails."""
    return int(pytestconfig.option.headrace_seed)


@pytest.fixture
def manual_clock() -> ManualClock:
    """A clock at 0 that only the test moves: `stream.run(clock=manual_clock)`."""
    from headrace.testing.clock import ManualClock  # only when a test uses it

    return ManualClock()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failure how to repeat it."""
    report = yield
    if report.failed and "headrace_seed" in getattr(item, "fixturenames", ()):
        report.sections.append(("headrace", f"repeat with --headrace-seed {item.config.option.headrace_seed}"))
    return report


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """How two histories differ."""
    if op != "==" or not (_is_history(left) and _is_history(right)):
        return None
    from headrace.errors import HeadraceError  # only when two histories differ
    from headrace.testing.same import history_differences  # same

    try:
        lines = history_differences(left, right, names=("left", "right"))
    except HeadraceError:  # not histories after all
        return None
    same = "the histories are the same; the tables differ in the order of rows or columns, or in types"
    return lines or [same, "compare them with headrace.testing.assert_same_history"]


def _is_history(value: object) -> bool:
    arrow = sys.modules.get("pyarrow")  # not loaded: then this is no table
    return arrow is not None and isinstance(value, arrow.Table) and {"le", "re"} <= set(value.column_names)
