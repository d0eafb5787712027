"""Schema drift: a file, or a message (`value_drift.py`), whose columns differ from those that a source declares.

A source declares columns once and runs for years; its files change meanwhile. `DriftRules.judge` compares the columns
of one file with the declared ones, once a file, and says how to read it. What differs is one of three things:

- a column is *missing*: the file does not have it;
- a column is *new*: the source does not declare it;
- a type is *changed*: the file has the column in another type. Text formats have no types: there each value is judged.

A schema that a user writes may pick some of many columns, and other types than those of the files. So without a policy
columns are new and types changed only where the schema is that of the first file (`whole`).

The policy `on_drift` decides what happens, see `docs/schema_drift.md`. Each difference is counted, and logged once for
each source and kind of difference in a process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import pyarrow as pa

from headrace.errors import PlanError, SchemaDrift, SchemaError, nearest
from headrace.io.conversion import is_tick
from headrace.schema import Field
from headrace.types import Type

__all__ = [
    "DRIFTS",
    "DRIFT_COUNTERS",
    "DriftJudge",
    "DriftPolicy",
    "DriftRules",
    "DriftVerdict",
    "checked_drift",
    "no_drift",
]

#: What a source does with a file whose columns differ from the declared ones.
DriftPolicy = Literal["raise", "divert", "widen"]
DRIFTS: tuple[str, ...] = get_args(DriftPolicy)
_KINDS = ("new_columns", "missing_columns", "changed_types")
#: The counters of a source: files and messages that differ, and how many columns of them do.
DRIFT_COUNTERS = ("drifted_files", "drifted_rows", *_KINDS)

_log = logging.getLogger("headrace")
_logged: set[tuple[str, str]] = set()
_MOST_SHOWN = 5


def checked_drift(policy: str | None) -> Literal["", "raise", "divert", "widen"]:
    """A policy as formats have it; an error if there is none of this name."""
    if policy is None:
        return ""
    if policy not in DRIFTS:
        raise PlanError(
            "unknown policy for other columns",
            given=policy,
            allowed=", ".join(DRIFTS),
            instead=f"on_drift={nearest(str(policy), DRIFTS) or 'widen'!r}",
        )
    return policy  # type: ignore[return-value] # it is one of DRIFTS


@dataclass(frozen=True)
class DriftVerdict:
    """How to read a file: its differences by counter, the columns to read as null, and why all rows are refused."""

    counts: Mapping[str, int] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()
    refused: str = ""


#: Judges the columns that a file has, by name, beside those that are not in the file and not missing.
DriftJudge = Callable[[Mapping[str, pa.DataType | None], Sequence[str]], DriftVerdict]


def no_drift(found: Mapping[str, pa.DataType | None], elsewhere: Sequence[str]) -> DriftVerdict:  # noqa: ARG001
    """The judge of files that nobody asks about."""
    return DriftVerdict()


@dataclass(frozen=True)
class _Differences:
    """The columns of a file that differ: names, and of changed types (column, found, declared)."""

    missing: tuple[Field, ...]
    new: tuple[str, ...]
    changed: tuple[tuple[Field, pa.DataType], ...]

    def counts(self, what: str) -> dict[str, int]:
        parts = {
            "new_columns": len(self.new), "missing_columns": len(self.missing), "changed_types": len(self.changed)
        }  # fmt: skip
        return {what: 1, **parts} if any(parts.values()) else {}

    def __str__(self) -> str:
        missing = [f"column {column.name!r} is missing" for column in self.missing]
        new = [f"column {name!r} is new" for name in self.new]
        changed = [f"column {column.name!r} is {kind}, not {column.type.value}" for column, kind in self.changed]
        texts = [*missing, *changed, *new]
        more = len(texts) - _MOST_SHOWN
        return "; ".join(texts[:_MOST_SHOWN]) + (f"; and {more} more" if more > 0 else "")


@dataclass(frozen=True)
class DriftRules:
    """How a source reads files with other columns.

    `whole` says that the declared columns are all columns of the first file. `needed` are the columns without which no
    row is an event, `optional` those that a file may lack (`*` is all of them). `source` is the text of the source.
    """

    policy: Literal["", "raise", "divert", "widen"] = ""
    whole: bool = False
    needed: frozenset[str] = frozenset()
    optional: tuple[str, ...] = ()
    source: str = ""

    def judge(
        self,
        path: str,
        declared: Sequence[Field],
        found: Mapping[str, pa.DataType | None],
        elsewhere: Sequence[str] = (),
    ) -> DriftVerdict:
        """How to read a file with the columns `found`; those `elsewhere` are not in the file, and not missing.

        A type is None if the format has no types. Raises if the policy says so.
        """
        differs = self._differences(found, declared, elsewhere)
        counts = differs.counts("drifted_files")
        if not counts:
            return DriftVerdict()
        lacking = [column for column in differs.missing if column.name in self.needed]
        if self.policy == "raise" or (self.policy == "widen" and (lacking or len(differs.missing) == len(declared))):
            raise self._error(path, found, differs, declared, self._file_hints(found, differs), lacking)
        if self.policy == "divert":
            return DriftVerdict(counts, refused=f"schema drift: {differs}")
        self._note(path, differs, counts)
        absent = frozenset(column.name for column in differs.missing) if self.policy == "widen" else frozenset()
        return DriftVerdict(counts, absent)

    def judge_value(
        self, where: str, declared: Sequence[Field], found: Mapping[str, pa.DataType | None]
    ) -> DriftVerdict:
        """The verdict on a message with the columns `found`; `where` names it. Raises if the policy says so."""
        differs = self._differences(found, declared, ())
        counts = differs.counts("drifted_rows")
        if not counts:
            return DriftVerdict()
        if self.policy == "raise":
            sparse = [column.name for column in differs.missing]
            hints = (
                [f"sparse={sparse!r}, if messages may lack {'it' if len(sparse) == 1 else 'them'}"] if sparse else []
            )
            hints += ["on_drift='widen' to go on, with null for what is missing; or 'divert' for such messages"]
            raise self._error(where, found, differs, declared, hints)
        if self.policy == "divert" or (declared and not any(column.name in found for column in declared)):
            return DriftVerdict(counts, refused=f"schema drift: {differs}")
        self._note(where, differs, counts)
        return DriftVerdict(counts)

    def _differences(
        self, found: Mapping[str, pa.DataType | None], declared: Sequence[Field], elsewhere: Sequence[str]
    ) -> _Differences:
        names = {column.name for column in declared}
        there = {*found, *elsewhere, *(names if "*" in self.optional else self.optional)}
        typed = [(column, found[column.name]) for column in declared if column.name in found]
        missing = tuple(column for column in declared if column.name not in there)
        if not self.policy and not self.whole:
            return _Differences(missing, (), ())
        return _Differences(
            missing,
            tuple(name for name in found if name not in names),
            tuple((column, kind) for column, kind in typed if kind is not None and not _is_same(kind, column)),
        )

    def _file_hints(self, found: Mapping[str, pa.DataType | None], differs: _Differences) -> list[str]:
        rename = _renamed(differs, found)
        hints = [f"rename={rename!r}, if the column was renamed"] if rename else []
        if self.policy == "raise":
            return [*hints, "on_drift='widen' to go on, with null for what is missing; or 'divert' for its rows"]
        return [*hints, "on_drift='divert', which diverts the rows of such files"]

    def _error(
        self,
        place: str,
        found: Mapping[str, pa.DataType | None],
        differs: _Differences,
        declared: Sequence[Field],
        hints: Sequence[str],
        lacking: Sequence[Field] = (),
    ) -> SchemaDrift:
        why = f"; without {lacking[0].name!r} its rows are no events" if lacking and self.policy == "widen" else ""
        shown = ", ".join(name if kind is None else f"{name} {kind}" for name, kind in found.items())
        return SchemaDrift(
            f"the columns of {place!r} differ from the declared ones: {differs}{why}",
            given=shown,
            allowed=", ".join(map(str, declared)),
            instead="; or ".join(hints),
        )

    def _note(self, path: str, differs: _Differences, counts: Mapping[str, int]) -> None:
        """Log each kind of difference once for a source."""
        kinds = [(self.source, kind) for kind in _KINDS if counts[kind]]
        if all(kind in _logged for kind in kinds):
            return
        _logged.update(kinds)
        _log.warning("%s: the columns of %r differ from the declared ones: %s", self.source or path, path, differs)


def _is_same(kind: pa.DataType, declared: Field) -> bool:
    """Whether a file's type is the declared one, whatever its encoding and its unit of time."""
    if pa.types.is_dictionary(kind):
        return _is_same(kind.value_type, declared)
    if pa.types.is_null(kind):
        return True
    if is_tick(declared) and pa.types.is_temporal(kind):
        return True
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return declared.type.is_text
    try:
        holds = Type.from_arrow(kind)
    except SchemaError:  # such as UINT64: no type has all its values
        return False
    return holds.arrow == declared.type.arrow or (is_tick(declared) and holds.is_integer)


def _renamed(differs: _Differences, found: Mapping[str, pa.DataType | None]) -> dict[str, str]:
    """The columns that were probably renamed: a missing one and a new one of its type, alike or the only ones."""
    left, pairs = list(differs.new), {}
    for column in differs.missing:
        kinds = {name: found[name] for name in left}
        able = [name for name, kind in kinds.items() if kind is None or _is_same(kind, column)]
        close = nearest(column.name, able)
        if close is None and len(able) == 1 and len(differs.missing) == 1:
            close = able[0]
        if close is not None:
            pairs[close] = column.name
            left.remove(close)
    return pairs
