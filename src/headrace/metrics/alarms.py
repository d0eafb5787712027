"""Alarms: rules over the figures of a query, judged about once a second between its batches.

A rule is what a user writes: thresholds, and what to do. Its *judge* remembers what it needs of earlier figures, and
says which things are beyond the threshold now. `Alarms` compares that with what was so before: an alarm has one
message when it begins and one when it ends. So that a value near its threshold does not begin and end all the time, an
alarm ends only when the value is a tenth below it.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar, Generic, Literal, TypeVar

from headrace.errors import AlarmError, PlanError
from headrace.metrics.calling import AlarmCalls
from headrace.metrics.queries import OperatorFigures, QueryFigures, Reached
from headrace.time import INFINITY, format_duration

__all__ = [
    "DEFAULT_RULES", "Action", "Alarm", "AlarmRule", "Alarms", "DivertedShareRule", "LagRule", "SilentSourceRule",
    "StateGrowthRule", "checked_rules",
]  # fmt: skip

_log = logging.getLogger("headrace")
#: A value must be so much of its threshold, or less, for the alarm to end.
_ENDS_AT = 0.9
#: The most samples of the past that a judge keeps.
_SAMPLES = 60
_MINUTE = 60_000_000
_T = TypeVar("_T")


@dataclass(frozen=True)
class Alarm:
    """An alarm of a query: what is beyond its threshold, since when, and until when if it has ended."""

    name: str
    text: str
    query: str
    value: float
    threshold: float
    since: datetime
    source: str | None = None
    operator: str | None = None
    ended: datetime | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name, "text": self.text, "source": self.source, "operator": self.operator,
            "value": self.value, "threshold": self.threshold, "since": self.since.isoformat(),
        }  # fmt: skip


Action = Literal["log", "fail"] | Callable[[Alarm], object]


@dataclass(frozen=True)
class _Finding:
    """A thing whose value is to be compared with its threshold; the text is for the case that it is beyond."""

    #: What it is about, among all that the rule judges.
    key: str
    value: float
    threshold: float
    text: str
    source: str | None
    operator: str | None = None
    #: Whether the alarm begins here, and whether it ends; between the two it stays as it is.
    begins: bool = False
    ends: bool = True


def _compared(key: str, value: float, threshold: float, text: str, source: str | None) -> _Finding:
    begins, ends = value > threshold, value <= _ENDS_AT * threshold
    return _Finding(key, value, threshold, text, source, begins=begins, ends=ends)


class _Judge(ABC):
    """What a rule remembers of a query."""

    @abstractmethod
    def findings(self, figures: QueryFigures, now: float, clock: float) -> Iterable[_Finding]:
        """What the rule says now; `now` is a monotonic time, `clock` the time in seconds since 1970."""


@dataclass(frozen=True)
class AlarmRule(ABC):
    """A rule: `then` is what an alarm does."""

    name: ClassVar[str]
    then: Action = "log"

    def __post_init__(self) -> None:
        if self.then not in ("log", "fail") and not callable(self.then):
            raise PlanError(
                "an alarm logs, fails the query, or calls a function",
                given=self.then,
                allowed="then='log', then='fail', or a function of an Alarm",
                instead="then='log'",
            )

    @abstractmethod
    def judge(self) -> _Judge:
        """A judge that has seen nothing yet."""


def _is_number(value: object) -> bool:
    """Whether it is a number that a value may pass: not infinite, not NaN."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < INFINITY


def _checked_above_zero(value: float, what: str, instead: str) -> None:
    if not _is_number(value) or not value > 0:
        raise PlanError(
            f"{what} must be finite and more than 0", given=value, allowed="a finite number above 0", instead=instead
        )


def _checked_least(value: int, what: str, instead: str) -> None:
    if not _is_number(value) or not value >= 0:
        raise PlanError(f"{what} is a number", given=value, allowed="a finite number, 0 or more", instead=instead)


# --- a source that is silent -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SilentSourceRule(AlarmRule):
    """A source without rows for `after` ticks, while another has rows, holds back the query."""

    name: ClassVar[str] = "silent_source"
    after: int = 10 * _MINUTE

    def __post_init__(self) -> None:
        super().__post_init__()
        _checked_above_zero(self.after, "the time without rows", "hr.alarm.silent_source('10 min')")

    def judge(self) -> _Judge:
        return _Silence(self)


