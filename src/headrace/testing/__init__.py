"""Proving queries: checks of what left a query, and random streams to feed it with.

`checks` says whether a physical stream keeps its own promises; `differential` compares a query with the slow twins.
`strategies`, `paced` (streams that keep pace with each other) and `plan_strategies` draw random streams and plans for
property tests, and `module_check` tells whether a user's module keeps its word; they need hypothesis, and are imported
by whoever has it: `from headrace.testing import strategies`.
"""

from headrace.testing.checks import Violation, check_output, output_violations

__all__ = ["Violation", "check_output", "output_violations"]
