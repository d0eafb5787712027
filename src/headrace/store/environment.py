"""The environment variables for object stores, passed on to workers.

Endpoints and keys are environment variables with the names of the vendors' own tools. The variables of the process that
starts a query are also set in the workers that run its tasks, before they read or write anything: for the checkpoint,
for outputs and for sources. They travel only with the tasks, and only for the kinds of stores that the query uses; they
are never shown, and never written to a checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

__all__ = ["Environment"]

#: The prefixes of the variables for a store, by the scheme of its URLs.
_PREFIXES = {"s3": "AWS_", "s3a": "AWS_", "gs": "GOOGLE_", "abfs": "AZURE_", "abfss": "AZURE_"}

#: The limit for files of remote stores on a machine's disk (`kept_files.py`).
_CACHE = "HEADRACE_CACHE_MB"


class Environment:
    """The variables for some places; unpickling sets them."""

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
