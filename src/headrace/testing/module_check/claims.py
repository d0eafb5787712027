"""What a module declares about itself (rule 6.5), as cases that show whether it is true.

`filter_through` lets the engine filter before the module instead of behind it. That changes no answer if, whatever the
filter on such a column, the outputs it keeps are the outputs of the events it keeps. `merge` lets states be made in
different places, and put together in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hypothesis import strategies as st

from headrace.modules.base import Module, Operator
from headrace.testing.module_check.streams import Drawn, WindowContent, bags, without

__all__ = ["Filtered", "added", "differing", "filters", "merged_ways", "misnamed", "removed"]


@dataclass(frozen=True)
class Filtered:
    """A window, and a filter on a column that a module takes and gives."""

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
        """The window as it is if the filter comes first."""
        place = self.bag.module.fields.names.index(self.column)
        return self.bag.with_events([e for e in self.bag.events if self.keeps(e.values[place])])

    def behind(self, outputs: Sequence[Any]) -> list[Any]:
        """What the filter leaves of the outputs."""
        place = self.bag.module.gives.names.index(self.column) + 2  # type: ignore[attr-defined]
        return [output for output in outputs if self.keeps(output[place])]

    def __str__(self) -> str:
        condition = self.kind if self.kind == "is null" else f"{self.kind} {self.value!r}"
        return f"where {self.column} {condition}\n{self.bag}"


def misnamed(module: Module) -> str:
    """What is wrong with the names in `filter_through`; nothing, mostly."""
    given = module.gives.names if isinstance(module, Operator) else ()
    wrong = [name for name in module.filter_through if name not in given or name not in module.fields]
    if not wrong:
        return ""
    return f"filter_through names {', '.join(wrong)}: only a column that an operator takes and gives can be filtered"


@st.composite
def filters(draw: st.DrawFn, module: Module, sample: tuple[Drawn, ...] = (), *, nulls: bool = False) -> Filtered:
    """A window and a filter that keeps some of it."""
    bag = draw(bags(module, sample, nulls=nulls))
    column = draw(st.sampled_from(sorted(module.filter_through)))
    place = module.fields.names.index(column)
    known = [event.values[place] for event in bag.events if event.values[place] is not None]
    if not known:
        return Filtered(bag, column, "is null", None)
    kind: Any = draw(st.sampled_from(["=", "<>", *(["is null"] if nulls else [])]))
    return Filtered(bag, column, kind, draw(st.sampled_from(known)))


def differing(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether two bags of outputs differ."""
    return bool(without(some, others) or without(others, some))


def added(module: Module, state: Any, items: list[Any]) -> Any:
    """The state with more items."""
    after = module.add(state, items)
    return state if after is None else after


def removed(module: Module, state: Any, items: list[Any]) -> Any:
    """The state without some of its items."""
    after = module.remove(state, items)
    return state if after is None else after


def merged_ways(merge: Callable[[Any, Any], Any], states: Callable[[], list[Any]]) -> Iterator[tuple[str, Any]]:
    """States of parts merged in several orders; `states` makes them anew for each, because a merge may change them."""

    def put(one: Any, other: Any) -> Any:
        after = merge(one, other)
        return one if after is None else after

    def in_line(parts: list[Any]) -> Any:
        merged = parts[0]
        for part in parts[1:]:
            merged = put(merged, part)
        return merged

    def in_halves(parts: list[Any]) -> Any:
        half = len(parts) // 2
        return parts[0] if len(parts) == 1 else put(in_halves(parts[:half]), in_halves(parts[half:]))

    yield "in their order", in_line(states())
    yield "backwards", in_line(states()[::-1])
    yield "two by two", in_halves(states())
