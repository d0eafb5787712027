"""Adapters made from options by name, as SQL and the names of installed adapters give them.

An option is a field of the adapter. SQL has only texts, numbers and truth values, so a text may stand for more: for
several texts, separated by commas, where the field is a `tuple[str, ...]`, and for columns where it is a `Schema`. An
adapter whose fields are of other types, or follow from each other, converts them in its own `from_options`; options
that it takes beside its fields are in `more_options`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, ClassVar, Self

from headrace.errors import PlanError, nearest
from headrace.schema import Schema

__all__ = ["Configured"]

_PLAIN: Mapping[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (int, float), "bool": (bool,)}
_WORDS = {"str": "a text", "int": "a whole number", "float": "a number", "bool": "True or False"}


class Configured:
    """What sources and sinks share: options."""

    #: The options that are paths of files; in SQL, relative ones start at the script. None: it is not known which
    #: files the adapter uses, so scripts that may only use some folders cannot use it.
    paths: ClassVar[tuple[str, ...] | None] = None
    #: Options that are no fields: `from_options` makes fields of them.
    more_options: ClassVar[tuple[str, ...]] = ()

    @property
    def places(self) -> tuple[str, ...]:
        """The paths and URLs that it uses."""
        return tuple(str(getattr(self, name)) for name in self.paths or ())

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """The adapter with these options; to be overridden where they need more than `headrace.io.configured` does."""
        known = {field.name: field for field in fields(cls) if field.init}  # type: ignore[arg-type]
        allowed = (*known, *cls.more_options)
        for name in options:
            if name not in known:
                raise PlanError(
                    f"{cls.__name__} has no option {name!r}",
                    given=name,
                    allowed=", ".join(allowed),
                    instead=nearest(name, allowed) or "",
                )
        for name, field in known.items():
            if name not in options and field.default is MISSING and field.default_factory is MISSING:
                raise PlanError(
                    f"{cls.__name__} needs the option {name!r}", given=", ".join(options), allowed=", ".join(allowed)
                )
        return cls(**{name: _value(known[name], value) for name, value in options.items()})


def _value(field: Field[Any], value: Any) -> Any:
    """The value of a field, of the type that it declares."""
    kind = field.type if isinstance(field.type, str) else inspect.formatannotation(field.type)
    names = set(re.findall(r"\w+", kind))
    if isinstance(value, str) and kind == "tuple[str, ...]":
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, str) and "Schema" in names and "str" not in names:
        return Schema.of(value)
    plain = kind.removesuffix(" | None")
    if plain in _PLAIN and not (value is None and plain != kind):
        fits = isinstance(value, _PLAIN[plain]) and (plain == "bool" or not isinstance(value, bool))
        if not fits:
            raise PlanError(f"{field.name} is {_WORDS[plain]}", given=type(value).__name__, allowed=_WORDS[plain])
    return value
