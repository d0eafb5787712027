"""Checkpoints in people's hands: looking at one, checking it, copying it, tidying it up.

    query.py         a checkpoint as `hr.checkpoint(path)` gives it
    folder.py        its directory, or its prefix on an object store, opened without its query
    summary.py       whose it is, how far it has come, how much it remembers
    verification.py  whether every file that its commits name is there, and whole
    copies.py        a consistent copy, also of a query that runs
    tidying.py       removing what nothing needs any more
    tables.py        what every operator remembers, as tables
    rescaling.py     the same state in another number of buckets

None of this needs the query itself: a checkpoint says what it is (`headrace.json`), and its commits say the rest. What
only reads pins the commit that it reads (`headrace.store.cleanup`), so the query may go on meanwhile. What changes
something holds the checkpoint's lock, as a running query does. On an object store there is no lock: a query that has
ended says so, and what changes the checkpoint claims an epoch, as a start does.
"""
