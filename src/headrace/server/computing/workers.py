"""The server's side of the processes that compute statements."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError, ServerError, StatementCancelled, StoreError
from headrace.server.access import Limits
from headrace.server.computing.as_of import as_of_now_on_disk
from headrace.server.computing.forking import LENGTH, STATUS, SentWork
from headrace.server.computing.jobs import ComputeJob, pack, unpack
from headrace.server.computing.sizes import is_small
from headrace.server.computing.watch import StatementWatch
from headrace.server.problems import error_from_json

__all__ = ["Workers"]

_log = logging.getLogger("headrace.server")
_START = """
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from headrace.server.computing.forking import serve_forks
serve_forks(int(sys.argv[1]))
"""
#: Libraries that would start threads, which a process that forks must not have.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
#: How often a statement begins again because a log was shortened meanwhile, or the process that forks has died.
_TRIES = 3
#: Exit codes of processes that have too little memory: killed by the kernel; ended by an allocation in C++.
_OUT_OF_MEMORY = (-9, -6)


class _ForkerGone(Exception):
    """The process that forks has ended."""


class Workers:
    """Computes jobs: small ones in the calling thread, others in processes, `limits.computing` of them at a time."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self._folder, self._limits = folder, limits
        self._changed = threading.Condition()
        #: Jobs that are computed in processes, and those that wait for their turn.
        self.running = self.waiting = 0
        self._jobs = 0
        self._forking: tuple[subprocess.Popen[bytes], socket.socket] | None = None
        self._start_lock = threading.Lock()
        self._watches: set[StatementWatch] = set()
        self._closed = False
        shutil.rmtree(folder, ignore_errors=True)

    def run(self, job: ComputeJob, watch: StatementWatch) -> Any:
        """The answer of a job; cancelling or the end of its time ends it."""
        watch.check()
        if is_small(job.node):
            return job.run()
        for attempt in range(1, _TRIES + 1):
            try:
                return self._elsewhere(job, watch)
            except StoreError:
                if attempt == _TRIES:
                    raise
            except _ForkerGone:
                _log.warning("the process that starts those of statements has ended, and is started again")
        raise _ended("ended")

    def warm(self) -> None:
        """Start the process that forks, unless it runs, so that the first statement need not wait for it."""
        with contextlib.suppress(_ForkerGone):
            self._control()

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The process that forks, if it was started."""
        return None if self._forking is None else self._forking[0]

    def close(self) -> None:
        """End all jobs, and the process that forks."""
        with self._changed:
            self._closed = True
            watches = list(self._watches)
        for watch in watches:
            watch.cancel()
        with self._start_lock:
            if self._forking is not None:
                process, control = self._forking
                control.close()
                process.kill()
                process.wait()
                self._forking = None
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- one job -----------------------------------------------------------------------------------------------------

    def _elsewhere(self, job: ComputeJob, watch: StatementWatch) -> Any:
        with self._turn(watch) as folder:
            there = job.over(as_of_now_on_disk(job.node))
            data = pack(SentWork(there, self._limits.statement_memory, str(folder)), there.node)
            found = self._exchange(data, watch)
        if len(found) < STATUS.size:
            raise _ForkerGone
        if len(found) < LENGTH.size or len(found) != LENGTH.size + LENGTH.unpack_from(found)[0]:
            raise self._died(*STATUS.unpack(found[-STATUS.size :]))
        done, value = unpack(found[LENGTH.size :])
        if done:
            return value
        if value is None:
            raise self._limits.out_of_memory()
        if isinstance(value, str):
            raise RuntimeError(f"a statement has failed in its process:\n{value}")  # noqa: TRY004 - its traceback
        raise error_from_json(value)

    @contextlib.contextmanager
    def _turn(self, watch: StatementWatch) -> Iterator[Path]:
        """Wait until another job may run; it has a folder for temporary files."""
        with self._changed, watch.calling(self._wake):
            self._watches.add(watch)
            self.waiting += 1
            try:
                self._changed.wait_for(
                    lambda: self.running < self._limits.computing or watch.cancelled or self._closed,
                    watch.seconds_left(),
                )
                self._check_open()
                watch.check()
            except BaseException:
                self._watches.discard(watch)
                raise
            finally:
                self.waiting -= 1
            self.running += 1
            self._jobs += 1
            folder = self._folder / str(self._jobs)
        try:
            folder.mkdir(parents=True)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            with self._changed:
                self.running -= 1
                self._watches.discard(watch)
                self._changed.notify_all()

    def _wake(self) -> None:
        """Let those that wait look again, from a thread that must not wait itself."""
        threading.Thread(target=self._notify, daemon=True).start()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _check_open(self) -> None:
        if self._closed:
            raise StatementCancelled("the server is stopping")

    def _exchange(self, data: bytes, watch: StatementWatch) -> bytes:
        """Send a job to a new process, and read its reply to the end."""
        (job_out, job_in), (reply_out, reply_in), (life_out, life_in) = os.pipe(), os.pipe(), os.pipe()
        life = _Once(life_in)
        try:
            try:
                self._send((job_out, reply_in, life_out))
            finally:
                for end in (job_out, reply_in, life_out):
                    os.close(end)
            with watch.calling(life.close):
                _write(job_in, data)
                found = _read(reply_out, watch)
            self._check_open()
            watch.check()
            return found
        finally:
            life.close()
            os.close(reply_out)

    def _send(self, ends: tuple[int, int, int]) -> None:
        control = self._control()
        try:
            socket.send_fds(control, [b"+"], list(ends))
        except OSError as error:
            self._forget(control)
            raise _ForkerGone from error

    def _control(self) -> socket.socket:
        with self._start_lock:
            if self._forking is not None and self._forking[0].poll() is None:
                return self._forking[1]
            self._check_open()
            if self._forking is not None:
                self._forking[1].close()
            ours, theirs = socket.socketpair()
            with theirs:
                process = subprocess.Popen(  # noqa: S603 - this interpreter
                    [sys.executable, "-c", _START, str(theirs.fileno()), json.dumps(sys.path)],
                    pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                    env={**os.environ, **_ONE_THREAD}, start_new_session=True,
                )  # fmt: skip
            self._forking = process, ours
            return ours

    def _forget(self, control: socket.socket) -> None:
        with self._start_lock:
            if self._forking is not None and self._forking[1] is control:
                self._forking[0].wait()
                control.close()
                self._forking = None

    def _died(self, code: int) -> HeadraceError:
        if code in _OUT_OF_MEMORY:
            return self._limits.out_of_memory()
        _log.error("the process of a statement has ended with the code %d", code)
        return _ended(f"ended with the code {code}")


def _ended(how: str) -> ServerError:
    return ServerError(f"the process that computed the statement has {how}", instead="the same again")


class _Once:
    """A file that any of several threads closes."""

    def __init__(self, number: int) -> None:
        self._number: int | None = number
        self._lock = threading.Lock()

    def close(self) -> None:
        with self._lock:
            if self._number is not None:
                os.close(self._number)
                self._number = None


def _write(number: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), os.fdopen(number, "wb") as pipe:  # the reply says what has happened
        pipe.write(data)


def _read(number: int, watch: StatementWatch) -> bytes:
    """What comes out of a pipe until it ends, or has a whole reply, or the time is over."""
    os.set_blocking(number, False)
    poll = select.poll()
    poll.register(number, select.POLLIN)
    found = bytearray()
    while True:
        if len(found) >= LENGTH.size and len(found) >= (end := LENGTH.size + LENGTH.unpack_from(found)[0]):
            return bytes(found[:end])  # the status of a process that has ended may follow
        if not poll.poll(watch.seconds_left() * 1000 + 1):
            watch.check()
            continue
        part = os.read(number, 1 << 20)
        if not part:
            return bytes(found)
        found += part
