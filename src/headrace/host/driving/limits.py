"""What the report of a batch says about a query's intake: how much a batch reads, what waits, and who holds it back."""

from __future__ import annotations

from typing import Any

from headrace.host.driving.driver import Driver
from headrace.host.driving.ranges import RangePositions
from headrace.io.ingress import ChannelReport
from headrace.io.key_progress import farthest_behind
from headrace.plan.nodes import Source
from headrace.plan.policies import Advance, Heartbeat
from headrace.store.log import Commit

__all__ = ["intake_limits"]


def intake_limits(driver: Driver) -> dict[str, dict[str, Any]]:
    """For every source, how much a batch reads at most, how much waits, and the partition that holds back the CTI."""
    limits: dict[str, dict[str, Any]] = {}
    for source in driver.job.line.sources:
        positions = driver.positions.get(source.fingerprint)
        if isinstance(positions, RangePositions):
            limit: dict[str, Any] = {"rows_per_batch": driver.row_pace.bound, "waiting_offsets": positions.waiting}
            limit |= {"held_by": _held_by(driver.last, source)} if len(positions.next) > 1 else {}
            limits[str(source.origin)] = limit
        elif positions is not None:
            limit = {"bytes_per_batch": driver.byte_pace.bound, "waiting_files": positions.waiting}
            if isinstance(source.policy, Advance) and source.policy.per is not None:
                limit["held_by"] = _key_holding(driver.last, source)
            limits[str(source.origin)] = limit
    return limits


def _held_by(last: Commit | None, source: Source) -> str | None:
    """The partition whose promise is the least, which holds back the CTI of the source."""
    if last is None or isinstance(source.policy, Heartbeat):
        return None
    silent = last.record["plan"].get("silent", {}).get(source.fingerprint, ())
    idle = {name for name, is_idle in silent if is_idle}
    channels = last.record["channels"].get(source.fingerprint, {})
    promises = {n: ChannelReport(*c).promise(source.policy) for n, c in channels.items() if n not in idle}
    return min(promises, key=promises.__getitem__, default=None)


def _key_holding(last: Commit | None, source: Source) -> str | None:
    """The key whose highest time is the least, which holds back the CTI of the source."""
    keys = last.record.get("keys", {}).get(source.fingerprint, ()) if last is not None else ()
    key = farthest_behind((key, time) for key, time in keys)
    assert isinstance(source.policy, Advance)
    return None if key is None else f"{source.policy.per} = {key}"
