"""The exception tree.

Every error has a class, a stable code, and a text that says what was given, what is allowed and what to write instead.
Each class also derives from a matching builtin, so `except ValueError` works as expected.

    HeadraceError
    ├── TimeError          a time or duration that cannot be read            (ValueError)
    ├── SchemaError        a schema that is invalid or does not match        (ValueError)
    │   └── SchemaDrift    a file has other columns than its source declares
    ├── ExpressionError    an expression that cannot be built or typed       (TypeError)
    │   └── UnknownColumn  a column that does not exist                      (KeyError)
    ├── UnknownMethod      a name that an object or the package lacks        (AttributeError)
    ├── PlanError          an invalid query                                  (ValueError)
    ├── ModuleError        a module that cannot be used as it is             (TypeError)
    │   └── ModuleFailed   a module that failed while it ran                 (RuntimeError)
    ├── EventError         an invalid physical stream                        (ValueError)
    │   ├── LateEvent      an event breaks a promise, under late="raise"
    │   └── BadRow         a row cannot be read, under bad_rows="raise"
    ├── TableError         a change that a table does not allow              (ValueError)
    ├── SqlError           an invalid text of Headrace SQL                   (ValueError)
    ├── IntentError        an intent that is empty or contradictory          (ValueError)
    ├── TraceError         a question about a traced run without an answer   (LookupError)
    ├── HistoryError       a query that cannot run as batch SQL              (ValueError)
    │   └── Undecided      stored rows do not show which were late
    ├── Diverged           a loop that never ends                            (RuntimeError)
    ├── PatternError       a pattern with too many runs at once              (RuntimeError)
    ├── SourceError        an input that cannot be opened                    (OSError)
    ├── SinkError          an output that cannot be written                  (OSError)
    ├── CheckpointError    a checkpoint of another query or version          (RuntimeError)
    │   ├── StoreError     a file of a checkpoint is missing or damaged      (OSError)
    │   └── Superseded     another process has taken over the checkpoint
    ├── Unavailable        a service that does not answer now                (ConnectionError)
    ├── HostError          a host that cannot start or has failed            (RuntimeError)
    ├── AlarmError         an alarm that fails the query                     (RuntimeError)
    └── ServerError        what a server cannot do                           (RuntimeError)
        ├── AccessError        a client that is not known, or may not do this (PermissionError)
        ├── LimitError         more than the server allows one client
        ├── StatementCancelled a statement that was interrupted
        └── SubscriptionError  a cursor older than what is kept

    RowsNotUsed            the warning of a run that did not use all rows    (UserWarning)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any
from unicodedata import combining, east_asian_width

from headrace.literals import printable, sql_text

__all__ = [
    "AccessError", "AlarmError", "BadRow", "CheckpointError", "Diverged", "EventError", "ExpressionError",
    "HeadraceError", "HistoryError", "HostError", "IntentError", "LateEvent", "LimitError", "ModuleError",
    "ModuleFailed", "PatternError", "PlanError", "RowsNotUsed", "SchemaDrift", "SchemaError", "ServerError",
    "SinkError", "SourceError", "SqlError", "StatementCancelled", "StoreError", "SubscriptionError", "Superseded",
    "TableError", "TimeError", "TraceError", "Unavailable", "Undecided", "UnknownColumn", "UnknownMethod",
    "nearest", "without_secrets",
]  # fmt: skip

_SHOWN = 100  # characters of the line an error of SQL shows
_URL = re.compile(r"""\b[A-Za-z][A-Za-z0-9+.-]*://[^\s'"]+""")
_USER = re.compile(r"(?<=://)(?!\*+@)[^/?;]*@")
_PARAMETER = re.compile(r"(?<=[?&;])([\w.-]+)=(?!\*+(?:[&;]|$))([^&;]+)")
#: Parameters of URLs that are not secret, in lower case.
_PLAIN_PARAMETERS = frozenset({"endpoint_override", "region", "scheme", "use_ssl", "user_agent"})


