"""News: tasks of an event loop that wait until a log has more rows.

A log calls a function in the thread that writes it. All tasks that wait for the log are woken by one call into the
event loop, however many they are; calls that follow before the tasks had their turn add nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from headrace.server.interface import Grows

__all__ = ["News"]


class News:
    """What is waited for, by event loop and source."""

    def __init__(self) -> None:
        self._groups: dict[tuple[asyncio.AbstractEventLoop, Grows], _WaitingTasks] = {}

    @contextmanager
    def about(self, source: Grows) -> Iterator[asyncio.Event]:
        """An event that is set when a source has more. Its task clears it, and then looks."""
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        group = self._groups.get((loop, source))
        if group is None:
            group = self._groups[loop, source] = _WaitingTasks(loop)
            source.listen(group.wake)
        group.events.add(event)
        try:
            yield event
        finally:
            group.events.discard(event)
            if not group.events:
                source.unlisten(group.wake)
                del self._groups[loop, source]

    def wake_all(self) -> None:
        """Wake all tasks, from any thread."""
        for group in list(self._groups.values()):
            group.wake()


class _WaitingTasks:
    """The tasks that wait for one source."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._waking = loop, False
        self.events: set[asyncio.Event] = set()

    def wake(self) -> None:
        """Wake them, from any thread."""
        if not self._waking:
            self._waking = True
            with suppress(RuntimeError):  # the event loop is closed
                self._loop.call_soon_threadsafe(self._set)

    def _set(self) -> None:
        self._waking = False
        for event in self.events:
            event.set()
