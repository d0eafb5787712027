"""Describe generated streams by traits: durations, overlap, disorder, CTIs, speculation, lulls, payloads.

A *dimension* is one property that varies (rule 10.3), with a few values. *Traits* allow some values of each dimension:
`highly_out_of_order & speculative` fixes two dimensions and leaves the others open. A *setting* has exactly one value
for every dimension.

>>> from headrace.testing.generators.traits import highly_out_of_order, in_order, infinite, out_of_order
>>> highly_out_of_order & infinite
highly_out_of_order & infinite
>>> (in_order | out_of_order).open("disorder")
('in_order', 'out_of_order')
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.errors import IntentError, nearest

__all__ = ["DIMENSIONS", "TRAITS", "Setting", "Traits", "anything", "trait"]

#: Every dimension and its values. The first value is the plainest.
DIMENSIONS: Mapping[str, tuple[str, ...]] = {
    "duration": ("points", "short", "long", "infinite", "all_durations"),
    "overlap": ("low_overlap", "medium_overlap", "high_overlap"),
    "boundary": ("any_ends", "disjoint", "one_tick_apart", "back_to_back", "duplicates"),
    "disorder": ("in_order", "slightly_out_of_order", "out_of_order", "highly_out_of_order"),
    "ctis": ("no_ctis", "rare_ctis", "regular_ctis", "eager_ctis"),
    "speculation": ("certain", "revised", "made_speculative", "duplicate_retractions"),
    "lulls": ("steady", "lulls"),
    "payload": ("uniform", "zipf", "nulls", "extremes", "unicode"),
}

#: One value for every dimension.
Setting = Mapping[str, str]

_DIMENSION_OF = {value: name for name, values in DIMENSIONS.items() for value in values}


@dataclass(frozen=True)
class Traits:
    """The values that each dimension may take; a dimension that is not mentioned may take any."""

    allowed: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def open(self, dimension: str) -> tuple[str, ...]:
        """The values that a dimension may take, in the dimension's order."""
        allowed = self.allowed.get(dimension)
        return tuple(value for value in DIMENSIONS[dimension] if allowed is None or value in allowed)

    def __and__(self, other: Traits) -> Traits:
        both = dict(self.allowed)
        for name, values in other.allowed.items():
            both[name] = both.get(name, values) & values
            if not both[name]:
                raise IntentError(
                    "no stream can have both traits",
                    given=f"{self} & {other}",
                    allowed=f"one {name} at a time",
                    instead=f"({self}) | ({other}), if either will do",
                )
        return Traits(both)

    def __or__(self, other: Traits) -> Traits:
        if len(self.allowed) != 1 or self.allowed.keys() != other.allowed.keys():
            raise IntentError(
                "'|' is between values of one dimension",
                given=f"{self} | {other}",
                allowed="; ".join(" | ".join(values) for values in DIMENSIONS.values()),
                instead="(in_order | out_of_order) & infinite",
            )
        return Traits({name: values | other.allowed[name] for name, values in self.allowed.items()})

    def __str__(self) -> str:
        parts = [
            " | ".join(self.open(name))
            if len(values) == 1 or len(self.allowed) == 1
            else f"({' | '.join(self.open(name))})"
            for name, values in self.allowed.items()
        ]
        return " & ".join(parts) or "anything"

    __repr__ = __str__


anything = Traits()

#: Every value of every dimension as a trait of its own, and names for several at once.
TRAITS: Mapping[str, Traits] = {
    **{value: Traits({name: frozenset([value])}) for value, name in _DIMENSION_OF.items()},
    "anything": anything,
    "speculative": Traits({"speculation": frozenset(DIMENSIONS["speculation"][1:])}),
    "disordered": Traits({"disorder": frozenset(DIMENSIONS["disorder"][1:])}),
}


def trait(name: str) -> Traits:
    """The trait of this name."""
    if name in TRAITS:
        return TRAITS[name]
    close = nearest(name, TRAITS)
    raise IntentError(f"there is no trait {name!r}", given=name, allowed=", ".join(TRAITS), instead=close or "")


def __getattr__(name: str) -> Traits:
    if name.startswith("__"):
        raise AttributeError(name)
    return trait(name)
