"""The process that forks a process for each statement, and what such a process does.

It has imported what a run needs, has one thread, and does nothing but fork: so a new process costs milliseconds, and
begins with clean memory. Until it is asked, it runs small queries, which loads what runs need.

The server sends it the ends of three pipes for each statement: the job comes out of the first, the reply goes into the
second, and nothing ever comes out of the third, the *lifeline*. When the server closes its end of the lifeline, or
dies, the kernel sends the process of the statement SIGIO, which ends it, whatever it does.

A reply is eight bytes with its length and a pickle, `(ok, value)`; a process that dies without one leaves four bytes
with its wait status, which this process writes.
"""

from __future__ import annotations

import fcntl
import os
import resource
import select
import signal
import socket
import struct
import sys
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass

# What a run imports only when it needs it: a process for a statement should find it in memory.
import headrace.host.local.measured
import headrace.operators.registry  # noqa: F401
from headrace.api.inputs import events
from headrace.api.running import run_quietly
from headrace.errors import HeadraceError
from headrace.expr import col, count
from headrace.server.computing.jobs import ComputeJob, pack, unpack
from headrace.server.problems import error_to_json

__all__ = ["LENGTH", "STATUS", "SentWork", "serve_forks"]

_WARM = object()
LENGTH, STATUS = struct.Struct("!Q"), struct.Struct("!i")


@dataclass(frozen=True)
class SentWork:
    """A job, the bytes that its process may use beyond those it begins with, and a folder for temporary files."""

    job: ComputeJob
    memory: int
    folder: str


def serve_forks(number: int) -> None:
    """Fork a process for each message of a socket, until the socket ends."""
    control = socket.socket(fileno=number)
    ended, woken = os.pipe()
    for end in (ended, woken):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    replies: dict[int, int] = {}
    left: Iterator[None] | None = _warming_up()
    while True:
        ready, _, _ = select.select([control.fileno(), ended], [], [], None if left is None else 0)
        if not ready and left is not None and next(left, _WARM) is _WARM:
            left = None
        if ended in ready:
            os.read(ended, 1024)
            _reap(replies)
        if control.fileno() in ready:
            message, pipes, _, _ = socket.recv_fds(control, 1, 3)
            if not message:
                os._exit(0)
            job, reply, lifeline = pipes
            child = os.fork()
            if not child:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for other in (control.detach(), ended, woken, *replies.values()):
                    os.close(other)
                _carry_out(job, reply, lifeline)
            os.close(job)
            os.close(lifeline)
            replies[child] = reply


def _warming_up() -> Iterator[None]:
    """Runs of common operators."""
    stream = events("kind | le | re | key | number\ninsert | 1 | 5 | a | 1")
    for warm in (
        stream,
        stream.where(col("number") > 0).group_by("key").aggregate(n=count()),
        stream.join(stream, on="key"),
    ):
        yield
        run_quietly({"out": warm}, threads=1).results["out"].cht()


def _reap(replies: dict[int, int]) -> None:
    """Write the status of processes that have ended behind what they have written."""
    while replies:
        child, status = os.waitpid(-1, os.WNOHANG)
        if not child:
            return
        reply = replies.pop(child)
        os.set_blocking(reply, False)
        try:
            os.write(reply, STATUS.pack(os.waitstatus_to_exitcode(status)))
        except OSError:
            pass  # nobody reads it, or it is full of a reply that was not read
        finally:
            os.close(reply)


def _carry_out(job: int, reply: int, lifeline: int) -> None:
    """The process of a statement; it never returns."""
    code = 1
    try:
        _die_with(lifeline)
        with os.fdopen(job, "rb") as received:
            data = received.read()
        answer = _answer(data)
        with os.fdopen(reply, "wb") as sent:
            sent.write(LENGTH.pack(len(answer)))
            sent.write(answer)
        code = 0
    except BaseException:  # noqa: BLE001 - it must not go on as the process that forks
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _die_with(lifeline: int) -> None:
    """Let the kernel end this process when the other end of a pipe is closed."""
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    if poll.poll(0):  # it was closed before
        os._exit(1)


def _answer(data: bytes) -> bytes:
    work = unpack(data)
    assert isinstance(work, SentWork)
    tempfile.tempdir = work.folder
    _limit(work.memory)
    try:
        return pack((True, work.job.run()))
    except HeadraceError as error:
        return pack((False, error_to_json(error)))
    except MemoryError:
        return pack((False, None))
    except Exception:  # noqa: BLE001 - of any kind: the server logs it
        return pack((False, traceback.format_exc()))


def _limit(memory: int) -> None:
    """Bound the private memory of this process, and let the kernel choose it first if the machine has none left."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        with open("/proc/self/status") as status:  # noqa: PTH123 - no file of a user
            used = next((int(line.split()[1]) << 10 for line in status if line.startswith("VmData:")), 0)
        with open("/proc/self/oom_score_adj", "w") as score:  # noqa: PTH123
            score.write("1000")
    except OSError:  # not Linux
        used = 0
    resource.setrlimit(resource.RLIMIT_DATA, (used + memory, resource.RLIM_INFINITY))
