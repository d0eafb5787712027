"""Calls of a user's module, with little overhead and safe from its errors.

A call returns an answer or a `Failure`: the module raised, returned a value of another type, took too long, grew too
large, or (under `verify`) returned two answers for the same items or changed its argument. The query's policy says what
happens then; the failure has the reason and the smallest input that shows it.
"""

from __future__ import annotations

import copy
import math
import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.errors import ModuleFailed
from headrace.expr.python.limit import OutOfTime, Watch, watched
from headrace.modules.base import Event, Module, Window
from headrace.plan.windows import WindowPolicy
from headrace.schema import Schema, Type
from headrace.time import format_ticks

__all__ = ["Caller", "Failure", "module_error"]

_MOST_OUTPUTS = 1_000_000
_MOST_STATE_BYTES = 64 * 2**20
_MOST_TRIES = 200
_PATIENCE = 5.0  # seconds to look for a smaller input that fails
_PLAIN = {Type.DOUBLE: float, Type.STRING: str, Type.BOOLEAN: bool}


@dataclass(frozen=True)
class Failure:
    """Why a module failed, and with which items."""

    reason: str
    items: tuple[Any, ...]


class _HiddenWindow:
    """The window as seen by a module that is not time-sensitive."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the window's {name} is for time-sensitive modules: write time_sensitive = True")


class Caller:
    """One module under one policy."""

    def __init__(self, module: Module, policy: WindowPolicy) -> None:
        self.module, self.policy = module, policy
        self._takes_window = module.takes_window or module.time_sensitive
        self._gives: Type | Schema = module.gives  # type: ignore[attr-defined]
        #: Whether outputs may have lifetimes of their own.
        self._stamps = module.time_sensitive and module.kind == "operator"
        self._starts_in_window = self._stamps and policy.timestamping not in ("align", "clip")

    # --- answers -----------------------------------------------------------------------------------------------------

    def compute(self, items: list[Any], window: Window) -> Any:
        """The answer for the items of a window, or a failure."""
        return self._guard(lambda items: self._compute(items, window), items)

    def read(self, state: bytes, window: Window) -> Any:
        """The answer for a state, or a failure."""
        return self._guard(lambda _: self._compute(_load(state), window), [])

    def _compute(self, argument: Any, window: Window) -> Any:
        shown = window if self.module.time_sensitive else _HiddenWindow()
        compute: Callable[..., Any] = self.module.compute
        answer = self.check(compute(argument, shown) if self._takes_window else compute(argument))
        if not self._stamps:
            return answer
        answer = [(*window, *output[2:]) if output[0] is None else output for output in answer]
        if self._starts_in_window:
            self._check_starts(answer, window)
        return answer

    def _check_starts(self, outputs: list[Any], window: Window) -> None:
        """Outputs may not start before their window (rule 6.3)."""
        early = min((output[0] for output in outputs), default=window.le)
        if early < window.le:
            raise ModuleFailed(
                f"it gave an event that starts at {early}, before its window, under "
                f"timestamping={self.policy.timestamping or 'unchanged'!r}"
            )

    def compute_all(self, items: list[Any], window: Window) -> Any:
        """The answer of an incremental module for all items of a window, or a failure."""

        def answer(items: list[Any]) -> Any:
            state = self._save(self._add(self.module.initial(), items))
            return self._compute(_load(state), window)

        return self._guard(answer, items)

    # --- states ------------------------------------------------------------------------------------------------------

    def start_state(self, items: list[Any]) -> Any:
        """The state of a window with these items, as bytes, or a failure."""
        return self._guard(lambda items: self._save(self._add(self.module.initial(), items)), items)

    def move_state(self, state: bytes, added: list[Any], removed: list[Any]) -> Any:
        """The state after items are added and removed, as bytes, or a failure."""

        def move(added: list[Any]) -> bytes:
            now = _load(state)
            if removed:
                after = self.module.remove(now, copy.copy(removed))
                now = now if after is None else after
            return self._save(self._add(now, added))

        after = self._guard(move, added)
        return Failure(after.reason, tuple(removed)) if isinstance(after, Failure) and not added else after

    def _add(self, state: Any, items: list[Any]) -> Any:
        after = self.module.add(state, items) if items else state
        return state if after is None else after

    def _save(self, state: Any) -> bytes:
        saved = pickle.dumps(state)
        if len(saved) > _MOST_STATE_BYTES:
            raise ModuleFailed(f"its state for one window has grown to {len(saved):,} bytes")
        return saved

    # --- checks of outputs -------------------------------------------------------------------------------------------

    def check(self, answer: Any) -> Any:
        """Check an answer, or outputs with their times; the values as columns will hold them."""
        if isinstance(self._gives, Type):
            return _value(answer, self._gives, "")
        if answer is None:
            return []
        if isinstance(answer, (str, bytes, dict)) or not hasattr(answer, "__iter__"):
            raise ModuleFailed(f"it gave {answer!r}, not a list of outputs")
        outputs = []
        for output in answer:
            outputs.append(self._output(output))
            if len(outputs) > _MOST_OUTPUTS:
                raise ModuleFailed(f"it gave more than {_MOST_OUTPUTS:,} outputs for one window")
        return outputs

    def _output(self, output: Any) -> tuple[Any, ...]:
        """One output as `(le, re, *values)`; times that the module leaves to the window are None."""
        le = re = None
        if isinstance(output, Event):
            if not self.module.time_sensitive:
                raise ModuleFailed(f"it gave {output!r}: lifetimes are for time-sensitive modules")
            le, re, output = output
            # Under `align` the window's times replace those of the module.
            if self.policy.timestamping != "align" and (type(le) is not int or type(re) is not int or le >= re):
                raise ModuleFailed(f"it gave an event that lasts from {le!r} to {re!r}")
        assert isinstance(self._gives, Schema)
        names = self._gives.names
        if isinstance(output, dict):
            if set(output) != set(names):
                raise ModuleFailed(f"it gave the columns {', '.join(map(str, output))}, not {', '.join(names)}")
            values: Sequence[Any] = [output[name] for name in names]
        elif isinstance(output, (tuple, list)):
            values = output
        else:
            values = (output,)
        if len(values) != len(names):
            own = "; with times of its own, self.event(le, re, ...)" if self.module.time_sensitive else ""
            raise ModuleFailed(f"it gave {len(values)} values, not {', '.join(names)}{own}")
        checked = [_value(v, f.type, f" for {f.name}") for v, f in zip(values, self._gives, strict=True)]
        return (le, re, *checked)

    # --- failures ----------------------------------------------------------------------------------------------------

    def _guard(self, call: Callable[[list[Any]], Any], items: list[Any]) -> Any:
        answer = self._try(call, items)
        # A window that is skipped needs no smallest input, and its reason must not depend on the time of that search.
        if isinstance(answer, Failure) and len(items) > 1 and self.policy.on_error == "fail":
            return self._smallest(call, answer)
        return answer

    def _try(self, call: Callable[[list[Any]], Any], items: list[Any]) -> Any:
        kept = tuple(items)
        limit = self.policy.time_limit

        def work() -> Any:
            answer = call(list(items))
            if self.policy.verify:
                self._verify(call, kept, answer)
            return answer

        try:
            return work() if limit is None else watched(work, Watch(), limit)
        except OutOfTime:
            return Failure(f"it did not return within {limit} s", kept)
        except ModuleFailed as error:
            return Failure(error.message, kept)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's code may raise anything
            return Failure(f"it raised {type(error).__name__}: {error}", kept)

    def _verify(self, call: Callable[[list[Any]], Any], items: tuple[Any, ...], answer: Any) -> None:
        argument = list(items)
        again = call(argument)
        # States may be equal and yet pickle differently; answers are what must not differ.
        if not isinstance(answer, bytes) and not _equal(answer, again):
            raise ModuleFailed(f"it is not deterministic: it gave {answer!r}, then {again!r} for the same items")
        if len(argument) != len(items) or any(a is not b for a, b in zip(argument, items, strict=True)):
            raise ModuleFailed("it changes the list it is given; take a copy, such as sorted(items)")

    def _smallest(self, call: Callable[[list[Any]], Any], failure: Failure) -> Failure:
        """Leave items out, halves first and then one by one, as long as it still fails in the same way."""
        kind = _kind(failure)
        tries, size, patience = 0, len(failure.items) // 2, time.monotonic() + _PATIENCE
        while size and tries < _MOST_TRIES and time.monotonic() < patience:
            for start in range(0, len(failure.items), size):
                fewer = failure.items[:start] + failure.items[start + size :]
                tries += 1
                answer = self._try(call, list(fewer)) if fewer else None
                if time.monotonic() > patience:
                    break
                if isinstance(answer, Failure) and _kind(answer) == kind:
                    failure, size = answer, min(2 * size, len(fewer))
                    break
            size //= 2
        return failure


def _kind(failure: Failure) -> str:
    """The kind of a failure, without the values in its reason."""
    words = failure.reason.partition(":")[0].split()
    return " ".join(words[: 3 if words[1:2] == ["raised"] else 2])


def _load(state: bytes) -> Any:
    return pickle.loads(state)  # noqa: S301 - bytes from the engine's own trace


def _value(value: Any, wanted: Type, where: str) -> Any:
    """A value as a column of the wanted type will hold it."""
    if type(value) is _PLAIN.get(wanted):  # by far the most common, and quick
        return value
    if hasattr(value, "item") and not isinstance(value, (list, tuple)):
        value = value.item()  # NumPy's own numbers
    if value is None:
        return None
    try:
        if not isinstance(value, bool) or wanted is Type.BOOLEAN:  # to Arrow, True is a number
            number = float(value) if isinstance(value, int) and wanted.is_floating else value
            return pa.scalar(number, wanted.arrow).as_py()
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError):
        pass
    raise ModuleFailed(f"it gave {value!r}{where}, which is no {wanted.value}")


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_equal, a, b))
    return bool(a == b)


def module_error(
    module: Module, group: dict[str, Any], window: Window, failure: Failure, *, dates: bool
) -> ModuleFailed:
    """The error that stops a query; `dates`: whether its times are dates."""
    start, end = (format_ticks(time, dates=dates) for time in (window.le, window.re))
    shown = list(failure.items[:20])
    return ModuleFailed(
        f"{module} failed in the window {start} .. {end}"
        + (f" of {', '.join(f'{k} = {v!r}' for k, v in group.items())}" if group else "")
        + f": {failure.reason}",
        given=shown,
        allowed=f"the smallest input that shows it is given above ({len(failure.items)} items)",
        instead="mend the module, or on_error='skip' in window(...) to leave such windows out",
    )
