"""Intents: trees that say what to test and leave the rest open (rule 10.3).

>>> from headrace.testing.intents.tree import Intent
>>> from headrace.testing.generators.traits import trait
>>> join = Intent.of("equi_join", over=trait("highly_out_of_order") & trait("speculative"))
>>> join >> Intent.of("aggregate", window="snapshot")
aggregate(equi_join over highly_out_of_order & (revised | made_speculative | duplicate_retractions), window=snapshot)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.errors import IntentError, nearest
from headrace.testing.generators.traits import Traits, anything
from headrace.testing.intents.catalogue import KINDS

__all__ = ["STREAM", "Intent"]

#: The intent to read a stream: the default for an input.
STREAM = "stream"


@dataclass(frozen=True)
class Intent:
    """A kind of query with the parts that are decided: inputs, options, and the traits of its streams."""

    kind: str
    inputs: tuple[Intent | None, ...] = ()
    #: The values that a dimension of the kind may take; one that is not mentioned may take any.
    options: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: The traits of all streams below.
    over: Traits = anything

    def __post_init__(self) -> None:
        kind = KINDS.get(self.kind)
        if kind is None and self.kind != STREAM:
            raise _unknown("kind of query", self.kind, (*KINDS, STREAM))
        arity = kind.arity if kind else 0
        if len(self.inputs) > arity:
            raise IntentError(
                f"{self.kind} has {arity} input{'' if arity == 1 else 's'}",
                given=", ".join(str(input_ or STREAM) for input_ in self.inputs),
                allowed=f"at most {arity}",
                instead=", ".join([STREAM] * arity) or f"{STREAM} over ...",
            )
        for input_ in self.inputs:
            if input_ is not None and not isinstance(input_, Intent):
                raise IntentError(
                    "an input must be an intent", given=input_, allowed="intents", instead="intent.where()"
                )
        if not isinstance(self.over, Traits):
            raise IntentError(
                "streams are described by traits", given=self.over, allowed="traits", instead="over=traits.in_order"
            )
        self._check_options(kind.dimensions if kind else {})
        plain = [None if input_ == _PLAIN_STREAM else input_ for input_ in self.inputs]
        # An omitted input and a stream without traits are the same.
        object.__setattr__(self, "inputs", (*plain, *[None] * (arity - len(plain))))
        known = kind.dimensions if kind else {}
        object.__setattr__(self, "options", {name: self.options[name] for name in known if name in self.options})

    def _check_options(self, known: Mapping[str, tuple[str, ...]]) -> None:
        for name, values in self.options.items():
            if name not in known:
                raise _unknown(f"dimension of {self.kind}", name, known)
            for value in sorted(values):
                if value not in known[name]:
                    raise _unknown(f"{name} of {self.kind}", value, known[name])
            if not values:
                raise IntentError(f"{name} has no value", given="none", allowed=", ".join(known[name]))

    @classmethod
    def of(cls, kind: str, *inputs: Intent | None, over: Traits = anything, **options: str | Iterable[str]) -> Intent:
        """An intent, with options that have one value or several."""
        chosen = {name: frozenset([v] if isinstance(v, (str, int)) else v) for name, v in options.items()}
        return cls(kind, inputs, {name: frozenset(map(str, values)) for name, values in chosen.items()}, over)

    def open(self, dimension: str) -> tuple[str, ...]:
        """The values that a dimension of its kind may take, in the dimension's order."""
        allowed = self.options.get(dimension)
        return tuple(value for value in KINDS[self.kind].dimensions[dimension] if allowed is None or value in allowed)

    def walk(self) -> Iterator[Intent]:
        """All intents of the tree, in preorder."""
        yield self
        for input_ in self.inputs:
            if input_ is not None:
                yield from input_.walk()

    def __rshift__(self, next_intent: Any) -> Intent:
        """Make this intent the first omitted input of the next one."""
        if not isinstance(next_intent, Intent):
            return NotImplemented
        filled = _filled(next_intent, self)
        if filled is None:
            raise IntentError(
                "the next intent omits no input",
                given=f"{self} >> {next_intent}",
                allowed="an intent with an input to fill",
            )
        return filled

    def __str__(self) -> str:
        inputs = [str(input_ or STREAM) for input_ in self.inputs]
        while inputs and inputs[-1] == STREAM:
            inputs.pop()
        options = [f"{name}={'|'.join(self.open(name))}" for name in self.options]
        arguments = f"({', '.join([*inputs, *options])})" if inputs or options else ""
        over = f" over {self.over}" if self.over.allowed else ""
        return f"{self.kind}{arguments}{over}"

    __repr__ = __str__


_PLAIN_STREAM = Intent(STREAM)


def _filled(intent: Intent, by: Intent) -> Intent | None:
    """The intent with its first omitted input filled in; None if there is none."""
    for place, input_ in enumerate(intent.inputs):
        filled = by if input_ is None else _filled(input_, by)
        if filled is not None:
            return replace(intent, inputs=(*intent.inputs[:place], filled, *intent.inputs[place + 1 :]))
    return None


def _unknown(what: str, name: str, known: Iterable[str]) -> IntentError:
    known = list(known)
    close = nearest(str(name), known)
    return IntentError(
        f"there is no {what} {name!r}", given=name, allowed=", ".join(known) or "none", instead=close or ""
    )
