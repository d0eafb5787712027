"""Test queries: check answers under disorder, and find the smallest stream that shows a wrong one.

In tests, `assert_same_history` compares answers, `run_scripted` runs a query over events with scripted faults, and
`ManualClock` moves only when the test moves it. `intent` and `traits` describe what to test, `generators` makes such
streams, and `verify` runs queries on them and compares with batch SQL over the history; users call it through
`stream.verify()` and `headrace verify`. `checks` and `order` check that a physical stream keeps its own promises.
`check_source` and `check_sink` check that an adapter of your own keeps its contract.

`strategies` draws random streams for property tests, and `module_check` checks that a user's module does what it
declares. Both need hypothesis, so they are imported by name: `from headrace.testing import strategies`.
"""

from headrace.testing import intents as intent
from headrace.testing.adapter_check import check_sink, check_source
from headrace.testing.checks import Violation, check_output, output_violations
from headrace.testing.clock import ManualClock
from headrace.testing.generators import traits
from headrace.testing.order import check_deterministic, check_order
from headrace.testing.same import assert_same_history
from headrace.testing.script import run_scripted

__all__ = [
    "ManualClock", "Violation", "assert_same_history", "check_deterministic", "check_order", "check_output",
    "check_sink", "check_source", "intent", "output_violations", "run_scripted", "traits",
]  # fmt: skip
