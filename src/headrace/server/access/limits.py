"""What one client may take: so that none exhausts the memory, the time or the threads of the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from threading import Lock
from typing import Any

import pyarrow as pa

from headrace.errors import LimitError, nearest
from headrace.server.interface import Who

__all__ = ["Limits", "Slots"]


@dataclass(frozen=True)
class Limits:
    """The limits of a server; a `LimitError` names the one that was reached, in `allowed`.

    `connections` and `subscriptions` are for each client, by the name of its token.
    """

    #: Rows and bytes of the reply to one statement.
    reply_rows: int = 1_000_000
    reply_bytes: int = 256 << 20
    #: Bytes of the body of a request, and of the text of its statements.
    body_bytes: int = 64 << 20
    statement_bytes: int = 1 << 20
    #: Seconds that one statement may take.
    statement_seconds: float = 60.0
    #: Bytes of memory for what one statement computes, and how many statements compute at once; others wait.
    statement_memory: int = 1 << 30
    computing: int = 4
    connections: int = 100
    subscriptions: int = 50
    #: Rows of a subscription that are sent at once.
    sent_rows: int = 10_000
    #: Files of a wheel, and their bytes when they are unpacked.
    wheel_files: int = 5_000
    wheel_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value <= 0:
                raise LimitError(f"the limit {name} must be more than 0", given=value)

    @classmethod
    def of(cls, texts: Sequence[str]) -> Limits:
        """Limits from texts such as `statement_seconds=10`; the others are as usual."""
        kinds = {field.name: float if field.name.endswith("seconds") else int for field in fields(cls)}
        found: dict[str, Any] = {}
        for text in texts:
            name, _, number = text.partition("=")
            if name not in kinds:
                raise LimitError(
                    f"there is no limit {name!r}", given=text, allowed=", ".join(kinds),
                    instead=f"{nearest(name, kinds) or 'statement_seconds'}=NUMBER",
                )  # fmt: skip
            try:
                found[name] = kinds[name](number.replace("_", ""))
            except ValueError as error:
                raise LimitError(f"the limit {name} is a number", given=text, instead=f"{name}=100") from error
        return cls(**found)

    def check_reply(self, table: pa.Table) -> pa.Table:
        """The table, unless it is too large."""
        if table.num_rows > self.reply_rows:
            raise self._beyond(
                "reply_rows", table.num_rows, "a LIMIT, a WHERE, or a subscription, which comes in parts"
            )
        if table.nbytes > self.reply_bytes:
            raise self._beyond("reply_bytes", table.nbytes, "fewer columns, a LIMIT, or a subscription")
        return table

    def check_body(self, size: int) -> None:
        """Raise if the body of a request is too large."""
        if size > self.body_bytes:
            raise self._beyond("body_bytes", size, "several requests, each with a part of the rows")

    def check_text(self, text: str) -> str:
        """The text of statements, unless it is too long."""
        size = len(text.encode())
        if size > self.statement_bytes:
            raise self._beyond("statement_bytes", size, "several texts; rows are inserted as JSON or Arrow, not as SQL")
        return text

    def check_wheel(self, files: int, size: int) -> None:
        """Raise if a wheel is too large."""
        if files > self.wheel_files:
            raise self._beyond("wheel_files", files, "several packages")
        if size > self.wheel_bytes:
            raise self._beyond("wheel_bytes", size, "data in a package of its own, installed with the server's Python")

    def out_of_time(self) -> LimitError:
        """The error of a statement that took too long."""
        return LimitError(
            f"the statement took longer than {self.statement_seconds:g} s",
            allowed=f"statement_seconds: {self.statement_seconds:g}",
            instead="a running QUERY, whose answers a SELECT or a SUBSCRIBE shows",
        )

    def out_of_memory(self) -> LimitError:
        """The error of a statement that needs too much memory."""
        return LimitError(
            f"the statement needs more than {self.statement_memory / (1 << 20):g} MiB of memory",
            allowed=f"statement_memory: {self.statement_memory:,}",
            instead="a condition in WHERE or ON, fewer rows, or a QUERY that keeps its answer up to date",
        )

    def _beyond(self, name: str, given: int, instead: str) -> LimitError:
        what, unit = name.split("_")
        allowed = getattr(self, name)
        noun = {
            "reply": "the reply has", "body": "the request has", "statement": "the text of the statements has",
            "wheel": "the wheel has",
        }[what]  # fmt: skip
        return LimitError(
            f"{noun} more {unit} than the limit", given=given, allowed=f"{name}: {allowed:,}", instead=instead
        )


class Slots:
    """What each client uses of a limit now; if it is shared, what all of them use together."""

    def __init__(self, what: str, most: int, *, shared: bool = False) -> None:
        self._what = what
        self._most = most
        self._shared = shared
        self._lock = Lock()
        self._used: Counter[str] = Counter()

    @contextmanager
    def use(self, who: Who) -> Iterator[None]:
        """Hold one; `LimitError` if the client has as many as it may."""
        with self._lock:
            if (self._used.total() if self._shared else self._used[who.name]) >= self._most:
                raise self._full(who)
            self._used[who.name] += 1
        try:
            yield
        finally:
            with self._lock:
                self._used[who.name] -= 1
                if not self._used[who.name]:
                    del self._used[who.name]

    def _full(self, who: Who) -> LimitError:
        if self._shared:
            return LimitError(
                f"{self._most} {self._what} run on this server, and not more at once",
                given=self._most + 1,
                allowed=f"{self._what}: {self._most} for all clients",
                instead="try again when one of them has ended",
            )
        return LimitError(
            f"{who.name} has {self._most} {self._what}, and may not have more",
            given=self._most + 1,
            allowed=f"{self._what}: {self._most} for each client",
            instead="end one of them, or start the server with a higher limit",
        )

    def in_use(self) -> int:
        """How many there are, of all clients."""
        with self._lock:
            return self._used.total()
