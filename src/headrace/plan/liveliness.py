"""How soon an operator's answers are final, what it remembers until then, and what would improve either (rule 6.4)."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["AS_INPUT", "NOT_ENDED", "Liveliness", "of_all_inputs"]


@dataclass(frozen=True)
class Liveliness:
    """Of one operator: its output CTI, how far that is behind, what it remembers, and how to make it better."""

    cti: str
    delay: str
    state: str
    advice: tuple[str, ...] = ()

    def remembering(self, state: str) -> Liveliness:
        """The same, with a state."""
        return replace(self, state=state)

    def advising(self, *advice: str) -> Liveliness:
        """The same, with more advice."""
        return replace(self, advice=(*self.advice, *advice))

    def by_answer(self) -> Liveliness:
        """The same, of an operator that gives each final answer when it is known."""
        return replace(self, delay=f"{self.delay}; final answers do not wait for it")


#: Of an operator that passes its input's CTI on and remembers nothing.
AS_INPUT = Liveliness("as its input", "none", "none")
#: What is remembered of events that may still be taken back or shortened.
NOT_ENDED = "events whose end the CTI has not passed"


def of_all_inputs(state: str = "none") -> Liveliness:
    """Of an operator whose inputs have to be heard all."""
    return Liveliness("the least of its inputs", "that of the slowest input", state)
