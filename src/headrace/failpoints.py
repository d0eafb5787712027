"""Failpoints: the steps of a running query, announced before and after they happen, so that tests can disturb them.

Python tells *audit hooks* about every file that a process opens, links, renames or removes, and a hook may break off
the call. `reach` announces the steps of a query in the same way, as the audit event `headrace.reach` with the point and
what it is about. A test adds one hook and sees everything that a query does, in order; there it raises,
waits, or kills the process (`tests/grid/hook.py`). Without a hook, a call costs less than 0.1 µs, and there are a few
dozen of them per batch.

    point        about                   when
    plan         batch                   before the plan of a batch is written
    planned      batch                   after it
    intake       batch/task              before a task reads its share of the input
    took         batch/task              after it has read and computed it, and written its parts of outputs
    stage        batch/level/bucket      before a task runs a stage
    staged       batch/level/bucket      after the task has written its state
    ran          batch                   after all tasks of all trips
    commit       batch                   before the commit of a batch is written
    committed    batch                   after it
    published    batch                   after the outputs of a batch were published
    clean        batch                   before files that are no longer needed are removed
    cleaned      batch                   after that
    create       key                     before a file of the store is created, also of an object store
    created      key                     after it
    read, keys   key, folder             before a file of the store is read, or a folder is listed
    remove       key                     before a file of the store is removed
    removed      key                     after it
"""

from __future__ import annotations

import sys

__all__ = ["EVENT", "reach"]

#: The name of the audit event.
EVENT = "headrace.reach"


def reach(point: str, about: object) -> None:
    """Announce that a point is reached."""
    sys.audit(EVENT, point, about)
