"""An algebraic aggregate over partial states instead of items: what is left to do when states were made before."""

from __future__ import annotations

import pickle
from typing import Any

from headrace.modules.base import Aggregate, IncrementalAggregate
from headrace.schema import Type

__all__ = ["MergedStates", "state_text"]


def state_text(state: bytes) -> str:
    """A saved state as a value of a STRING column: each byte is one character."""
    return state.decode("latin-1")


class MergedStates(IncrementalAggregate):
    """Merges the partial states of an aggregate."""

    input = "state STRING"
    output = "STRING"

    def __init__(self, module: Aggregate) -> None:
        self.module = module

    @property
    def gives(self) -> Type:
        return self.module.gives

    @property
    def name(self) -> str:
        return f"merged {self.module.name}"

    @property
    def mark(self) -> str:
        return self.module.mark

    @property
    def takes_window(self) -> bool:
        return False

    def initial(self) -> Any:
        """No state has come yet."""
        return

    def add(self, state: Any, items: list[Any]) -> Any:
        """Merge states, in the order of their text: whatever it is, it is the same everywhere."""
        for item in sorted(items):
            other = pickle.loads(item.encode("latin-1"))  # noqa: S301 - the engine's own
            merged = other if state is None else self.module.merge(state, other)
            state = state if merged is None else merged
        return state

    def compute(self, state: Any) -> Any:
        """What the aggregate itself says."""
        if self.module.takes_window:
            return self.module.compute(state, None)
        return self.module.compute(state)

    def __str__(self) -> str:
        return f"merged {self.module}"
