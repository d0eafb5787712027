"""Python's debugger inside a call of a session's run."""

from __future__ import annotations

import pdb  # noqa: T100 - it is the feature
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["PythonDebugger"]


class PythonDebugger(pdb.Pdb):
    """Python's debugger, which hands its thread back when it continues; to quit is to continue."""

    def __init__(self, after: Callable[[FrameType, str, Any], None]) -> None:
        super().__init__(nosigint=True)
        self._after = after

    def set_continue(self) -> None:
        """Go on; without breakpoints of its own, the session watches calls again."""
        super().set_continue()
        if not self.breaks:
            sys.settrace(self._after)

    def do_quit(self, arg: str) -> bool | None:  # noqa: ARG002 - a command of `pdb`
        """Leave Python's debugger: the run of the session goes on."""
        self.set_continue()
        return True

    do_q = do_exit = do_EOF = do_quit  # noqa: N815 - names of `pdb`
