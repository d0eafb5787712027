"""The query of `driver.py`, in process, with its checkpoint and its outputs on S3.

Usage: `python -m tests.recovery.s3_driver FOLDER URL [CALLS]`. Input is in FOLDER/in. With CALLS the process kills
itself at its so many-th call that changes the store: before the call if the number is even, after it if it is odd.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from tests.recovery.driver import queries

import headrace as hr
from headrace.store.objects import ObjectStorage


def die_at(calls: int) -> None:
    made = count(1)

    def deadly(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*given: Any) -> Any:
            number = next(made)
            if number == calls and calls % 2 == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            found = call(*given)
            if number == calls:
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        return wrapped

    for name in ("put", "remove", "copy"):
        setattr(ObjectStorage, name, deadly(getattr(ObjectStorage, name)))


def start(folder: Path, url: str, buckets: int = 2) -> Any:
    streams = queries(folder)
    sinks = [(stream, hr.files(f"{url}/out/{name}")) for name, stream in streams.items()]
    return hr.start_all(sinks, checkpoint=f"{url}/state", host="local", files_per_batch=1, buckets=buckets)


def main(folder: Path, url: str, calls: int = 0) -> None:
    die_at(calls)
    query = start(folder, url)
    query.finish()
    query.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
