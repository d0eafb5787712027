"""Who may do what: tokens and roles, what statements and routes need, secrets, limits, and the audit log.

`Access` holds what lasts, in tables of its own in `catalog.db`. What each statement and each route needs is data
(`needs.py`). Two processes may use one database: `headrace token create` works while the server runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from headrace.server.access.audit import AuditEntry, AuditLog
from headrace.server.access.database import AccessDatabase
from headrace.server.access.limits import Limits, Slots
from headrace.server.access.needs import ROUTES, STATEMENTS, check_role, needs
from headrace.server.access.secrets import Secrets
from headrace.server.access.tokens import LOCAL, TokenLine, Tokens
from headrace.server.interface import Who

__all__ = [
    "LOCAL", "ROUTES", "STATEMENTS", "Access", "AuditEntry", "AuditLog", "Limits", "Secrets", "Slots", "TokenLine",
    "Tokens", "check_role", "needs",
]  # fmt: skip


def _now() -> datetime:
    return datetime.now(UTC)


class Access:
    """Tokens, secrets and the audit log of a data directory.

    `tokens_required`: also clients on this machine need a token. `environment` and `clock` are for tests.
    """

    def __init__(
        self,
        data: str | Path,
        *,
        tokens_required: bool = False,
        environment: Mapping[str, str] | None = None,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        directory = Path(data)
        self.database = AccessDatabase(directory / "catalog.db")
        self.tokens = Tokens(self.database, required=tokens_required, clock=clock)
        self.secrets = Secrets(self.database, directory / "secrets.key", environment, clock=clock)
        self.audit = AuditLog(self.database, clock=clock)

    def authenticate(self, token: str | None, *, loopback: bool) -> Who:
        """Who a token belongs to; `AccessError` if it is unknown, or if one is needed."""
        return self.tokens.authenticate(token, loopback=loopback)

    def close(self) -> None:
        """Write what is left of the audit log, and close the database."""
        self.audit.close()
        self.database.close()
