"""The server: one process that holds a catalog, runs queries, and lets many clients look.

It computes nothing itself: statements are bound by `sql`, queries run on the hosts there are. What it adds:

**A catalog that lasts** (`catalog.py`): the statements that created what exists, in SQLite, with owners. At a start
they are executed again, in their order, and every query that ran goes on from its checkpoint.

**Published streams** (`log.py`, `published.py`): a log of rows on disk, numbered by offsets. What clients insert, the
changes of tables, and the answers of queries are all such logs. A query writes into one as a sink, exactly once, since
a frame of the log names the delivery it has; another query reads it as a source. So queries are composed while they
run, and a reader that stops affects nobody.

**Subscriptions** (`subscription.py`): a place in a log. A subscriber pulls rows at its own pace, from the log and not
from a buffer of its own, so a slow one slows nobody. Its cursor is an offset, with which it continues after a
disconnect, without a gap or a repeat.

**Ways in**: HTTP (`http/`), PostgreSQL's protocol (`postgres/`), the Python client (`client.py`) and the shell.
All of them use `Connection` (`interface.py`), which checks the role of its client for every statement (`access.py`).

A data directory has::

    catalog.db          statements, queries, tokens, secrets, and the audit log
    lock                held by the process
    logs/NAME/          the log of a table, a stream that clients feed, or the answers of a query
    checkpoints/NAME/   the checkpoint of a query
"""
