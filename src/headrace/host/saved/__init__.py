"""Operations on checkpoints: inspecting, checking, copying, tidying up.

    query.py         the result of `hr.checkpoint(path)`
    folder.py        the directory, or the prefix on an object store, opened without the query
    summary.py       a summary: the query, its progress and the size of its state
    verification.py  whether every file that the commits name exists and is undamaged
    copies.py        a consistent copy, also of a running query
    tidying.py       removing files that are no longer needed
    tables.py        the state of every operator, as tables
    rescaling.py     the same state in another number of buckets

None of this needs the query itself: `headrace.json` describes the checkpoint, and its commits contain the rest. Readers
pin the commit that they read (`headrace.store.cleanup`), so the query may continue meanwhile. Operations that change
the checkpoint hold its lock, as a running query does. On an object store there is no lock: a query records its end, and
operations that change the checkpoint claim an epoch, as a start does.
"""
