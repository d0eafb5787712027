"""What the running text of a client has changed in the catalog: it becomes durable as a whole, at the end of the text.

What a text creates is stored in the state `creating`, and what it drops stays stored, with its files, until the text
ends; then one transaction of the catalog changes all of it. A process that dies before leaves the catalog as it was
before the text. Rows that a text inserts into what was there before, secrets, and settings of queries are not undone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.server.catalog import ObjectState

if TYPE_CHECKING:
    from headrace.server.core import ServedObject

__all__ = ["CreatedStep", "DroppedStep", "TextChanges"]


@dataclass(frozen=True)
class CreatedStep:
    """An object was created; executing `undo` drops it."""

    number: int
    undo: str


@dataclass(frozen=True)
class DroppedStep:
    """An object was dropped, or a view was replaced; `ran`: its query did run."""

    served: ServedObject
    ran: bool


@dataclass
class TextChanges:
    """The changes of one text: new objects with their states, objects whose places others took, and dropped ones."""

    created: dict[int, ObjectState] = field(default_factory=dict)
    replaced: set[int] = field(default_factory=set)
    dropped: list[ServedObject] = field(default_factory=list)
    #: What takes the changes back, in their order.
    steps: list[CreatedStep | DroppedStep] = field(default_factory=list)

    def clear(self) -> None:
        """The text has ended."""
        self.created, self.replaced, self.dropped, self.steps = {}, set(), [], []
