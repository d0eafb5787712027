"""PostgreSQL's wire protocol: `psql`, psycopg, SQLAlchemy and others connect to a server.

`PostgresListener` (`listener.py`) takes connections, asks who they are, and hands their messages (`messages.py`) to a
session (`session.py`), which carries out statements (`statements.py`) and sends replies (`replies.py`, `columns.py`).
Settings, cursors and PostgreSQL's catalog are answered here (`settings.py`, `cursors.py`, `catalog/`); everything else
is the server's, through `Connection`.
"""

from headrace.server.postgres.listener import PostgresListener, WireLimits, listening

__all__ = ["PostgresListener", "WireLimits", "listening"]
