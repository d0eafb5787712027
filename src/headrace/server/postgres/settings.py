"""Settings that clients of PostgreSQL set and ask for: `SET application_name = 'x'`, `SHOW TimeZone`, `RESET ALL`.

Some are what they are: texts are UTF-8, and times are written in UTC. Others are accepted and do nothing, with a notice
if that could surprise. Settings that are not listed here are Headrace's own, and go to the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version

import pyarrow as pa

from headrace.server.postgres.lexing import Lexeme, StatementText
from headrace.server.postgres.states import StatementRefused

__all__ = ["REPORTED", "SERVER_VERSION", "ClientSettings", "SettingsReply", "seconds"]

SERVER_VERSION = f"16.0 (Headrace {version('headrace')})"
#: Settings that a client gets at the start, and when they change.
REPORTED = (
    "server_version", "server_encoding", "client_encoding", "application_name", "DateStyle", "IntervalStyle",
    "TimeZone", "integer_datetimes", "standard_conforming_strings", "is_superuser", "session_authorization",
    "default_transaction_read_only", "in_hot_standby",
)  # fmt: skip
_CONSTANT = {
    "server_version": SERVER_VERSION, "server_version_num": "160000", "server_encoding": "UTF8",
    "integer_datetimes": "on", "is_superuser": "off", "in_hot_standby": "off", "max_identifier_length": "63",
    "session_authorization": "local", "lc_collate": "C", "lc_ctype": "C", "block_size": "8192", "max_index_keys": "32",
}  # fmt: skip
#: Settings with one value, by what a client may write for it.
_FIXED = {
    "client_encoding": ("UTF8", r"utf-?8|unicode|sql_ascii|auto|default"),
    "DateStyle": ("ISO, MDY", r"iso(?:\s*,.*)?|mdy|ymd|default"),
    "IntervalStyle": ("postgres", "postgres|default"),
    "standard_conforming_strings": ("on", "on|true|1|default"),
    "bytea_output": ("hex", "hex|default"),
}
_FREE = {
    "application_name": "", "client_min_messages": "notice", "extra_float_digits": "1", "search_path": "public",
    "statement_timeout": "0", "subscribe_timeout": "1s",
}  # fmt: skip
#: Settings that do nothing here, with the value that they have.
_IDLE = {
    "TimeZone": "UTC", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0", "idle_session_timeout": "0",
    "transaction_timeout": "0", "row_security": "on", "synchronous_commit": "on", "jit": "off",
    "transaction_isolation": "read committed", "default_transaction_isolation": "read committed",
    "transaction_read_only": "off", "default_transaction_read_only": "off", "transaction_deferrable": "off",
    "default_transaction_deferrable": "off", "default_tablespace": "", "default_table_access_method": "heap",
    "xmloption": "content", "synchronize_seqscans": "on", "quote_all_identifiers": "off", "role": "none",
    "work_mem": "4MB", "geqo": "on", "tcp_keepalives_idle": "0", "escape_string_warning": "on",
}  # fmt: skip
_NAMES = {name.lower(): name for name in (*_CONSTANT, *_FIXED, *_FREE, *_IDLE)}
_UNITS = {"": 0.001, "us": 1e-6, "ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_QUIET = frozenset(
    {"synchronous_commit", "jit", "row_security", "synchronize_seqscans", "xmloption", "geqo", "work_mem"}
)


def seconds(text: str) -> float:
    """A time such as `1 s` or `500` (milliseconds) in seconds.

    >>> seconds("1 s"), seconds("500"), seconds("2min")
    (1.0, 0.5, 120.0)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text)
    if found is None or found[2] not in _UNITS:
        raise StatementRefused("this is no length of time", "22023", given=text, allowed="500 ms, 1 s, 2 min")
    return float(found[1]) * _UNITS[found[2]]


@dataclass
class SettingsReply:
    """What a statement about settings replies with; `changed` are settings that the client must hear about."""

    tag: str
    rows: pa.Table | None = None
    notices: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)


