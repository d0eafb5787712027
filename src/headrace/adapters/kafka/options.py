"""Options: those of librdkafka as part of a value, and texts of SQL that stand for formats, columns and places."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

from headrace.errors import HeadraceError, PlanError
from headrace.io.values import ValueFormat
from headrace.schema import Schema

__all__ = [
    "FORMAT_OPTIONS", "client_module", "config_of", "connection", "key_columns_of", "pairs", "place_of", "reserved",
    "value_format",
]  # fmt: skip

Pairs = tuple[tuple[str, str], ...]
#: The options of a format, beside its name.
FORMAT_OPTIONS = ("delimiter", "avro_schema", "registry", "envelope", "subject")
_OFFSET = re.compile(r"\s*(.+/\d+)\s*:\s*(\d+)\s*")


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


def value_format(name: Any, options: Mapping[str, Any], prefix: str = "") -> ValueFormat:
    """The format of this name, with the options of formats; those of keys have a prefix."""
    if isinstance(name, ValueFormat):
        return name
    own = {option: options[prefix + option] for option in FORMAT_OPTIONS if prefix + option in options}
    for option, value in {"format": name, **own}.items():
        if not isinstance(value, str):
            raise PlanError(f"{prefix}{option} is a text", given=value, allowed="a text")
    return ValueFormat(name, **own)


def key_columns_of(given: Any, columns: Schema) -> Schema:
    """Columns of the key from a text: `id LONG`, or `id` where the stream has this column."""
    if not isinstance(given, str):
        return Schema.of(given)
    parts = [part.strip() for part in given.split(",") if part.strip()]
    return Schema.of(", ".join(str(columns[part]) if part in columns else part for part in parts))


def place_of(start: Any) -> Any:
    """Where reading begins, from a text: a time, which is UTC unless it has a zone, or offsets: `trades/0: 500, …`."""
    if not isinstance(start, str) or start in ("earliest", "latest"):
        return start
    found = [_OFFSET.fullmatch(part) for part in start.split(",")]
    if all(found):
        return {match[1]: int(match[2]) for match in found if match}
    try:
        time = datetime.fromisoformat(start.strip())
    except ValueError:
        return start  # the source says what is allowed
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def config_of(given: Any) -> Any:
    """Settings of a topic from a text: `retention.ms = 1000, cleanup.policy = compact`."""
    if not isinstance(given, str):
        return given
    parts = [part.partition("=") for part in given.split(",") if part.strip()]
    if not all(sign for _, sign, _ in parts):
        raise PlanError("these are no settings of a topic", given=given, instead="'retention.ms = 1000'")
    return {name.strip(): value.strip() for name, _, value in parts}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def client_module(name: str, kind: type[HeadraceError]) -> Any:
    """A module of this package that needs confluent-kafka: imported when it is used, because that is an extra."""
    try:
        return import_module(f"headrace.adapters.kafka.{name}")
    except ImportError as error:
        raise kind("confluent-kafka is not installed", instead="pip install 'headrace[kafka]'") from error
