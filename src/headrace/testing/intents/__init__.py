"""Intents describe what to test; `transform` fills in what they leave open.

Every kind of query of the catalogue is a function here. It takes intents as inputs, option values, and the traits of
streams:

>>> from headrace.testing import intents as intent
>>> from headrace.testing.generators import traits
>>> intent.equi_join(over=traits.highly_out_of_order & traits.lulls)
equi_join over highly_out_of_order & lulls
>>> intent.equi_join() >> intent.aggregate(function=["median", "avg"])
aggregate(equi_join, function=avg|median)
>>> print(next(intent.concrete(intent.shift(by="on"), seed=1)).python())
import headrace as hr
<BLANKLINE>
out = s0.shift(4)
<BLANKLINE>
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from headrace.errors import IntentError, nearest
from headrace.testing.intents import catalogue, pairwise, samples, text, transform, tree
from headrace.testing.intents.catalogue import KINDS
from headrace.testing.intents.text import read_intent, read_traits
from headrace.testing.intents.transform import Concrete, concrete
from headrace.testing.intents.tree import STREAM, Intent

__all__ = [
    "KINDS", "Concrete", "Intent", "catalogue", "concrete", "pairwise", "read_intent", "read_traits", "samples", "text",
    "transform", "tree",
]  # fmt: skip


class _NoSuchIntent(IntentError, AttributeError):
    """An attribute that is no kind of query of the catalogue."""


def __getattr__(name: str) -> Callable[..., Intent]:
    if name in KINDS or name == STREAM:
        return partial(Intent.of, name)
    if name.startswith("__"):
        raise AttributeError(name)
    close = nearest(name, (*KINDS, STREAM))
    raise _NoSuchIntent(
        f"there is no kind of query {name!r}",
        given=name,
        allowed=", ".join((*KINDS, STREAM)),
        instead=f"intent.{close}()" if close else "",
    )
