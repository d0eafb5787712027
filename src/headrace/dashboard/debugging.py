"""A session of the page that runs a query step by step: its breakpoints, its pauses, and the trace so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

from headrace.dashboard.open_traces import OpenTraces
from headrace.errors import HeadraceError, TraceError
from headrace.tracing.debugging import DebugSession

__all__ = ["DebuggingPage"]

_ALLOWED = "open, batch, operator, event, run, restart, add, delete"


class DebuggingPage:
    """The one session of a page. `begin` makes a session with the rows of a batch; the last one is closed then."""

    def __init__(self, name: str, traces: OpenTraces, begin: Callable[[int | None], DebugSession]) -> None:
        self._name, self._traces, self._begin = name, traces, begin
        self._session: DebugSession | None = None
        self._key = ""
        self._lock = Lock()

    def act(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out an action, and say where the run is: the pause, the breakpoints, and the trace so far."""
        with self._lock:
            action = str(body.get("action"))
            if action == "open" or self._session is None:
                self.close()
                self._session = self._begin(body.get("batch_rows"))
            moves = {
                "batch": self._session.step_batch,
                "operator": self._session.step_operator,
                "event": self._session.step_event,
                "run": self._session.run,
                "restart": self._session.restart,
            }
            if action in moves:
                self._move(self._session, moves[action])
            elif action == "add":
                self._add(self._session, body)
            elif action == "delete":
                self._session.delete(_number(body, "number"))
            elif action != "open":
                raise TraceError("a session cannot do this", given=action, allowed=_ALLOWED)
            return self._shown(self._session)

    def close(self) -> None:
        """End the session."""
        if self._session is not None:
            self._session.close()
            self._traces.close(self._key)
            self._session = None

    def _move(self, session: DebugSession, move: Callable[[], object]) -> None:
        """Let the run go on. If it fails, that is where it is: the trace has what there was until then."""
        had_failed = session.pause.reason == "error"
        try:
            move()
        except HeadraceError:
            if had_failed or session.pause.reason != "error":
                raise

    def _add(self, session: DebugSession, body: Mapping[str, Any]) -> None:
        kind, when = body.get("kind"), str(body.get("when") or "").strip()
        operator = _number(body, "operator") if body.get("operator") is not None else None
        if kind == "retraction":
            session.break_at_retraction(operator)
        elif kind == "late":
            session.break_at_late(operator)
        elif kind == "output" and operator is not None:
            session.break_at(operator, when or None)
        elif kind == "cti" and operator is not None:
            session.break_at_cti(operator, when)
        else:
            raise TraceError(
                "there is no such breakpoint", given=f"{kind} of {operator}",
                allowed="output or cti of an operator, retraction or late of one or any",
            )  # fmt: skip

    def _shown(self, session: DebugSession) -> dict[str, Any]:
        self._traces.close(self._key)
        self._key = self._traces.add(self._name, session.trace)
        return {
            "pause": session.pause.as_dict(),
            "breakpoints": [one.as_dict() for one in session.breakpoints],
            "trace": self._key,
            **self._traces.get(self._key).graph(),
        }


def _number(body: Mapping[str, Any], name: str) -> int:
    found = body.get(name)
    if type(found) is not int:
        raise TraceError(f"{name} is a number", given=found)
    return found
