"""Rules for alarms: the public functions, which `hr.alarm` holds."""

from __future__ import annotations

from headrace.metrics.alarms import (
    DEFAULT_RULES,
    Action,
    AlarmRule,
    DivertedShareRule,
    LagRule,
    SilentSourceRule,
    StateGrowthRule,
)
from headrace.time import DurationLike, duration

__all__ = ["alarm"]


class AlarmRules:
    """Rules for alarms of a started query: `start(..., alarms=[hr.alarm.lag("5 min", then="fail")])`.

    Each rule has a threshold, and `then`, which is what its alarm does: `"log"` writes a warning, which the other two
    do, too; `"fail"` ends the query with an `AlarmError`; a function is called with an `Alarm` when it begins, and
    again, with `ended`, when it ends.
    """

    def defaults(self) -> list[AlarmRule]:
        """The rules of a query that is started without `alarms=`; all of them log."""
        return list(DEFAULT_RULES)

    def silent_source(self, after: DurationLike = "10 min", *, then: Action = "log") -> SilentSourceRule:
        """A source has had no rows for so long, while another source has, and its CTI holds the query back.

        The alarm names the source, and the operator with the most state that waits for it.
        """
        return SilentSourceRule(then, duration(after))

    def lag(self, more_than: DurationLike = "1 h", *, then: Action = "log") -> LagRule:
        """The CTI of a source is so far behind the clock; where times are numbers, behind the highest time read.

        A query that reads its history is behind from the beginning. The alarm begins only for a source that has been
        within the threshold since the start.
        """
        return LagRule(then, duration(more_than))

    def state_growth(
        self, times: float = 4.0, *, within: DurationLike = "1 h", least: int = 256 << 20, then: Action = "log"
    ) -> StateGrowthRule:
        """The state of an operator is so many times as large as it was at the beginning of the period, and has at least
        so many bytes.

        State builds up after a start, so the first period has no alarm.
        """
        return StateGrowthRule(then, times, duration(within), least)

    def diverted_share(
        self, more_than: float = 0.1, *, within: DurationLike = "10 min", least: int = 100, then: Action = "log"
    ) -> DivertedShareRule:
        """More than this share of the rows of a source was diverted or dropped, in a period with at least so many."""
        return DivertedShareRule(then, more_than, duration(within), least)


alarm = AlarmRules()
