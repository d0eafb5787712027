"""Asking a module about windows, here or in another process, where sets and dicts of texts come in another order."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from headrace.errors import HostError
from headrace.modules.base import Module
from headrace.operators.per_window.calling import Caller, Failure
from headrace.plan.windows import WindowPolicy
from headrace.testing.module_check.streams import WindowContent

__all__ = ["CALL_LIMIT", "asked", "asked_elsewhere", "asking", "main"]

CALL_LIMIT = 5.0  # seconds
_PATIENCE = 120  # seconds


def asking(module: Module) -> Caller:
    """The engine's own way of asking; where outputs may start is looked at apart."""
    return Caller(module, WindowPolicy(timestamping="align", time_limit=CALL_LIMIT))


def asked(module: Module, bag: WindowContent) -> Any:
    """What the module says of a window, or its failure."""
    caller = asking(module)
    if not module.incremental:
        return caller.compute(bag.items(), bag.window)
    state = caller.start_state(bag.items())
    return state if isinstance(state, Failure) else caller.read(state, bag.window)


def asked_elsewhere(module: Module, bags: Sequence[WindowContent], hash_seed: int) -> list[Any]:
    """The same in a new process whose texts hash by this seed; an error if the module cannot be had there."""
    try:
        sent = pickle.dumps((module, list(bags)))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise HostError(f"it cannot be sent to another process: {error}") from error
    paths = os.pathsep.join(path for path in sys.path if path)
    try:
        done = subprocess.run(  # noqa: S603 - this very Python
            [sys.executable, "-c", f"from {__name__} import main; main()"],
            input=sent,
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": paths},
            capture_output=True,
            timeout=_PATIENCE,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        last = error.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise HostError(f"another process cannot run it: {last}") from error
    except subprocess.TimeoutExpired as error:
        raise HostError(f"another process did not answer within {_PATIENCE} s") from error
    found: list[Any] = pickle.loads(done.stdout)  # noqa: S301 - from the process that was just started
    return found


def main() -> None:
    """In that process: questions on standard input, answers on standard output."""
    module, bags = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the process that has just started this one
    answers, sys.stdout = sys.stdout.buffer, sys.stderr  # what a module prints is no answer
    answers.write(pickle.dumps([asked(module, bag) for bag in bags]))
