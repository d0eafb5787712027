"""Tokens: who a client is, and what it may do.

A token is `hr_ID_SECRET`. The identifier is kept as it is, of the secret (256 random bits) only a salted hash. So
a reader of the database cannot use it to connect, and a fast hash is enough: nobody guesses 256 bits.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from headrace.errors import AccessError, ServerError
from headrace.server.access.database import AccessDatabase
from headrace.server.access.needs import ROLES
from headrace.server.interface import Role, Who

__all__ = ["LOCAL", "TokenLine", "Tokens"]

#: Clients on this machine, where no tokens are required.
LOCAL = Who("local", "admin")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.@-]{0,99}")
_TOKEN = re.compile(r"hr_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
#: How often the last use of a token is noted.
_NOTED = timedelta(minutes=1)


@dataclass(frozen=True)
class TokenLine:
    """What is known of a token; it cannot be shown again."""

    name: str
    role: Role
    created: datetime
    last_used: datetime | None
    revoked: datetime | None


class Tokens:
    """The tokens of a server; `required`: also clients on this machine need one."""

    def __init__(self, database: AccessDatabase, *, required: bool, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock
        self.required = required

    def create(self, name: str, role: Role) -> str:
        """A new token; this is the only time that it is seen."""
        if not _NAME.fullmatch(name) or name == LOCAL.name:
            raise ServerError(
                "this is no name for a token",
                given=name,
                allowed=f"a letter, then letters, digits and _ . @ -, at most 100; not {LOCAL.name!r}",
                instead="dashboard",
            )
        if role not in ROLES:
            raise ServerError(f"there is no role {role!r}", given=role, allowed=", ".join(ROLES), instead="reader")
        identifier, secret, salt = secrets.token_hex(8), secrets.token_urlsafe(32), secrets.token_bytes(16)
        row = (identifier, name, role, salt, _hash(salt, secret), self._clock().isoformat())
        try:
            self._database.write(
                "INSERT INTO tokens (id, name, role, salt, hash, created) VALUES (?, ?, ?, ?, ?, ?)", [row]
            )
        except sqlite3.IntegrityError as error:
            raise ServerError(
                f"there is a token {name!r}",
                given=name,
                instead=f"another name, or first `headrace token revoke {name}`",
            ) from error
        return f"hr_{identifier}_{secret}"

    def revoke(self, name: str) -> None:
        """The token is refused from now on, also by a server that runs."""
        row = (self._clock().isoformat(), name)
        if not self._database.write("UPDATE tokens SET revoked = ? WHERE name = ? AND revoked IS NULL", [row]):
            known = ", ".join(line.name for line in self.lines() if line.revoked is None)
            raise ServerError(f"there is no token {name!r}", given=name, allowed=known or "(no tokens)")

    def lines(self) -> list[TokenLine]:
        """All tokens, the oldest first."""
        rows = self._database.rows("SELECT name, role, created, last_used, revoked FROM tokens ORDER BY created, name")
        return [TokenLine(name, role, *map(_time, times)) for name, role, *times in rows]  # type: ignore[arg-type]

    def authenticate(self, token: str | None, *, loopback: bool) -> Who:
        """Who a token belongs to; `AccessError` if it is unknown or revoked, or if one is needed."""
        if token is None:
            if loopback and not self.required:
                return LOCAL
            raise AccessError(
                "this server needs a token", instead="Authorization: Bearer hr_…, from `headrace token create`"
            )
        found = _TOKEN.fullmatch(token)
        rows = self._database.rows(
            "SELECT name, role, salt, hash, last_used FROM tokens WHERE id = ? AND revoked IS NULL",
            [found[1] if found else ""],
        )
        if found is None or not rows or not hmac.compare_digest(_hash(rows[0][2], found[2]), rows[0][3]):
            raise AccessError("this token is not known, or it was revoked", instead="headrace token create")
        name, role, _, _, used = rows[0]
        self._note_use(found[1], _time(used))
        return Who(name, role)

    def _note_use(self, identifier: str, used: datetime | None) -> None:
        now = self._clock()
        if used is None or now - used >= _NOTED:
            self._database.write("UPDATE tokens SET last_used = ? WHERE id = ?", [(now.isoformat(), identifier)])


def _hash(salt: bytes, secret: str) -> bytes:
    return hashlib.sha256(salt + secret.encode()).digest()


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
