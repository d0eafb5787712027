"""How soon an operator's answers are final, its state until then, and advice to improve either (rule 6.4)."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["AS_INPUT", "NOT_ENDED", "Liveliness", "of_all_inputs"]


@dataclass(frozen=True)
class Liveliness:
    """Texts about one operator: its output CTI and its delay, the state, and advice."""

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
        """The same, for an operator that gives each final answer as soon as it is known."""
        return replace(self, delay=f"{self.delay}; final answers do not wait for it")


#: An operator that passes its input's CTI on and has no state.
AS_INPUT = Liveliness("as its input", "none", "none")
#: The state of events that may still be retracted or shortened.
NOT_ENDED = "events whose end the CTI has not passed"


def of_all_inputs(state: str = "none") -> Liveliness:
    """An operator that waits for the CTIs of all inputs."""
    return Liveliness("the least of its inputs", "that of the slowest input", state)
