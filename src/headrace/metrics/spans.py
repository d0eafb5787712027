"""Spans of OpenTelemetry: one for each batch of a running query, with the phases of the batch as its children.

No option turns them on. OpenTelemetry asks libraries to use its API alone and leaves the rest to the program: once the
program has a `TracerProvider`, from its code or by `opentelemetry-instrument`, the spans of all its libraries go there,
and users expect those of Headrace among them. Without a provider the API gives spans that record nothing, and without
the package `opentelemetry-api` there are none. An option would be a second switch for the same thing.

A query may run for years, so each batch is a trace of its own. Its span is the current one of the loop's thread: spans
and logs of what this thread calls, such as a function that is the sink, belong to it. The phases are added at the end,
from the moments that the driver has recorded for reports.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import TYPE_CHECKING

from headrace.errors import without_secrets
from headrace.metrics.alarms import Alarm
from headrace.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

__all__ = ["BatchSpans"]


class BatchSpans:
    """The spans of one query; only the thread of its loop calls this."""

    def __init__(self, query: str, checkpoint: str | None, phases: Sequence[str]) -> None:
        """`checkpoint`: None if it does not last; `phases`: the names of the phases of a batch, in their order."""
        self._query, self._phases = query, phases
        self._about = {"headrace.query": query}
        if checkpoint is not None:
            self._about["headrace.checkpoint"] = without_secrets(checkpoint)
        self._tracer = _tracer()
        self._span: Span | None = None
        #: What ends when the span does.
        self._open = ExitStack()
        #: When the span began: nanoseconds since 1970, and the same moment of the monotonic clock.
        self._began = (0, 0.0)
        #: The alarms that spans have.
        self._alarms: tuple[Alarm, ...] = ()

    @property
    def recording(self) -> bool:
        """Whether the batch has a span to describe it in."""
        return self._span is not None and self._span.is_recording()

    def begin(self, batch: int) -> None:
        """Start the span of a batch."""
        if self._tracer is not None:
            self._start(self._tracer, f"batch {self._query}", {"headrace.batch": batch})

    def repeat(self, error: BaseException) -> None:
        """The tasks of the batch have failed, and run again."""
        if self._span is not None:
            self._span.record_exception(error)

    def describe(self, attributes: Mapping[str, str | int], alarms: Iterable[Alarm]) -> None:
        """What the batch did, and the alarms that last: those that no span has yet are events."""
        if self._span is None:
            return
        self._span.set_attributes(attributes)
        lasting = tuple(alarms)
        for alarm in lasting:
            if alarm not in self._alarms:
                about = {"headrace.alarm": alarm.name, "headrace.alarm.text": alarm.text}
                self._span.add_event("alarm", about, int(alarm.since.timestamp() * 1e9))
        self._alarms = lasting

    def end(self, moments: Sequence[float]) -> None:
        """The batch is done; `moments`: when it began, and when each of its phases ended."""
        self._add_phases(moments)
        self.close()

    def fail(self, error: BaseException, moments: Sequence[float]) -> None:
        """The query has failed: in the batch of the span, or between two batches, which has a span of its own."""
        if self._tracer is None:
            return
        if self._span is None:
            span = self._start(self._tracer, f"failure {self._query}", {})
        else:
            span = self._span
            self._add_phases(moments, failed=True)
        span.record_exception(error)
        _mark_failed(span, str(error))
        self.close()

    def close(self) -> None:
        """End the span, if there is one: a batch that is still running is stopped, and runs again at the next start."""
        if self._span is not None:
            self._open.close()
            self._span.end(self._at(time.monotonic()))
            self._span = None

    def _start(self, tracer: Tracer, name: str, about: Mapping[str, int]) -> Span:
        # Imported here as in `_tracer`; by now it is loaded.
        from opentelemetry.context import Context
        from opentelemetry.trace import use_span  # see above

        self._began = time.time_ns(), time.monotonic()
        span = tracer.start_span(name, Context(), attributes={**self._about, **about}, start_time=self._began[0])
        self._open.enter_context(use_span(span, record_exception=False, set_status_on_exception=False))
        self._span = span
        return span

    def _add_phases(self, moments: Sequence[float], *, failed: bool = False) -> None:
        """Add spans for the phases that have ended; `failed`: and for the one that has not."""
        if self._tracer is None or self._span is None or not self._span.is_recording():
            return
        # Imported here as in `_tracer`; by now it is loaded.
        from opentelemetry.trace import set_span_in_context

        batch = set_span_in_context(self._span)
        until = [*moments, time.monotonic()] if failed else moments
        for number, (name, (begin, end)) in enumerate(zip(self._phases, pairwise(until), strict=False), start=1):
            span = self._tracer.start_span(name, batch, start_time=self._at(begin))
            if number == len(moments):
                _mark_failed(span)
            span.end(self._at(end))

    def _at(self, moment: float) -> int:
        """A moment of the monotonic clock in nanoseconds since 1970; so a clock that is set moves no phase."""
        nanoseconds, began = self._began
        return nanoseconds + max(0, int((moment - began) * 1e9))


def _tracer() -> Tracer | None:
    """The tracer of the process; None if OpenTelemetry's API is not installed."""
    try:
        # Imported when a query starts: it is an extra, and takes time to load, also where no query is started.
        from opentelemetry import trace
    except ImportError:
        return None
    return trace.get_tracer("headrace", VERSION)


def _mark_failed(span: Span, why: str | None = None) -> None:
    # Imported here as in `_tracer`; by now it is loaded.
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR, why))
