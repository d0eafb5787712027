"""Statements that compute: SELECT, EXPLAIN ANALYZE, CREATE TABLE AS, INSERT … SELECT.

What cannot become large is computed in the server's process (`sizes.py` says what that is). Everything else is computed
in a process of its own (`forking.py`), with a limit on its memory, which ends when the statement is cancelled, when its
time is over, and when the server ends, however that happens. It reads the logs of tables and streams from disk, up to
the offsets of the moment of the statement (`as_of.py`).
"""

from headrace.server.computing.jobs import AnalyzeJob, AskJob, ComputeJob, RowsJob, SelectAnswer
from headrace.server.computing.watch import StatementWatch
from headrace.server.computing.workers import Workers

__all__ = ["AnalyzeJob", "AskJob", "ComputeJob", "RowsJob", "SelectAnswer", "StatementWatch", "Workers"]