class ClientSettings:
    """The settings of a connection."""

    def __init__(self, user: str, given: Mapping[str, str]) -> None:
        self.values = _CONSTANT | {name: value for name, (value, _) in _FIXED.items()} | _FREE | _IDLE
        self.values["session_authorization"] = user
        self._first = dict(self.values)
        for name, value in _startup(given):
            if name.lower() in _NAMES and _NAMES[name.lower()] not in _IDLE:
                self._assign(SettingsReply("SET"), name, value)
        self._first |= self.values

    def reported(self, names: Sequence[str] = REPORTED) -> Iterator[tuple[str, str]]:
        """Settings with their values, for the client to know."""
        return ((name, self.values[name]) for name in names)

    @property
    def subscribe_timeout(self) -> float:
        """Seconds that FETCH waits for rows of a subscription."""
        return seconds(self.values["subscribe_timeout"])

    @property
    def statement_timeout(self) -> float:
        """Seconds after which a statement is interrupted; 0 for never."""
        return seconds(self.values["statement_timeout"])

    def carry_out(self, statement: StatementText) -> SettingsReply | None:
        """Reply to a SET, RESET, SHOW or DISCARD that is about these settings; None if it is not."""
        words = statement.words
        verb = words[0] if words else ""
        if verb == "set":
            return self._set(statement.lexemes[1:])
        if verb == "reset" and len(words) > 1:
            return self._reset(words[1])
        if verb == "show":
            return self._show(words[1:])
        if verb == "discard":
            return SettingsReply("DISCARD ALL", changed=self._forget())
        return None

    def _set(self, parts: Sequence[Lexeme]) -> SettingsReply | None:
        if parts and parts[0].text in ("session", "local"):
            parts = parts[1:]
        if not parts:
            return None
        words = [part.text for part in parts]
        if words[0] in ("transaction", "characteristics"):
            return SettingsReply("SET")
        if words[:2] == ["time", "zone"]:
            return self._assign(SettingsReply("SET"), "timezone", _value(parts[2:]))
        if words[0] == "names":
            return self._assign(SettingsReply("SET"), "client_encoding", _value(parts[1:]))
        if words[0].lower() not in _NAMES or words[1:2] not in (["="], ["to"]):
            return None
        return self._assign(SettingsReply("SET"), words[0], _value(parts[2:]))

    def _assign(self, reply: SettingsReply, name: str, value: str) -> SettingsReply:
        name = _NAMES[name.lower()]
        if name in _CONSTANT:
            raise StatementRefused(f"{name} cannot be changed", "55P02", given=value, allowed=_CONSTANT[name])
        if value.lower() == "default":
            value = self._first[name]
        if name in _FIXED:
            if not re.fullmatch(_FIXED[name][1], value, re.IGNORECASE):
                raise StatementRefused(f"{name} is always {_FIXED[name][0]}", "22023", given=value)
            return reply
        if name in _IDLE:
            if value.lower() != _IDLE[name].lower() and name not in _QUIET and not _means_utc(name, value):
                what = "times are written in UTC" if name == "TimeZone" else f"it stays {_IDLE[name] or 'empty'!r}"
                reply.notices.append(f"{name} has no effect: {what}")
            return reply
        if name.endswith("_timeout"):
            seconds(value)
        self.values[name] = value
        reply.changed += [name] if name in REPORTED else []
        return reply

    def _reset(self, name: str) -> SettingsReply | None:
        if name == "all":
            return SettingsReply("RESET", changed=self._forget())
        if name.lower() not in _NAMES:
            return None
        name = _NAMES[name.lower()]
        self.values[name] = self._first[name]
        return SettingsReply("RESET", changed=[name] if name in REPORTED else [])

    def _forget(self) -> list[str]:
        changed = [name for name in REPORTED if self.values[name] != self._first[name]]
        self.values = dict(self._first)
        return changed

    def _show(self, words: Sequence[str]) -> SettingsReply | None:
        if words[:3] == ("transaction", "isolation", "level"):
            words = ("transaction_isolation",)
        elif words[:2] == ("time", "zone"):
            words = ("timezone",)
        if len(words) != 1:
            return None
        if words[0] == "all":
            names = sorted(self.values, key=str.lower)
            rows = {"name": names, "setting": [self.values[name] for name in names], "description": [""] * len(names)}
            return SettingsReply("SHOW", pa.table(rows))
        if words[0].lower() not in _NAMES:
            return None
        name = _NAMES[words[0].lower()]
        return SettingsReply("SHOW", pa.table({name: pa.array([self.values[name]])}))


def _value(parts: Sequence[Lexeme]) -> str:
    """The value of SET: a text, a word, or several with commas."""
    shown = [part.text[1:-1].replace("''", "'") if part.kind == "text" else part.text for part in parts]
    return "".join(", " if one == "," else one for one in shown)


def _means_utc(name: str, value: str) -> bool:
    return name == "TimeZone" and value.lower() in ("utc", "etc/utc", "gmt", "z", "0", "+00", "+00:00")


def _startup(given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The settings of the first message; `options` has some as `-c name=value`."""
    yield from ((name, value) for name, value in given.items() if name not in ("user", "database", "options"))
    for found in re.finditer(r"-c\s*([\w.]+)=((?:\\.|\S)*)|--([\w.]+)=((?:\\.|\S)*)", given.get("options", "")):
        name, value = (found[1], found[2]) if found[1] else (found[3], found[4])
        yield name, re.sub(r"\\(.)", r"\1", value)
