"""Adapters for SQLite: a table whose rows are appended as a source, and tables as sinks.

The sample of an adapter for Headrace: everything an adapter must do, with a database that every Python has.
"""

from headrace_sqlite.sink import SqliteSink
from headrace_sqlite.source import SqliteSource

__all__ = ["SqliteSink", "SqliteSource"]