class _Silence(_Judge):
    def __init__(self, rule: SilentSourceRule) -> None:
        self._after = rule.after / 1e6
        #: The rows of each source, and when they last became more.
        self._heard: dict[str, tuple[int, float]] = {}

    def findings(self, figures: QueryFigures, now: float, clock: float) -> Iterable[_Finding]:  # noqa: ARG002
        reached = {source.name: source for source in figures.sources}
        for name in reached:
            rows = figures.counts.get(name, {}).get("rows", 0)
            if name not in self._heard or self._heard[name][0] != rows:
                self._heard[name] = rows, now
        quiet = {name: now - self._heard[name][1] for name in reached}
        loud = [reached[name] for name, seconds in quiet.items() if seconds < self._after]
        for name, seconds in quiet.items():
            held = _held_by(figures.operators, name)
            behind = any(other.cti > reached[name].cti for other in loud if other.name != name)
            silent = behind and seconds >= self._after
            over = seconds < self._after or reached[name].cti == INFINITY
            text = f"source {name} has had no rows for {_seconds(seconds)}, while others have{_holding(held)}"
            operator = held.name if held is not None else None
            yield _Finding(name, seconds, self._after, text, name, operator, begins=silent, ends=over)


def _held_by(operators: Sequence[OperatorFigures], source: str) -> OperatorFigures | None:
    """The operator with the most state that a source holds."""
    found = [operator for operator in operators if operator.held_by == source and operator.rows]
    return max(found, key=lambda operator: operator.size, default=None)


def _holding(held: OperatorFigures | None) -> str:
    if held is None:
        return ""
    return f"; it holds the state of {held.name} ({held.rows:,} rows, {held.size:,} bytes)"


# --- lag -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LagRule(AlarmRule):
    """The CTI is more than `limit` ticks behind: the clock if times are dates, else the highest time read."""

    name: ClassVar[str] = "lag"
    limit: int = 60 * _MINUTE

    def __post_init__(self) -> None:
        super().__post_init__()
        _checked_above_zero(self.limit, "the lag", "hr.alarm.lag('5 min')")

    def judge(self) -> _Judge:
        return _Lag(self)


class _Lag(_Judge):
    def __init__(self, rule: LagRule) -> None:
        self._limit = rule.limit
        #: The sources that have been within the limit: one that reads its history is behind from the beginning.
        self._caught_up: set[str] = set()

    def findings(self, figures: QueryFigures, now: float, clock: float) -> Iterable[_Finding]:  # noqa: ARG002
        for source in figures.sources:
            behind = _ticks_behind(source, clock)
            if behind is None:
                yield _Finding(source.name, 0, self._limit / 1e6, "", source.name)
                continue
            if behind <= self._limit:
                self._caught_up.add(source.name)
            scale = 1e6 if source.dates else 1
            unit = _seconds(behind / 1e6) if source.dates else f"{behind:,.0f} ticks"
            than = "the clock" if source.dates else "the highest time read"
            text = f"the CTI of {source.name} is {unit} behind {than}"
            found = _compared(source.name, behind / scale, self._limit / scale, text, source.name)
            yield replace(found, begins=found.begins and source.name in self._caught_up)


def _ticks_behind(source: Reached, clock: float) -> float | None:
    if not source.finite:
        return None
    return clock * 1e6 - source.cti if source.dates else source.ticks_behind


# --- growing state ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StateGrowthRule(AlarmRule):
    """The state of an operator is `times` as large as it was `within` ticks ago, and has at least `least` bytes."""

    name: ClassVar[str] = "state_growth"
    times: float = 4.0
    within: int = 60 * _MINUTE
    least: int = 256 << 20

    def __post_init__(self) -> None:
        super().__post_init__()
        _checked_above_zero(self.within, "the time in which state grows", "hr.alarm.state_growth(within='1 h')")
        _checked_least(self.least, "the least size of a state, in bytes,", "hr.alarm.state_growth(4, least=10**9)")
        if not _is_number(self.times) or not self.times > 1:
            raise PlanError(
                "state grows to a multiple of what it was", given=self.times, allowed="a finite number above 1",
                instead="hr.alarm.state_growth(4)",
            )  # fmt: skip

    def judge(self) -> _Judge:
        return _Growth(self)


