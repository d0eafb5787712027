"""Errors of the layers below in the words of SQL: they are written for users of Python.

Where a rule knows the error, it says it in SQL. Of others, hints with Python in them are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from headrace.errors import HeadraceError
from headrace.sql.syntax import Call, Part

__all__ = ["Wording", "in_sql"]

_PYTHON = re.compile(
    r"""hr\.|@|lambda|timedelta|\w=['"]|\.cast\(|\b(?:int|str|float|bool|None|True|False)\b|\b(?:col|hopping|tumbling|"""
    r"""sliding|where|select|window|aggregate|group_by|by|match|pattern|skip|then|prev|recurse|within|over|top|of)\("""
)
_LONGEST = 60  # characters of the user's text that a message repeats
#: What Python calls the types of parameters.
_KINDS = {"float": "a number", "int": "a whole number", "str": "a text", "bool": "TRUE or FALSE"}


class Wording(NamedTuple):
    """The parts of an error."""

    message: str
    given: Any
    allowed: str
    instead: str


def in_sql(error: HeadraceError, part: Part, text: str) -> Wording:
    """An error at a part of a text, in the words of SQL."""
    wording = Wording(error.message.partition("\n")[0], error.given, error.allowed, error.instead)
    source = " ".join(text[slice(*part.at)].split())
    for pattern, rule in _RULES:
        if found := pattern.search(wording.message):
            wording = rule(wording, found, source)
    if isinstance(part, Call):
        wording = _called(wording, ".".join(name.text for name in part.name))
    wording = wording._replace(allowed=_FORMS.get(wording.allowed, wording.allowed))
    return wording._replace(
        allowed="" if _PYTHON.search(wording.allowed) else wording.allowed,
        instead="" if _PYTHON.search(wording.instead) else wording.instead,
    )


#: What layers below allow, and what SQL does.
_FORMS = {
    "an int (ticks), a datetime, ISO text such as '2024-05-01T12:00:00Z', or 'inf'": (
        "a date and time such as '2024-05-01 12:00:00', or a number"
    ),
    "an int (ticks), a timedelta, or text such as '10 s', '5 minutes', '1 h 30 min'": (
        "a duration such as 10 s, 5 min, 1 h 30 min"
    ),
}


# --- rules -----------------------------------------------------------------------------------------------------------


def _misfit(wording: Wording, found: re.Match[str], source: str) -> Wording:
    """An operator, or a function, and types that it does not take: the operator as the user wrote it."""
    two = re.fullmatch(r"(\w+) and (\w+)", found["what"])
    if two is not None:
        return wording._replace(message=f"{two[1]} and {two[2]} cannot be one column: {found['types']}")
    moved = "ts + 10 s, or the difference of two times" if "timedelta" in wording.instead else wording.instead
    what = source if len(source) <= _LONGEST else found["what"]
    return wording._replace(message=f"{what} cannot take {found['types']}", instead=moved)


def _key(wording: Wording, _: re.Match[str], __: str) -> Wording:
    return wording._replace(given=None, instead="encoding => 'upsert', key => 'symbol'")


def _loop(wording: Wording, _: re.Match[str], source: str) -> Wording:
    allowed = "WHERE, joins, UNION, DISTINCT, aggregates over [SNAPSHOT], loops"
    return Wording("a loop looks at one instant at a time, and this uses more", source, allowed, wording.instead)


def _window_time(_: Wording, found: re.Match[str], source: str) -> Wording:
    message = f"{found['name']} is known where answers last as long as their window"
    return Wording(message, source, "beside and after aggregates over a window", "le and re, the times of a row")


def _arguments(wording: Wording, found: re.Match[str], _: str) -> Wording:
    least, _, most = wording.allowed.partition(" to ")
    plural = "" if found["count"] == "1" else "s"
    allowed = f"{least} argument{'' if least == '1' else 's'}" if least == most else wording.allowed
    return wording._replace(message=f"{found['name']} does not take {found['count']} argument{plural}", allowed=allowed)


_RULES: tuple[tuple[re.Pattern[str], Callable[[Wording, re.Match[str], str], Wording]], ...] = (
    (re.compile(r"^(?P<what>.+) cannot take (?P<types>[A-Z][A-Z0-9_<>(), ]*)$"), _misfit),
    (re.compile(r"^upsert rows need a key"), _key),
    (re.compile(r"^a loop of \w+ payloads cannot hold|^a loop .* cannot hold \w+:"), _loop),
    (re.compile(r"^(?P<name>\w+)\(\) is known where answers last"), _window_time),
    (re.compile(r"^(?P<name>\w+) does not take (?P<count>\d+) arguments$"), _arguments),
)


# --- modules ---------------------------------------------------------------------------------------------------------

_MODULE = re.compile(r"^[\w.]+(?::[0-9a-f]{8})?(?:\(.*?\))?(?= takes \w+ as | cannot take these|'s parameter | gets )")


def _called(wording: Wording, name: str) -> Wording:
    """An error of a module by the name that the user called it by, with parameters as SQL writes them."""
    if not _MODULE.match(wording.message):
        return wording
    message = _MODULE.sub(lambda _: name, wording.message)
    wrong = re.search(r"unexpected keyword argument '(\w+)'", message)
    missing = re.search(r"missing a required argument: '(\w+)'", message)
    parameter = re.fullmatch(r"(?P<what>.*'s parameter \w+) must be (?P<kind>\w+)", message)
    if wrong is not None:
        message, given = f"{name} has no parameter {wrong[1]!r}", wrong[1]
    elif missing is not None:
        message, given = f"{name} needs the parameter {missing[1]!r}", None
    elif parameter is not None:
        message, given = (
            f"{parameter['what']} must be {_KINDS.get(parameter['kind'], parameter['kind'])}",
            wording.given,
        )
    else:
        given = wording.given
    return wording._replace(message=message, given=given, allowed=_parameters(wording.allowed))


def _parameters(allowed: str) -> str:
    """The parameters of a module as SQL writes them: `alpha => 0.1`, or `alpha => a number`."""
    inside = re.fullmatch(r"\w+\((.*)\)", allowed)
    found = re.findall(r"(\w+): '?(float|int|str|bool)'?(?: = ([^,]+))?", inside[1] if inside else allowed)
    if not found:
        return "no parameters" if inside is not None and not inside[1] else allowed
    return ", ".join(f"{name} => {default or _KINDS[kind]}" for name, kind, default in found)
