"""The text that is being bound, for errors that point into it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.errors import HeadraceError, SqlError
from headrace.sql.syntax import Part

__all__ = ["Context"]

#: Hints of errors raised further down are written for users of Python.
_PYTHON = re.compile(
    r"""hr\.|@|lambda|\w=['"]|\.cast\(|\b(col|hopping|tumbling|sliding|where|select|window|aggregate|group_by|by|match|"""
    r"""pattern|skip|then|prev|recurse|within|over)\("""
)


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
        """Errors raised while this part is bound point at it."""
        try:
            yield
        except SqlError:
            raise
        except HeadraceError as error:
            instead = "" if _PYTHON.search(error.instead) else error.instead
            allowed = "" if _PYTHON.search(error.allowed) else error.allowed
            raise self.error(part, error.message, given=error.given, allowed=allowed, instead=instead) from error
