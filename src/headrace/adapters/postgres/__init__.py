"""PostgreSQL: tables as sinks, changes of tables as a source.

sink.py        answers as rows of a table, exactly once
target.py      how rows fit into a table, and the statement that creates one
changes.py     a table and its changes, by logical decoding
slots.py       replication slots and publications
pgoutput.py    the messages of logical decoding, in columns
polled.py      a table read by a column whose values only grow
tables.py      tables and queries read once
copying.py     rows to and from the server, in columns
types.py, catalog.py, connection.py
"""

try:
    import psycopg  # noqa: F401 - only to say what is missing
except ModuleNotFoundError:
    from headrace.errors import PlanError

    raise PlanError("PostgreSQL needs the package psycopg", instead="pip install 'headrace[postgres]'") from None

from headrace.adapters.postgres.changes import PostgresChanges
from headrace.adapters.postgres.polled import PostgresPolled
from headrace.adapters.postgres.sink import PostgresSink
from headrace.adapters.postgres.tables import read_table

__all__ = ["PostgresChanges", "PostgresPolled", "PostgresSink", "read_table"]
