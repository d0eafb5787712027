"""Proving queries: is the answer right under disorder, and if not, what is the smallest stream that shows it?

In tests `assert_same_history` compares answers, `run_scripted` runs a query over events in which faults are written,
and `ManualClock` moves when it is told. `intent` and `traits` say what to try, `generators` makes such streams, and
`verify` tries queries on them and compares with batch SQL over the history: `stream.verify()` and `headrace verify` are
the ways in. `checks` and `order` say whether a physical stream keeps its own promises.

`strategies` draws random streams for property tests, and `module_check` tells whether a user's module does what it
declares. Both need hypothesis, so they are imported by name: `from headrace.testing import strategies`.
"""

from headrace.testing import intents as intent
from headrace.testing.checks import Violation, check_output, output_violations
from headrace.testing.clock import ManualClock
from headrace.testing.generators import traits
from headrace.testing.order import check_deterministic, check_order
from headrace.testing.same import assert_same_history
from headrace.testing.script import run_scripted

__all__ = [
    "ManualClock", "Violation", "assert_same_history", "check_deterministic", "check_order", "check_output", "intent",
    "output_violations", "run_scripted", "traits",
]  # fmt: skip
