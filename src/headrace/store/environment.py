"""How to reach object stores, as the environment says it, on its way to the workers.

Endpoints and keys are variables of the environment, under the names that the vendors' own tools use. What is set where
a query starts is set in the workers that run its tasks, too, before they read or write anything: for the checkpoint,
for outputs and for sources. It travels with the tasks only, for the kinds of stores that the query uses; it is never
shown, and never written to a checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

__all__ = ["Environment"]

#: How the names of the variables begin that say how to reach a store, by the scheme of its URLs.
_PREFIXES = {"s3": "AWS_", "s3a": "AWS_", "gs": "GOOGLE_", "abfs": "AZURE_", "abfss": "AZURE_"}

#: How much of remote stores a machine may keep on its disk (`kept_files.py`).
_CACHE = "HEADRACE_CACHE_MB"


class Environment:
    """The variables for some places; where it is unpickled, they are set."""

    def __init__(self, places: Iterable[str] = ()) -> None:
        prefixes = {_PREFIXES.get(place.partition("://")[0].lower(), "") for place in places} - {""}
        if prefixes:
            prefixes |= {_CACHE}
        self._values = {name: text for name, text in os.environ.items() if name.startswith(tuple(prefixes))}

    def __repr__(self) -> str:
        return f"Environment({', '.join(sorted(self._values))})"

    def __setstate__(self, state: dict[str, dict[str, str]]) -> None:
        self.__dict__.update(state)
        os.environ.update(self._values)