def without_secrets(text: str) -> str:
    """A text whose URLs show neither users, passwords nor parameters that may be secret.

    >>> without_secrets("s3://key:secret@bucket/a?region=eu&token=x is gone, sc://host:15002/;token=abc")
    's3://***@bucket/a?region=eu&token=*** is gone, sc://host:15002/;token=***'
    """
    return _hidden(text, lambda _: "***")


def _hidden(text: str, mask: Callable[[str], str]) -> str:
    def parameter(found: re.Match[str]) -> str:
        return found[0] if found[1].lower() in _PLAIN_PARAMETERS else f"{found[1]}={mask(found[2])}"

    def url(found: re.Match[str]) -> str:
        return _PARAMETER.sub(parameter, _USER.sub(lambda user: mask(user[0][:-1]) + "@", found[0]))

    return _URL.sub(url, text) if "://" in text else text


class HeadraceError(Exception):
    """The base of all errors that Headrace raises.

    `given` is what was passed, `allowed` what would have been right, `instead` what to write.
    """

    code = "HEADRACE"

    def __init__(self, message: str, *, given: object = None, allowed: str = "", instead: str = "") -> None:
        self.message = without_secrets(message)
        self.given = without_secrets(given) if isinstance(given, str) else given
        self.allowed = without_secrets(allowed)
        self.instead = without_secrets(instead)
        super().__init__(self.message)

    def __str__(self) -> str:
        lines = [f"[{self.code}] {self.message}", *self._place()]
        if self.given is not None:
            lines.append(f"  given:   {without_secrets(self._given())}")
        if self.allowed:
            lines.append(f"  allowed: {self.allowed}")
        if self.instead:
            lines.append(f"  instead: {self.instead}")
        return printable("\n".join(lines))

    def _given(self) -> str:
        return repr(self.given)

    def _place(self) -> list[str]:
        """Lines that show the place of the error, if there is one."""
        return []

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders (Spark workers): rebuild with every part, not just the text.
        return _rebuild, (type(self), self.message, self.given, self.allowed, self.instead)


def _rebuild(kind: type[HeadraceError], message: str, given: object, allowed: str, instead: str) -> HeadraceError:
    # Of a class of two builtins, only the `__new__` of the one that shapes its instances may be called.
    shape: type[Any] = kind
    while shape.__module__ != "builtins":
        assert shape.__base__ is not None
        shape = shape.__base__
    error: HeadraceError = shape.__new__(kind)  # type: ignore[call-overload]
    HeadraceError.__init__(error, message, given=given, allowed=allowed, instead=instead)
    return error


def _rebuild_sql(
    kind: type[SqlError], message: str, text: str, at: tuple[int, int], given: object, allowed: str, instead: str
) -> SqlError:
    return kind.of(message, text, at, given=given, allowed=allowed, instead=instead)


class TimeError(HeadraceError, ValueError):
    """A time or duration that cannot be read."""

    code = "TIME"


class SchemaError(HeadraceError, ValueError):
    """An invalid schema, or data that does not match it."""

    code = "SCHEMA"


class SchemaDrift(SchemaError):
    """A file, or a writer's schema, has other columns than its source declares, under `on_drift="raise"`."""

    code = "SCHEMA_DRIFT"


class ExpressionError(HeadraceError, TypeError):
    """An expression that cannot be built or typed."""

    code = "EXPRESSION"


class UnknownColumn(ExpressionError, KeyError):
    """A column that does not exist; the text names the nearest one that does."""

    code = "UNKNOWN_COLUMN"

    @classmethod
    def of(cls, name: str, columns: Iterable[str], where: str = "", text: str = "") -> UnknownColumn:
        """The error for `name` looked up among `columns`; `text` is what to write if a text is meant."""
        known = list(columns)
        place = f" in {where}" if where else ""
        close = nearest(name, known)
        return cls(
            f"there is no column {name!r}{place}",
            given=name,
            allowed=", ".join(known) or "(no columns)",
            instead=" or ".join(hint for hint in (f"col({close!r})" if close else "", text) if hint),
        )