class _Growth(_Judge):
    def __init__(self, rule: StateGrowthRule) -> None:
        self._rule = rule
        self._began: float | None = None
        #: The sizes of states in the past, by operator and its place; none of the first period, in which they build up.
        self._past: _Samples[dict[tuple[str, int], int]] = _Samples(rule.within / 1e6)
        #: The thresholds of those that have grown, which stay while the alarm lasts.
        self._grown: dict[tuple[str, int], float] = {}

    def findings(self, figures: QueryFigures, now: float, clock: float) -> Iterable[_Finding]:  # noqa: ARG002
        self._began = now if self._began is None else self._began
        period = self._rule.within / 1e6
        sizes = {(one.name, place): one.size for place, one in enumerate(figures.operators)}
        before = self._past.oldest_within(now)
        if now - self._began >= period:
            self._past.add(now, sizes)
        for place, one in enumerate(figures.operators):
            key = one.name, place
            base = (before or {}).get(key)
            limit = self._grown.get(key) or max(
                self._rule.least, self._rule.times * base if base is not None else INFINITY
            )
            held = "" if one.held_by is None else f"; the source that is farthest behind is {one.held_by}"
            text = f"the state of {one.name} has grown to {one.size:,} bytes ({one.rows:,} rows){held}"
            found = _compared(f"{place} {one.name}", one.size, limit, text, one.held_by)
            if found.begins:
                self._grown[key] = limit
            elif found.ends:
                self._grown.pop(key, None)
            yield replace(found, operator=one.name)


@dataclass
class _Samples(Generic[_T]):
    """Values of the past, at most `_SAMPLES` in a period."""

    period: float
    values: deque[tuple[float, _T]] = field(default_factory=deque)

    def add(self, now: float, value: _T) -> None:
        if not self.values or now - self.values[-1][0] >= self.period / _SAMPLES:
            self.values.append((now, value))

    def oldest_within(self, now: float) -> _T | None:
        """The value at the beginning of the period that ends now, or the oldest; values before it are forgotten."""
        while len(self.values) > 1 and now - self.values[1][0] >= self.period:
            self.values.popleft()
        return self.values[0][1] if self.values else None


# --- rows that are not used ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DivertedShareRule(AlarmRule):
    """Of the rows of a source `within` ticks, more than a share was diverted or dropped; of at least `least` rows."""

    name: ClassVar[str] = "diverted_share"
    share: float = 0.1
    within: int = 10 * _MINUTE
    least: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        _checked_above_zero(self.within, "the time over which rows are counted", "hr.alarm.diverted_share(0.1)")
        _checked_least(self.least, "the least number of rows", "hr.alarm.diverted_share(0.1, least=100)")
        if not _is_number(self.share) or not 0 < self.share < 1:
            raise PlanError(
                "a share is between 0 and 1", given=self.share, allowed="0.1 for a tenth",
                instead="hr.alarm.diverted_share(0.1)",
            )  # fmt: skip

    def judge(self) -> _Judge:
        return _Share(self)


class _Share(_Judge):
    def __init__(self, rule: DivertedShareRule) -> None:
        self._rule = rule
        self._past: _Samples[dict[str, tuple[int, int]]] = _Samples(rule.within / 1e6)

    def findings(self, figures: QueryFigures, now: float, clock: float) -> Iterable[_Finding]:  # noqa: ARG002
        counts = {source.name: _read_and_lost(figures.counts.get(source.name, {})) for source in figures.sources}
        self._past.add(now, counts)
        before = self._past.oldest_within(now) or {}
        for name, (rows, lost) in counts.items():
            read, missed = rows - before.get(name, (0, 0))[0], lost - before.get(name, (0, 0))[1]
            enough = read >= self._rule.least
            share = missed / read if read else 0.0
            period = format_duration(self._rule.within)
            text = f"{missed:,} of {read:,} rows of {name} in the last {period} were diverted or dropped ({share:.0%})"
            found = _compared(name, share, self._rule.share, text, name)
            yield replace(found, begins=found.begins and enough)


def _read_and_lost(counts: Mapping[str, int]) -> tuple[int, int]:
    return counts.get("rows", 0), counts.get("diverted", 0) + counts.get("dropped", 0)


# --- what is done about them -----------------------------------------------------------------------------------------

#: The rules of a query that names none.
DEFAULT_RULES: tuple[AlarmRule, ...] = (SilentSourceRule(), LagRule(), StateGrowthRule(), DivertedShareRule())


