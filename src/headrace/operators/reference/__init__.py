"""The slow twins: the definition of every operator, over plain Python lists, without state or optimization.

A stream is a list of `(le, re, payload)` with the payload a dict: its whole history at once (rule 1.4). The twin of an
operator is a function from histories to a history. It is written to be compared with the rules, and no kernel uses it.
The engine processes, corrects and forgets batch by batch; at every moment its result must equal that of the twins over
the history so far.
"""

from headrace.operators.reference.aggregate import aggregate
from headrace.operators.reference.functions import FUNCTIONS
from headrace.operators.reference.physical import history_of, progress_of
from headrace.operators.reference.plan import Seen, reference_history, reference_stream
from headrace.operators.reference.rows import Row, bag, identity, rows_of, table_of
from headrace.operators.reference.windows import open_window_start, windows_over

__all__ = [
    "FUNCTIONS",
    "Row",
    "Seen",
    "aggregate",
    "bag",
    "history_of",
    "identity",
    "open_window_start",
    "progress_of",
    "reference_history",
    "reference_stream",
    "rows_of",
    "table_of",
    "windows_over",
]
