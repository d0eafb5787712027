"""Secrets that statements use by name: passwords of brokers and databases. No statement ever shows one.

A secret is stored encrypted (AES-256 in Galois/counter mode) with a key in a file beside the database, which only its
owner may read; or it is the name of an environment variable of the server, read when it is used. A copy of the database
alone tells nothing.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from headrace.errors import ServerError, nearest
from headrace.server.access.database import AccessDatabase

__all__ = ["Secrets"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_NONCE = 12


class Secrets:
    """The secrets of a server; `key` is the file of the key, made for the first secret."""

    def __init__(
        self,
        database: AccessDatabase,
        key: Path,
        environment: Mapping[str, str] | None,
        *,
        clock: Callable[[], datetime],
    ) -> None:
        self._database = database
        self._key = key
        self._environment = os.environ if environment is None else environment
        self._clock = clock

    def store(self, name: str, value: str, *, owner: str) -> None:
        """`CREATE SECRET name AS 'value'`."""
        nonce = secrets.token_bytes(_NONCE)
        self._add(name, nonce + self._cipher(make=True).encrypt(nonce, value.encode(), name.encode()), None, owner)

    def refer(self, name: str, variable: str, *, owner: str) -> None:
        """`CREATE SECRET name FROM ENV 'VARIABLE'`."""
        if not _NAME.fullmatch(variable):
            raise ServerError("this is no name of an environment variable", given=variable, instead="KAFKA_PASSWORD")
        self._add(name, None, variable, owner)

    def drop(self, name: str) -> None:
        """`DROP SECRET name`."""
        if not self._database.write("DELETE FROM secrets WHERE name = ?", [(name,)]):
            raise self._unknown(name)

    def names(self) -> list[tuple[str, str, str]]:
        """`SHOW SECRETS`: of each its name, where its value is, and its owner."""
        rows = self._database.rows("SELECT name, variable, owner FROM secrets ORDER BY name")
        return [(name, "stored" if variable is None else f"ENV {variable}", owner) for name, variable, owner in rows]

    def value(self, name: str) -> str:
        """The value, for a source or a sink; it must not be shown."""
        rows = self._database.rows("SELECT encrypted, variable FROM secrets WHERE name = ?", [name])
        if not rows:
            raise self._unknown(name)
        encrypted, variable = rows[0]
        return self._decrypted(name, encrypted) if variable is None else self._of_environment(name, variable)

    def _add(self, name: str, encrypted: bytes | None, variable: str | None, owner: str) -> None:
        if not _NAME.fullmatch(name):
            raise ServerError(
                "this is no name for a secret",
                given=name,
                allowed="a letter, then letters, digits and _, at most 100",
                instead="kafka_password",
            )
        row = (name, encrypted, variable, owner, self._clock().isoformat())
        if not self._database.write("INSERT OR IGNORE INTO secrets VALUES (?, ?, ?, ?, ?)", [row]):
            raise ServerError(f"there is a secret {name!r}", given=name, instead=f"first DROP SECRET {name}")

    def _of_environment(self, name: str, variable: str) -> str:
        if variable not in self._environment:
            raise ServerError(
                f"the secret {name!r} is in the environment variable {variable}, which the server does not have",
                instead=f"start the server with {variable} set",
            )
        return self._environment[variable]

    def _decrypted(self, name: str, encrypted: bytes) -> str:
        from cryptography.exceptions import InvalidTag  # takes time to load, and few servers have secrets

        try:
            plain: bytes = self._cipher(make=False).decrypt(encrypted[:_NONCE], encrypted[_NONCE:], name.encode())
        except InvalidTag as error:
            raise ServerError(
                f"the secret {name!r} was encrypted with another key than that of {self._key.name}",
                instead=f"the key file of its time, or DROP SECRET {name} and CREATE SECRET {name} again",
            ) from error
        return plain.decode()

    def _cipher(self, *, make: bool) -> Any:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # takes time to load, see above

        return AESGCM(self._key_bytes(make=make))

    def _key_bytes(self, *, make: bool) -> bytes:
        if make and not self._key.exists():
            _write_key(self._key)
        try:
            mode, key = self._key.stat().st_mode, self._key.read_bytes()
        except OSError as error:
            raise ServerError(f"the key of the secrets cannot be read: {error}", given=str(self._key)) from error
        if mode & 0o077:
            raise ServerError(
                "others than its owner may use the key of the secrets",
                given=f"{self._key}, mode {mode & 0o777:o}",
                allowed="mode 600",
                instead=f"chmod 600 {self._key}",
            )
        return key

    def _unknown(self, name: str) -> ServerError:
        known = [line[0] for line in self.names()]
        close = nearest(name, known)
        return ServerError(
            f"there is no secret {name!r}", given=name, allowed=", ".join(known) or "(no secrets)", instead=close or ""
        )


def _write_key(path: Path) -> None:
    """A new key; of several processes that make one at once, the first wins."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secrets.token_bytes(32))
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
