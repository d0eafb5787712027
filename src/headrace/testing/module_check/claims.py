"""Test cases for what a module declares about itself (rule 6.5).

`filter_through` lets the engine filter before the module instead of after it. That changes no answer if, for every
filter on such a column, the outputs it keeps are the outputs of the events it keeps. `merge` lets the engine make
states in different places and merge them in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hypothesis import strategies as st

from headrace.modules.base import Module, Operator
from headrace.testing.module_check.streams import Drawn, WindowContent, bags, without

__all__ = ["FilteredWindow", "added", "differ", "filters", "merges", "name_problem", "removed"]


@dataclass(frozen=True)
class FilteredWindow:
    """A window, and a filter on a column that a module reads and outputs."""

    bag: WindowContent
    column: str
    kind: Literal["=", "<>", "is null"]
    value: Any

    def keeps(self, value: Any) -> bool:
        """Whether the filter is true of a value; of a null only `is null` is."""
        if self.kind == "is null" or value is None:
            return self.kind == "is null" and value is None
        return bool((value == self.value) == (self.kind == "="))

    @property
    def before(self) -> WindowContent:
        """The window with the filter applied before the module."""
        place = self.bag.module.fields.names.index(self.column)
        return self.bag.with_events([e for e in self.bag.events if self.keeps(e.values[place])])

    def after(self, outputs: Sequence[Any]) -> list[Any]:
        """The outputs that the filter keeps."""
        place = self.bag.module.gives.names.index(self.column) + 2  # type: ignore[attr-defined]
        return [output for output in outputs if self.keeps(output[place])]

    def __str__(self) -> str:
        condition = self.kind if self.kind == "is null" else f"{self.kind} {self.value!r}"
        return f"where {self.column} {condition}\n{self.bag}"


def name_problem(module: Module) -> str:
    """The problem with the names in `filter_through`; empty if there is none."""
    output_names = module.gives.names if isinstance(module, Operator) else ()
    wrong = [name for name in module.filter_through if name not in output_names or name not in module.fields]
    if not wrong:
        return ""
    return f"filter_through names {', '.join(wrong)}: only a column that an operator reads and outputs can be filtered"


@st.composite
def filters(draw: st.DrawFn, module: Module, sample: tuple[Drawn, ...] = (), *, nulls: bool = False) -> FilteredWindow:
    """A window and a filter that keeps some of it."""
    bag = draw(bags(module, sample, nulls=nulls))
    column = draw(st.sampled_from(sorted(module.filter_through)))
    place = module.fields.names.index(column)
    known = [event.values[place] for event in bag.events if event.values[place] is not None]
    if not known:
        return FilteredWindow(bag, column, "is null", None)
    kind: Any = draw(st.sampled_from(["=", "<>", *(["is null"] if nulls else [])]))
    return FilteredWindow(bag, column, kind, draw(st.sampled_from(known)))


def differ(first: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether two bags of outputs differ."""
    return bool(without(first, others) or without(others, first))


def added(module: Module, state: Any, items: list[Any]) -> Any:
    """The state with more items."""
    after = module.add(state, items)
    return state if after is None else after


def removed(module: Module, state: Any, items: list[Any]) -> Any:
    """The state without some of its items."""
    after = module.remove(state, items)
    return state if after is None else after


def merges(merge: Callable[[Any, Any], Any], states: Callable[[], list[Any]]) -> Iterator[tuple[str, Any]]:
    """States of parts merged in several orders; `states` makes new ones for each, because a merge may change them."""

    def merge_pair(left: Any, right: Any) -> Any:
        after = merge(left, right)
        return left if after is None else after

    def in_line(parts: list[Any]) -> Any:
        merged = parts[0]
        for part in parts[1:]:
            merged = merge_pair(merged, part)
        return merged

    def in_halves(parts: list[Any]) -> Any:
        half = len(parts) // 2
        return parts[0] if len(parts) == 1 else merge_pair(in_halves(parts[:half]), in_halves(parts[half:]))

    yield "in their order", in_line(states())
    yield "backwards", in_line(states()[::-1])
    yield "two by two", in_halves(states())
