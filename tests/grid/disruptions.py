"""The columns of the grid: what goes wrong, and why it cannot with some features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.grid.features import Feature
from tests.grid.world import Cell

__all__ = ["IN_TASKS", "Disruption"]

#: For disruptions of tasks, by a hook in their process.
IN_TASKS = {"spark": "tasks of Spark run in other processes, without a hook"}


@dataclass(frozen=True)
class Disruption:
    """A disturbance of a begun query. After it, one more start must give the exact answer."""

    name: str
    family: str
    disturb: Callable[[Cell], None]
    #: What a feature must have: see `Feature.lacks`.
    needs: tuple[str, ...] = ()
    #: Why it makes no sense on a host.
    not_on: Mapping[str, str] = field(default_factory=dict)

    def why_not(self, feature: Feature, host: str = "local") -> str | None:
        """Why the cell makes no sense; None if it does."""
        if host in self.not_on:
            return self.not_on[host]
        if "services" in self.needs and not feature.services:
            return "the query uses no service"
        if "adapter" in self.needs and not feature.adapters:
            return "neither input nor answers go through an adapter"
        return next((feature.lacks[need] for need in self.needs if need in feature.lacks), None)
