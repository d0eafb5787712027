"""Proving queries: checks of what left a query, and random streams to feed it with.

`checks` says whether a physical stream keeps its own promises. `strategies` draws random streams for property tests; it needs
hypothesis and is imported by whoever has it: `from headrace.testing import strategies`.
"""

from headrace.testing.checks import Violation, check_output, output_violations

__all__ = ["Violation", "check_output", "output_violations"]