class UnknownMethod(HeadraceError, AttributeError):
    """A name that an expression, a stream or the package lacks; the text says what to write if it is well known."""

    code = "UNKNOWN_METHOD"

    @classmethod
    def of(cls, name: str, owner: str, known: Iterable[str], hints: Mapping[str, str]) -> UnknownMethod:
        """The error for `.name` of `owner`: `hints` know names of other libraries; others may be near by spelling."""
        names = list(known)
        close = nearest(name, names, least=0.8)
        error = cls(
            f"there is no {name!r} here",
            given=f"{owner}.{name}",
            allowed=", ".join(names),
            instead=hints.get(name) or (f".{close}" if close else ""),
        )
        error.obj = None  # else Python adds a name of its own, by spelling alone
        return error


class PlanError(HeadraceError, ValueError):
    """An invalid query."""

    code = "PLAN"


class ModuleError(HeadraceError, TypeError):
    """A module that cannot be used, or is used in a wrong way."""

    code = "MODULE"


class ModuleFailed(ModuleError, RuntimeError):
    """A module that raised, returned an invalid result, or did not return."""

    code = "MODULE_FAILED"


class EventError(HeadraceError, ValueError):
    """An invalid physical stream."""

    code = "EVENT"


class LateEvent(EventError):
    """An event breaks a promise already made, and the input's policy is `raise`."""

    code = "LATE_EVENT"


class BadRow(EventError):
    """A row that cannot be read, and the input's policy is `raise`."""

    code = "BAD_ROW"


class TableError(HeadraceError, ValueError):
    """A change that a table does not allow: a key that exists, a null where none may be, a time that goes back."""

    code = "TABLE"


