"""The pytest plugin, in test runs of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import pytest_headrace as plugin
from headrace.testing import same

pytest_plugins = ["pytester"]

Runs = Callable[..., pytest.RunResult]

HISTORIES = """
    import pyarrow as pa
    def test_histories():
        left = pa.table({"le": [1, 4], "re": [5, 9], "p": ["P1", "P2"]})
        right = pa.table({"le": [1, 4], "re": [7, 9], "p": ["P1", "P2"]})
        assert left == right
"""


@pytest.fixture
def run(pytester: pytest.Pytester, pytestconfig: pytest.Config) -> Runs:
    """Runs pytest on a test file with the plugin, which may or may not be installed as one."""
    assert same  # loaded here, so that the run inside does not load it anew
    known = any(found is plugin for found in pytestconfig.pluginmanager.get_plugins())
    arguments = ["-p", "no:cacheprovider", *([] if known else ["-p", "pytest_headrace"])]

    def of(source: str, *more: str) -> pytest.RunResult:
        pytester.makepyfile(source)
        start = pytester.runpytest_subprocess if "-n" in more else pytester.runpytest_inprocess
        return start(*arguments, *more)

    return of


def test_it_costs_nothing_to_load():
    """Run as pytest would load the file, had nobody loaded the package before."""
    code = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('plugin', {str(Path(plugin.__file__))!r})\n"
        "spec.loader.exec_module(importlib.util.module_from_spec(spec))\n"
        "print(sorted({'headrace', 'pyarrow', 'pyspark', 'numpy', 'hypothesis'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_seed_is_printed_and_given_to_tests(run: Runs):
    result = run("def test_seed(headrace_seed): assert headrace_seed == 42", "--headrace-seed", "42")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["headrace: --headrace-seed 42"])
    result.stdout.no_fnmatch_line("*repeat with*")


def test_a_seed_is_chosen_and_told_with_a_failure(run: Runs):
    result = run("""
        def test_seed(headrace_seed): assert headrace_seed < 0
        def test_another(): assert False
    """)
    result.assert_outcomes(failed=2)
    (header,) = [line for line in result.outlines if line.startswith("headrace: ")]
    (told,) = [line for line in result.outlines if "repeat with" in line]
    assert header.split()[-1] == told.split()[-1]
    assert 0 <= int(told.split()[-1]) < 2**32


def test_seeds_differ_between_runs(run: Runs):
    first, second = (run("def test_nothing(): pass").outlines for _ in range(2))
    seeds = [next(line for line in lines if line.startswith("headrace: ")) for lines in (first, second)]
    assert seeds[0] != seeds[1]


@pytest.mark.slow
def test_all_workers_have_the_same_seed(run: Runs):
    source = """
        import pytest
        @pytest.mark.parametrize("i", range(4))
        def test_seed(headrace_seed, i): assert headrace_seed < 0
    """
    result = run(source, "-n", "2")
    result.assert_outcomes(failed=4)
    assert len({line for line in result.outlines if "repeat with" in line}) == 1


def test_a_clock_for_every_test(run: Runs):
    run("""
        def test_one(manual_clock): assert manual_clock.advance("1 s") == 1_000_000
        def test_two(manual_clock): assert manual_clock() == manual_clock.now == 0
    """).assert_outcomes(passed=2)


def test_two_histories_are_compared_row_by_row(run: Runs):
    result = run(HISTORIES)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([
        "*the histories differ: 1 lifetime changed (2 rows left, 2 right)*",
        "*changed | [[]1, 7) became [[]1, 5) | P1*",
    ])  # fmt: skip


def test_tables_that_differ_only_in_form_are_told_so(run: Runs):
    result = run(HISTORIES.replace('"re": [7, 9]', '"re": [9, 5]').replace(
        'right = pa.table({"le": [1, 4]', 'right = pa.table({"le": [4, 1]').replace(
        '[9, 5], "p": ["P1", "P2"]', '[9, 5], "p": ["P2", "P1"]'))  # fmt: skip
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the histories are the same; the tables differ in the order of rows*"])


@pytest.mark.parametrize(("left", "right"), [
    ('pa.table({"a": [1]})', 'pa.table({"a": [2]})'),
    ('pa.table({"le": [1], "re": [0], "a": [1]})', 'pa.table({"le": [1], "re": [2], "a": [1]})'),
    ("[1]", "[2]"),
])  # fmt: skip
def test_everything_else_is_left_to_pytest(run: Runs, left: str, right: str):
    result = run(f"import pyarrow as pa\ndef test_them(): assert {left} == {right}")
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*histories*")


def test_other_comparisons_are_left_to_pytest():
    assert plugin.pytest_assertrepr_compare("!=", 1, 1) is None
