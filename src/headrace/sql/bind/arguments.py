"""The arguments of sources and sinks: by position, then by name.

An argument is a plain value. So that a text needs no secrets, `env('NAME')` is the value of a variable of the
environment, `secret('NAME')` that of a secret of a server, and `||` joins texts:
`'postgresql://me:' || env('PASSWORD') || '@host/db'`. Such values are part of no text that is shown: a statement is
printed as it was written, and errors show the name of the variable.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from glob import has_magic
from pathlib import Path
from typing import Any

from headrace.errors import SqlError, nearest
from headrace.io.files import list_files, local_path
from headrace.sql import syntax as s
from headrace.sql.bind.catalog import Catalog
from headrace.sql.bind.context import Context
from headrace.sql.bind.values import constant
from headrace.sql.printer import to_sql

__all__ = ["LIMITS", "Given"]

LIMITS = ("max_line", "max_expansion")
_RENAME = re.compile(r"(.+?)\s+AS\s+(.+)", re.IGNORECASE)
_HIDDEN_FROM = 4  # shorter values are no secrets, and would be found in any text


@dataclass(frozen=True)
class Given:
    """The arguments of a source or a sink, by name."""

    context: Context
    catalog: Catalog
    part: s.SourceClause | s.Into
    values: dict[str, Any] = field(default_factory=dict)
    #: Where each was written.
    written: dict[str, s.Part] = field(default_factory=dict)
    #: The variables that were read, by their values.
    variables: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        context: Context,
        catalog: Catalog,
        part: s.SourceClause | s.Into,
        wanted: Sequence[str],
        needed: int,
        *,
        dotted: bool = False,
    ) -> Given:
        """Arguments by position, then by name; the first `needed` are required.

        With `dotted` there may also be names with dots, which are options of a client: `"sasl.username" => 'me'`.
        """
        given, what = cls(context, catalog, part), part.kind.text
        if len(part.arguments) > len(wanted):
            raise context.error(
                part.arguments[len(wanted)],
                f"{what} takes {len(wanted)} arguments",
                given=to_sql(part),
                allowed=", ".join(wanted),
            )
        for name, one in zip(wanted, part.arguments, strict=False):
            given.values[name], given.written[name] = given.value(one), one
        for named in part.named:
            name = named.name.text if dotted and "." in named.name.text else named.name.text.lower()
            if name not in wanted and not (dotted and "." in name):
                raise context.error(
                    named.name,
                    f"{what} has no {name!r}",
                    given=name,
                    allowed=", ".join(wanted),
                    instead=nearest(name, wanted) or "",
                )
            if name in given.values:
                raise context.error(named.name, f"{name} is given twice", given=to_sql(part))
            given.values[name], given.written[name] = given.value(named.value), named.value
        for name in wanted[:needed]:
            if name not in given.values:
                raise context.error(part, f"{what} needs a {name}", given=to_sql(part), allowed=", ".join(wanted))
        return given

    def value(self, part: s.Expression) -> Any:
        """The value of an argument."""
        if isinstance(part, s.Call) and (called := [name.text.lower() for name in part.name]) in (["env"], ["secret"]):
            return self._hidden_value(part, called[0])
        if isinstance(part, s.Binary) and part.operator == "||":
            both = (self.value(part.left), self.value(part.right))
            if not all(isinstance(one, str) for one in both):
                raise self.context.error(part, "|| joins texts", given=to_sql(part), allowed="texts and env('NAME')")
            return "".join(both)
        return constant(self.context, part)

    def _hidden_value(self, part: s.Call, function: str) -> str:
        """The value of a variable or of a secret."""
        if part != s.Call(part.name, part.arguments, at=part.at) or len(part.arguments) != 1:
            raise self.context.error(
                part, f"{function} takes a name", given=to_sql(part), allowed=f"{function}('NAME')"
            )
        name = constant(self.context, part.arguments[0])
        found = self._secret(part, str(name)) if function == "secret" else self._variable(part, str(name))
        self.variables[found] = to_sql(part)
        return found

    def _secret(self, part: s.Call, name: str) -> str:
        if self.catalog.secret is None:
            raise self.context.error(
                part, "only a server keeps secrets", given=to_sql(part), instead="env('NAME'), for a variable"
            )
        with self.context.at(part):
            return self.catalog.secret(name)

    def _variable(self, part: s.Call, name: str) -> str:
        if self.catalog.roots is not None:
            raise self.context.error(part, "this session may not read variables of the environment", given=name)
        found = os.environ.get(name)
        if found is None:
            raise self.context.error(
                part,
                f"the environment has no variable {name}",
                given=name,
                instead=f"export {name}=…, before the start",
            )
        return found

    def place(self, name: str) -> s.Part:
        """Where an argument was written; all of them, if it was not."""
        return self.written.get(name, self.part)

    def _place_of(self, value: object) -> s.Part:
        """The argument with a value that an error shows; all of them, if there are several or none."""
        found = [name for name, given in self.values.items() if type(given) is type(value) and given == value]
        return self.place(found[0]) if len(found) == 1 else self.part

    @contextmanager
    def at(self) -> Iterator[None]:
        """Errors raised while the arguments are used point at the one they show, and show no values of variables."""
        try:
            with self.context.at(self.part):
                yield
        except SqlError as raised:
            error = self._of_adapter(raised)
            shown = {name: self._hidden(getattr(error, name)) for name in ("message", "given", "allowed", "instead")}
            at = self._place_of(error.given).at if error.at == self.part.at else error.at
            if at == error.at and all(value == getattr(raised, name) for name, value in shown.items()):
                raise
            raise SqlError.of(text=error.text, at=at, **shown) from None  # its cause has the values

    def _of_adapter(self, error: SqlError) -> SqlError:
        """An error about the options of an adapter, by the name that SQL has for it."""
        about = re.match(r"\w+(?= (?:needs the|has no) option '\w+')", error.message)
        if about is None:
            return error
        message = self.part.kind.text + error.message[about.end() :]
        return self.context.error(self.part, message, allowed=error.allowed, instead=error.instead)

    def _hidden(self, shown: Any) -> Any:
        text = shown if isinstance(shown, str) else repr(shown)
        for value, name in self.variables.items():
            if len(value) >= _HIDDEN_FROM and value in text:
                shown = text = text.replace(value, name)
        return shown

    def text(self, name: str, default: str = "") -> str:
        """The text of an argument."""
        value = self.values.get(name, default)
        if not isinstance(value, str):
            raise self.context.error(self.place(name), f"{name} is a text", given=value, allowed="a text in quotes")
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """The names in an argument, separated by commas."""
        return tuple(one.strip() for one in self.text(name).split(",") if one.strip())

    def renames(self) -> dict[str, str]:
        """`rename => 'old AS new, …'`."""
        pairs = {}
        for pair in self.names("rename"):
            found = _RENAME.fullmatch(pair)
            if found is None:
                raise self.context.error(
                    self.place("rename"), "this renames no column", given=pair, allowed="'old AS new, old AS new'"
                )
            pairs[found[1]] = found[2]
        return pairs

    def limits(self) -> dict[str, Any]:
        """`max_line => n, max_expansion => n, "order" => 'name', on_drift => 'widen'`, if given, and the new names."""
        limits = {name: value for name, value in self.values.items() if name in (*LIMITS, "order", "on_drift")}
        return limits | {"rename": self.renames()}

    def sparse(self) -> bool | list[str]:
        """`sparse => 'note, mood'`, or `sparse => TRUE` for all columns."""
        given = self.values.get("sparse", False)
        return given if isinstance(given, bool) else [name.strip() for name in self.text("sparse").split(",")]

    def rest(self, *but: str) -> dict[str, Any]:
        """All arguments but these."""
        return {name: value for name, value in self.values.items() if name not in but}

    def path(self, name: str = "path") -> str:
        """A path from the session's base, if the session may use it."""
        given = self.text(name)
        local = local_path(given)
        if local is None:
            if self.catalog.roots is not None:
                raise self._outside(given)
            return given
        path = Path(local)
        if not path.is_absolute() and self.catalog.base != Path():
            path = self.catalog.base / path
        # A directory, or a pattern, may contain links to other places.
        if not self.catalog.may_use(path):
            raise self._outside(given)
        if self.catalog.roots is not None and (path.exists() or has_magic(str(path))):
            for found in list_files(str(path)):
                if not self.catalog.may_use(Path(found)):
                    raise self._outside(found)
        return str(path)

    def _outside(self, path: str) -> Exception:
        roots = ", ".join(map(str, self.catalog.roots or ()))
        return self.context.error(
            self.part, "this session may not use files there", given=path, allowed=roots or "(no files at all)"
        )

    def options(self, paths: tuple[str, ...] | None) -> dict[str, Any]:
        """The arguments as options of an adapter with these paths; those with dots are options of its client."""
        if paths is None and self.catalog.roots is not None and not self.catalog.any_adapter:
            raise self.context.error(
                self.part.kind,
                "this session may only use some folders, and it is not known which files this adapter uses",
                given=self.part.kind.text,
                allowed="adapters that declare their paths",
            )
        options = {name: value for name, value in self.values.items() if "." not in name}
        options |= {name: self.path(name) for name in paths or () if name in options}
        dotted = {name: value for name, value in self.values.items() if "." in name}
        return options | ({"options": dotted} if dotted else {})