def checked_rules(given: object) -> tuple[AlarmRule, ...]:
    """The rules of a query."""
    if given is None:
        return DEFAULT_RULES
    rules = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    for rule in rules:
        if not isinstance(rule, AlarmRule):
            raise PlanError(
                "this is not a rule for alarms", given=rule,
                allowed="hr.alarm.lag, silent_source, state_growth, diverted_share",
                instead="alarms=[hr.alarm.lag('5 min')]",
            )  # fmt: skip
    return rules


class Alarms:
    """The alarms of one query; one thread judges, and others look."""

    def __init__(self, query: str, rules: Iterable[AlarmRule] = DEFAULT_RULES, calls: AlarmCalls | None = None) -> None:
        self._query = query
        #: Makes the calls of the rules' functions; None: they are made at once.
        self._calls = calls
        self._judges = [(rule, rule.judge()) for rule in rules]
        self._active: dict[tuple[int, str], Alarm] = {}
        #: How many alarms of each rule have begun.
        self._begun = dict.fromkeys((rule.name for rule, _ in self._judges), 0)

    @property
    def active(self) -> tuple[Alarm, ...]:
        """The alarms that last, the oldest first."""
        return tuple(self._active.copy().values())

    @property
    def by_rule(self) -> dict[str, tuple[bool, int]]:
        """For each rule, whether it has an alarm now, and how many have begun."""
        names = {alarm.name for alarm in self.active}
        return {name: (name in names, begun) for name, begun in self._begun.items()}

    def judge(self, figures: QueryFigures, now: float, clock: float) -> bool:
        """Begin and end alarms; whether one has. `AlarmError` if one that has begun fails the query."""
        changed = False
        failing: list[Alarm] = []
        at = datetime.fromtimestamp(clock, UTC)
        for number, (rule, judge) in enumerate(self._judges):
            for finding in judge.findings(figures, now, clock):
                key = number, finding.key
                alarm = self._active.get(key)
                if alarm is None and finding.begins:
                    alarm = self._alarm(rule, finding, at)
                    self._active[key] = alarm
                    self._begun[rule.name] += 1
                    changed = True
                    self._act(rule, alarm)
                    failing += [alarm] if rule.then == "fail" else []
                elif alarm is not None and finding.ends:
                    del self._active[key]
                    changed = True
                    self._act(rule, replace(alarm, ended=at))
        if failing:
            if self._calls is not None:  # the process may end with the query
                self._calls.settle()
            raise _error(failing[0])
        return changed

    def _alarm(self, rule: AlarmRule, finding: _Finding, at: datetime) -> Alarm:
        value, threshold, source, operator = finding.value, finding.threshold, finding.source, finding.operator
        return Alarm(rule.name, finding.text, self._query, value, threshold, at, source, operator)

    def _act(self, rule: AlarmRule, alarm: Alarm) -> None:
        lasted = (
            ""
            if alarm.ended is None
            else f" (it lasted {_seconds(max(0.0, (alarm.ended - alarm.since).total_seconds()))})"
        )
        level = logging.WARNING if alarm.ended is None else logging.INFO
        state = "alarm" if alarm.ended is None else "the alarm has ended"
        _log.log(level, "query %s: %s %s: %s%s", self._query, state, alarm.name, alarm.text, lasted)
        if callable(rule.then):
            call = partial(self._call, rule.then, alarm)
            call() if self._calls is None else self._calls(call)

    def _call(self, function: Callable[[Alarm], object], alarm: Alarm) -> None:
        try:
            function(alarm)
        except BaseException:  # noqa: BLE001 - of any kind: an alarm that cannot be passed on stops no query
            _log.exception("query %s: the function of the alarm %s failed", self._query, alarm.name)

    def close(self) -> None:
        """Wait for functions that are being called, for a while."""
        if self._calls is not None:
            self._calls.close()


def _error(alarm: Alarm) -> AlarmError:
    return AlarmError(
        f"alarm {alarm.name}: {alarm.text}",
        given=f"{alarm.value:,.6g}, and the threshold is {alarm.threshold:,.6g}",
        instead="another threshold, or then='log'; a start with the same checkpoint continues",
    )


def _lasted(since: datetime, ended: datetime) -> float:
    """How many seconds; the clock may have jumped back."""
    return max(0.0, (ended - since).total_seconds())


def _seconds(seconds: float) -> str:
    """A time for people: in seconds, and from two minutes on in minutes."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:,.0f} s" if seconds < 120 else f"{seconds / 60:,.0f} min"
