"""Options and paths in the text of a plan, without secrets.

An option's value is shown only if its name is on a short list of harmless ones; any other value is `***`. Users,
passwords and parameters in paths are hidden too (`errors.without_secrets`). Hidden values still identify a source: a
query that is started again with another password is another query. So a text with hidden parts ends with a mark: a few
digits of a slow hash, salted with the shown text. The mark distinguishes secrets and does not reveal them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache

from headrace.errors import without_secrets

__all__ = ["HIDDEN", "hidden_values", "shown_options", "shown_place"]

HIDDEN = "***"
_ROUNDS = 100_000
#: Names of options whose values are no secrets, in lower case: of Kafka, files, tables and Spark's own test sources.
_HARMLESS = frozenset({
    "assign", "cleansource", "dateformat", "delimiter", "encoding", "endingoffsets", "failondataloss",
    "filenameonly", "groupidprefix", "header", "host", "ignorechanges", "ignoredeletes", "includeheaders",
    "includetimestamp", "kafka.bootstrap.servers", "kafka.group.id", "kafka.security.protocol", "kafka.sasl.mechanism",
    "latestfirst", "linesep", "maxbytespertrigger", "maxfileage", "maxfilespertrigger", "maxoffsetspertrigger",
    "minoffsetspertrigger", "minpartitions", "mode", "multiline", "numpartitions", "pathglobfilter", "port",
    "rampuptime", "readchangefeed", "recursivefilelookup", "rowsperbatch", "rowspersecond", "sep", "startingoffsets",
    "startingtimestamp", "startingversion", "subscribe", "subscribepattern", "timestampformat", "timezone", "wholetext",
})  # fmt: skip

Options = Iterable[tuple[str, str]]


def shown_place(path: str) -> str:
    """A path as a plan shows it, with a mark if a part of it is hidden.

    >>> shown_place("ticks/*.csv")
    'ticks/*.csv'
    """
    shown = without_secrets(path)
    return shown if shown == path else f"{shown} {_mark(shown, path)}"


def shown_options(options: Options) -> list[str]:
    """Options as a plan shows them: names, harmless values, and a mark if values are hidden."""
    pairs = sorted(options)
    shown = [f"{name}={without_secrets(value) if _is_harmless(name) else HIDDEN}" for name, value in pairs]
    hidden = hidden_values(pairs)
    return [*shown, _mark(" ".join(shown), "\0".join(hidden))] if hidden else shown


def hidden_values(options: Options) -> list[str]:
    """The values that are not shown as they are."""
    return [value for name, value in options if not _is_harmless(name) or without_secrets(value) != value]


def _is_harmless(name: str) -> bool:
    return name.lower() in _HARMLESS


@lru_cache(maxsize=256)
def _mark(salt: str, hidden: str) -> str:
    return "#" + hashlib.pbkdf2_hmac("sha256", hidden.encode(), salt.encode(), _ROUNDS).hex()[:8]
