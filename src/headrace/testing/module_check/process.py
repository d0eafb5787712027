"""Run a module on windows, here or in another process, where sets of texts have another order."""

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

__all__ = ["CALL_LIMIT", "answer_of", "answers_elsewhere", "caller_of", "main"]

CALL_LIMIT = 5.0  # seconds
_PATIENCE = 120  # seconds


def caller_of(module: Module) -> Caller:
    """The engine's caller for a module; a separate check covers where outputs may start."""
    return Caller(module, WindowPolicy(timestamping="align", time_limit=CALL_LIMIT))


def answer_of(module: Module, bag: WindowContent) -> Any:
    """The module's answer for a window, or its failure."""
    caller = caller_of(module)
    if not module.incremental:
        return caller.compute(bag.items(), bag.window)
    state = caller.start_state(bag.items())
    return state if isinstance(state, Failure) else caller.read(state, bag.window)


def answers_elsewhere(module: Module, bags: Sequence[WindowContent], hash_seed: int) -> list[Any]:
    """The answers of a new process that hashes texts with this seed; an error if the module cannot run there."""
    try:
        request = pickle.dumps((module, list(bags)))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise HostError(f"it cannot be sent to another process: {error}") from error
    paths = os.pathsep.join(path for path in sys.path if path)
    try:
        process = subprocess.run(  # noqa: S603 - the running Python
            [sys.executable, "-c", f"from {__name__} import main; main()"],
            input=request,
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
    answers: list[Any] = pickle.loads(process.stdout)  # noqa: S301 - from the process that was just started
    return answers


def main() -> None:
    """The main function of that process: reads windows from standard input, writes answers to standard output."""
    module, bags = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the process that has just started this one
    output, sys.stdout = sys.stdout.buffer, sys.stderr  # keep the module's own prints off the output
    output.write(pickle.dumps([answer_of(module, bag) for bag in bags]))
