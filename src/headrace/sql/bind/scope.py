"""Names: which column of which stream is meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from headrace.errors import nearest
from headrace.expr import Expr, col
from headrace.expr.times import Moment
from headrace.schema import Type
from headrace.sql.bind.context import Context
from headrace.sql.elsewhere import name_hint
from headrace.sql.syntax import Call, Column, Name, Star

__all__ = ["ARRIVED", "CLOCKS", "MOMENTS", "NOTHING", "Relation", "Scope", "clock_of", "visible"]

#: The time at which a row has arrived (rule 8.1), as SQL calls it: columns, and functions without arguments.
CLOCKS = ("now", "current_timestamp", "current_time", "localtimestamp", "current_date")
#: The column of the plan with the time of arrival.
ARRIVED = "arrival()"
#: The column of the one row of a SELECT without FROM.
NOTHING = "_sql_one"
#: The times of events and windows, as SQL calls them.
MOMENTS: Mapping[str, Moment | Literal["arrival"]] = {
    "le": "start",
    "re": "end",
    "window_start": "window_start",
    "window_end": "window_end",
    **dict.fromkeys(CLOCKS, "arrival"),
}


def clock_of(call: Call) -> Column | None:
    """`now()` as the column of the time of arrival; None for other calls."""
    clock = len(call.name) == 1 and call.name[0].text.lower() in CLOCKS and not call.arguments and not call.named
    return Column(call.name[0], at=call.at) if clock else None


def visible(names: Iterable[str]) -> list[str]:
    """The columns that people see: what the engine added begins with `__`."""
    return [name for name in names if not name.startswith("__")]


@dataclass(frozen=True)
class Relation:
    """What stands in FROM under one name: what people call its columns, and what the plan calls them."""

    name: str
    columns: Mapping[str, str]
    #: Its columns are only meant where it is named: `first.price`.
    by_name: bool = False
    #: The columns of the plan that have the times of its events (`times.py`).
    times: Mapping[Moment | Literal["arrival"], str] = field(default_factory=dict)
    #: How many queries lie between its FROM and the names that may mean it: 0 is the own FROM, which hides the others.
    level: int = 0

    def without(self, names: Iterable[str]) -> Relation:
        """The same without some columns of the plan: a key that is null on one side only is told by the other."""
        gone = set(names)
        return replace(self, columns={mine: theirs for mine, theirs in self.columns.items() if theirs not in gone})

    def renamed(self, names: Mapping[str, str]) -> Relation:
        """The same under other names in the plan."""
        columns = {name: names.get(theirs, theirs) for name, theirs in self.columns.items()}
        times = {moment: names.get(theirs, theirs) for moment, theirs in self.times.items()}
        return replace(self, columns=columns, times=times)


@dataclass(frozen=True)
class Scope:
    """The relations that names may come from. A name is found as it is written, else in any case."""

    context: Context
    relations: tuple[Relation, ...]
    #: The scope of the query around, whose relations come before structs of the same names: `(c).k` is the struct's.
    around: Scope | None = None

    def column(self, column: Column) -> str:
        """What the plan calls a column."""
        relations = self._meant(column.stream)
        wanted = column.name.text
        found = _found(wanted, relations)
        if len({theirs for _, theirs in found}) == 1:
            return found[0][1]
        if found:
            raise self.context.error(
                column,
                f"{wanted!r} may be several columns",
                given=wanted,
                allowed=", ".join(f"{relation.name}.{wanted}" for relation, _ in found),
                instead=f"{found[0][0].name}.{wanted}",
            )
        time = _time(wanted, relations)
        if time is not None:
            return time
        known = [name for relation in relations for name in relation.columns]
        close = nearest(wanted, known)
        as_text = f"'{wanted}', if a text is meant" if column.name.quoted else ""
        where = f" in {relations[0].name}" if len(relations) == 1 and relations[0].name else ""
        raise self.context.error(
            column.name,
            f"there is no column {wanted!r}{where}",
            given=wanted,
            allowed=", ".join(dict.fromkeys(known)) or "(no columns)",
            instead=name_hint(wanted) or close or as_text,
        )

    def value(self, column: Column) -> Expr:
        """What a column has: of `current_date`, the day of the arrival."""
        name = self.column(column)
        day = name == ARRIVED and column.name.text.lower() == "current_date"
        return col(name).cast(Type.DATE) if day else col(name)

    def struct(self, column: Column) -> Column | None:
        """The column `s` of `s.a`, if no stream has that name."""
        outside = () if self.around is None else self.around.relations
        named = (*self.relations, *outside)
        if column.stream is None or any(_same(relation.name, column.stream.text) for relation in named):
            return None
        whole = Column(column.stream, at=column.at)
        return whole if self.knows(whole) else None

    def knows(self, column: Column) -> bool:
        """Whether there is such a column, and only one."""
        if column.stream is not None and not any(_same(r.name, column.stream.text) for r in self.relations):
            return self.struct(column) is not None
        relations = self._meant(column.stream)
        found = {theirs for _, theirs in _found(column.name.text, relations)}
        return len(found) == 1 or (not found and _time(column.name.text, relations) is not None)

    def mentions(self, column: Column) -> bool:
        """Whether there is such a column, or several."""
        named = column.stream is None or any(_same(r.name, column.stream.text) for r in self.relations)
        return self.knows(column) or (named and bool(_found(column.name.text, self._meant(column.stream))))

    def star(self, star: Star) -> list[tuple[str, str]]:
        """The columns that `*` stands for: what they are called outside, and in the plan."""
        relations = self._meant(star.stream)
        if star.stream is None:
            relations = tuple(relation for relation in relations if not relation.level)
        wanted = {theirs: mine for relation in reversed(relations) for mine, theirs in relation.columns.items()}
        order = [theirs for relation in relations for theirs in relation.columns.values()]
        # Two streams may have a column of the same name: outside, both go by what the plan calls them.
        often = [mine.lower() for mine in wanted.values()]
        return [
            (wanted[theirs] if often.count(wanted[theirs].lower()) == 1 else theirs, theirs)
            for theirs in dict.fromkeys(order)
        ]

    def _meant(self, stream: Name | None) -> tuple[Relation, ...]:
        if stream is not None:
            return (self._relation(stream),)
        return tuple(relation for relation in self.relations if not relation.by_name)

    def _relation(self, name: Name) -> Relation:
        exact = [relation for relation in self.relations if relation.name == name.text]
        found = exact or [relation for relation in self.relations if _same(relation.name, name.text)]
        if found:
            return min(found, key=lambda relation: relation.level)
        known = [one.name for one in self.relations if one.name and not one.name.startswith("_sql_")]
        raise self.context.error(
            name,
            f"there is no stream {name.text!r} in FROM",
            given=name.text,
            allowed=", ".join(known),
            instead=nearest(name.text, known) or "",
        )


def _time(wanted: str, relations: Sequence[Relation]) -> str | None:
    """The column of a time. Of several streams it is that of the joined events, which have no other columns."""
    moment = MOMENTS.get(wanted.lower())
    nearest_level = min((relation.level for relation in relations), default=0)
    relations = [relation for relation in relations if relation.level == nearest_level]
    several = sum(bool(relation.columns) for relation in relations) > 1
    able = [relation for relation in relations if not (several and relation.columns)]
    return next((found for relation in able if moment and (found := relation.times.get(moment))), None)


def _same(one: str, other: str) -> bool:
    return one.lower() == other.lower()


def _found(wanted: str, relations: Iterable[Relation]) -> list[tuple[Relation, str]]:
    """The columns of a name, in the nearest query that has one."""
    given = list(relations)
    for level in sorted({relation.level for relation in given}):
        near = [relation for relation in given if relation.level == level]
        exact = [(relation, relation.columns[wanted]) for relation in near if wanted in relation.columns]
        found = exact or [
            (relation, theirs) for relation in near for own, theirs in relation.columns.items() if _same(own, wanted)
        ]
        if found:
            return found
    return []