class SqlError(HeadraceError, ValueError):
    """An invalid text of Headrace SQL, with the place: `at` are two offsets into `text`.

    `line` and `column` count from 1.
    """

    code = "SQL"

    def __init__(
        self,
        message: str,
        *,
        text: str = "",
        at: tuple[int, int] = (0, 0),
        given: object = None,
        allowed: str = "",
        instead: str = "",
    ) -> None:
        super().__init__(message, given=given, allowed=allowed, instead=instead)
        start = min(max(at[0], 0), len(text))
        self.text = text
        self.at = (start, min(max(at[1], start), len(text)))
        self.line = text.count("\n", 0, start) + 1
        self.column = start - text.rfind("\n", 0, start)

    @classmethod
    def of(
        cls,
        message: str,
        text: str,
        at: tuple[int, int],
        *,
        given: object = None,
        allowed: str = "",
        instead: str = "",
    ) -> SqlError:
        """The error for the part `at` of `text`."""
        return cls(message, text=text, at=at, given=given, allowed=allowed, instead=instead)

    def _given(self) -> str:
        return repr(self.given) if isinstance(self.given, str) else sql_text(self.given)

    def _place(self) -> list[str]:
        if not self.text:
            return []
        start, end = self.at
        begin = start - self.column + 1
        stop = self.text.find("\n", start)
        stop = len(self.text) if stop < 0 else stop
        first, last = begin, stop
        if stop - begin > _SHOWN:
            begin, stop = max(begin, start - _SHOWN // 2), min(stop, start + _SHOWN // 2)
        text = _hidden(self.text, lambda secret: "*" * len(secret))
        shown = "".join(c if c.isprintable() else " " for c in text[begin:stop])
        margin = f"  {self.line} | {'…' if begin > first else ''}"
        carets = "^" * max(1, min(end, stop) - start)
        before = sum(map(_width, text[begin:start]))
        return [margin + shown + ("…" if stop < last else ""), " " * (len(margin) + before) + carets]

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_sql, (type(self), self.message, self.text, self.at, self.given, self.allowed, self.instead)


class IntentError(HeadraceError, ValueError):
    """An intent that is empty or contradictory."""

    code = "INTENT"


class HistoryError(HeadraceError, ValueError):
    """A query, or the stored data of one, that cannot run as batch SQL over history."""

    code = "HISTORY"


class Undecided(HistoryError):
    """The stored rows do not show which of them were late."""

    code = "UNDECIDED"


class TraceError(HeadraceError, LookupError):
    """A question about a traced run that has no answer: the row is not there, or an operator cannot say its causes."""

    code = "TRACE"


class Diverged(HeadraceError, RuntimeError):
    """A loop that always gives something new, so that it has no result."""

    code = "DIVERGED"


class PatternError(HeadraceError, RuntimeError):
    """A pattern with too many runs in a group at once."""

    code = "PATTERN"


class SourceError(HeadraceError, OSError):
    """An input that cannot be opened."""

    code = "SOURCE"


class SinkError(HeadraceError, OSError):
    """An output that cannot be written."""

    code = "SINK"


class Unavailable(HeadraceError, ConnectionError):
    """A service that does not answer now, and may answer later."""

    code = "UNAVAILABLE"


class CheckpointError(HeadraceError, RuntimeError):
    """A checkpoint that belongs to another query or another version."""

    code = "CHECKPOINT"


class StoreError(CheckpointError, OSError):
    """A file of a checkpoint that is missing or damaged, or cannot be written."""

    code = "STORE"


class Superseded(CheckpointError):
    """Another process has started the query with the same checkpoint, and owns it now."""

    code = "SUPERSEDED"


class HostError(HeadraceError, RuntimeError):
    """A host that cannot start or has failed."""

    code = "HOST"


class AlarmError(HeadraceError, RuntimeError):
    """An alarm with `then="fail"` has begun: the query has ended, and continues with its checkpoint."""

    code = "ALARM"


class ServerError(HeadraceError, RuntimeError):
    """The server cannot do this: a name of its catalog, its data directory, a limit."""

    code = "SERVER"


class AccessError(ServerError, PermissionError):
    """The client is not known, or its role does not allow this."""

    code = "ACCESS"


class LimitError(ServerError):
    """More rows, bytes, seconds, connections or subscriptions than the server allows one client."""

    code = "LIMIT"


class StatementCancelled(ServerError):
    """A statement that was interrupted: by its client, the client's own time limit, or the end of the server."""

    code = "CANCELLED"


class SubscriptionError(ServerError):
    """A subscription cannot go on from its cursor: what follows it is no longer kept, or it is of another stream."""

    code = "SUBSCRIPTION"


class RowsNotUsed(UserWarning):
    """A run did not use all rows of its inputs: late or malformed rows, or retractions of unknown events."""


def _width(character: str) -> int:
    """How many columns of a terminal a character takes."""
    return 0 if combining(character) else 2 if east_asian_width(character) in "WF" else 1


def nearest(name: str, known: Iterable[str], *, least: float = 0.5) -> str | None:
    """The known name that `name` probably means, ignoring case and `_`; None if none is likely.

    A name is likely if one is the beginning of the other, or if few letters differ: one of up to four, two of up to
    eight, three of more, and one fewer if the first letter differs. Short names are alike by chance: `now` is not
    `pow`. It must also be as alike as `least`, of at most 1.
    """
    by_lower = {k.lower(): k for k in known}
    wanted = name.lower()
    likely = [k for k in get_close_matches(wanted, by_lower, n=10, cutoff=least) if _is_likely(wanted, k)]
    likely += [k for k in by_lower if k not in likely and _begins(wanted, k)]
    best = min(likely, key=lambda k: (_edits(wanted, k), k[:1] != wanted[:1]), default=None)
    return None if best is None else by_lower[best]


def _begins(name: str, other: str) -> bool:
    short, long = sorted((name, other), key=len)
    return len(short) >= 3 and long.startswith(short) and len(long) <= 3 * len(short)


def _is_likely(name: str, other: str) -> bool:
    if _begins(name, other) or name.replace("_", "") == other.replace("_", ""):
        return True
    size = max(len(name), len(other))
    most = 1 if size <= 4 else 2 if size <= 8 else 3
    return _edits(name, other) <= most - (name[:1] != other[:1])


def _edits(name: str, other: str) -> int:
    """How many letters to insert, remove, replace or swap with a neighbour."""
    before, last = list[int](), list(range(len(other) + 1))
    for i, letter in enumerate(name, 1):
        row = [i]
        for j, wanted in enumerate(other, 1):
            row.append(min(last[j] + 1, row[-1] + 1, last[j - 1] + (letter != wanted)))
            if i > 1 and j > 1 and letter == other[j - 2] and name[i - 2] == wanted:
                row[-1] = min(row[-1], before[j - 2] + 1)
        before, last = last, row
    return last[-1]
