"""An algebraic aggregate in two steps: partial states, and their merging."""

from __future__ import annotations

import pickle
from typing import Any

from headrace.modules.base import Aggregate, IncrementalAggregate
from headrace.schema import Schema, Type

__all__ = ["MergedStates", "PartialState", "state_text"]


def state_text(state: bytes) -> str:
    """A saved state as a value of a STRING column: each byte is one character."""
    return state.decode("latin-1")


class PartialState(IncrementalAggregate):
    """The state of an aggregate, for `MergedStates`."""

    input = "value DOUBLE"  # a placeholder: the fields are the aggregate's
    output = "STRING"

    def __init__(self, module: Aggregate) -> None:
        self.module = module

    @property
    def fields(self) -> Schema:
        return self.module.fields

    @property
    def name(self) -> str:
        return f"state of {self.module.name}"

    @property
    def mark(self) -> str:
        return self.module.mark

    def initial(self) -> Any:
        """As the aggregate."""
        return self.module.initial()

    def add(self, state: Any, items: list[Any]) -> Any:
        """As the aggregate."""
        return self.module.add(state, items)

    def compute(self, state: Any) -> str:
        """The state as text."""
        return state_text(pickle.dumps(state))

    def __str__(self) -> str:
        return f"state of {self.module}"


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
        """None: there is no state yet."""
        return

    def add(self, state: Any, items: list[Any]) -> Any:
        """Merge states in the order of their texts, which is the same everywhere."""
        for item in sorted(items):
            other = pickle.loads(item.encode("latin-1"))  # noqa: S301 - written by the engine
            merged = other if state is None else self.module.merge(state, other)
            state = state if merged is None else merged
        return state

    def compute(self, state: Any) -> Any:
        """The answer of the aggregate."""
        if self.module.takes_window:
            return self.module.compute(state, None)
        return self.module.compute(state)

    def __str__(self) -> str:
        return f"merged {self.module}"
