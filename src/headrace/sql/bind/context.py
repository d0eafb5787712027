"""The text that is being bound, for errors that point into it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.errors import HeadraceError, LimitError, SqlError, StatementCancelled
from headrace.sql.bind.wording import in_sql
from headrace.sql.syntax import Part

__all__ = ["Context"]


@dataclass(frozen=True)
class Context:
    """The text that is being bound."""

    text: str

    def error(
        self, part: Part, message: str, *, given: object = None, allowed: str = "", instead: str = ""
    ) -> SqlError:
        """An error that points at a part of the text."""
        return SqlError.of(message, self.text, part.at, given=given, allowed=allowed, instead=instead)

    @contextmanager
    def at(self, part: Part) -> Iterator[None]:
        """Errors raised while this part is bound point at it, in the words of SQL."""
        try:
            yield
        except (SqlError, LimitError, StatementCancelled):  # no place of the text is wrong
            raise
        except HeadraceError as error:
            raise self.error(part, **in_sql(error, part, self.text)._asdict()) from error
