"""Options of librdkafka as part of a value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.errors import PlanError

__all__ = ["connection", "pairs", "reserved"]

Pairs = tuple[tuple[str, str], ...]


def pairs(options: Mapping[str, object] | Iterable[tuple[str, object]]) -> Pairs:
    """Options as sorted pairs of texts; librdkafka reads numbers and truth values from text."""
    items = options.items() if isinstance(options, Mapping) else options
    return tuple(sorted((str(name), _text(value)) for name, value in items))


def reserved(options: Pairs, fixed: Iterable[str]) -> None:
    """Raise if an option is given that the adapter itself sets. The message never shows values."""
    for name, _ in options:
        if name in fixed:
            raise PlanError(f"the option {name!r} is set by the adapter", given=name, instead="an argument, or nothing")


def connection(bootstrap: str, options: Pairs) -> Pairs:
    """The options of a client, by which it is kept."""
    return (("bootstrap.servers", bootstrap), *options)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
