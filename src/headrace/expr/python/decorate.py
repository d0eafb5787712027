"""`udf`: a Python function becomes a function of the expression language."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal, overload

from headrace.errors import ExpressionError
from headrace.expr.python.node import Udf
from headrace.schema import Type

__all__ = ["udf"]

_ANNOTATIONS = {
    int: Type.LONG, float: Type.DOUBLE, str: Type.STRING, bool: Type.BOOLEAN, datetime: Type.DATETIME,
    date: Type.DATE, Decimal: Type.of(Decimal),
}  # fmt: skip
_EXAMPLE = "@hr.udf(takes='DOUBLE, DOUBLE', returns='DOUBLE')"
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_CHOICES = {"nulls": ("skip", "pass"), "on_error": ("fail", "null")}

Types = str | Type | Sequence[str | Type]


@overload
def udf(
    function: Callable[..., Any],
    *,
    takes: Types | None = None,
    returns: str | Type | None = None,
    vectorised: bool = False,
    nulls: Literal["skip", "pass"] = "skip",
    on_error: Literal["fail", "null"] = "fail",
    time_limit: float | None = None,
    deterministic: bool = True,
    verify: bool = False,
    name: str | None = None,
) -> Udf: ...


@overload
def udf(
    function: None = None,
    *,
    takes: Types | None = None,
    returns: str | Type | None = None,
    vectorised: bool = False,
    nulls: Literal["skip", "pass"] = "skip",
    on_error: Literal["fail", "null"] = "fail",
    time_limit: float | None = None,
    deterministic: bool = True,
    verify: bool = False,
    name: str | None = None,
) -> Callable[[Callable[..., Any]], Udf]: ...


def udf(
    function: Callable[..., Any] | None = None,
    *,
    takes: Types | None = None,
    returns: str | Type | None = None,
    vectorised: bool = False,
    nulls: Literal["skip", "pass"] = "skip",
    on_error: Literal["fail", "null"] = "fail",
    time_limit: float | None = None,
    deterministic: bool = True,
    verify: bool = False,
    name: str | None = None,
) -> Udf | Callable[[Callable[..., Any]], Udf]:
    """Turn a Python function into a function of fields, for use in expressions.

    Called with columns and expressions it returns an expression; `.function` is the plain function, for tests.

    >>> @udf
    ... def mid(bid: float, ask: float) -> float:
    ...     return (bid + ask) / 2
    >>> mid.signature
    'mid(bid DOUBLE, ask DOUBLE) -> DOUBLE'
    >>> mid("bid", "ask").name
    'mid(bid, ask)'
    >>> mid.function(1.0, 2.0)
    1.5

    Types are those of the annotations (int is LONG, float DOUBLE, str STRING, bool BOOLEAN, datetime DATETIME, and
    list[float] ARRAY<DOUBLE>), unless `takes` and `returns` say them. A `vectorised` function gets Arrow arrays and
    gives one, or a NumPy array, of the same length; what it gives in a row may depend on that row alone.

    A row with a null argument gives null without a call; `nulls="pass"` passes None instead. A call that raises, or
    gives another type or length, stops the query with an error that shows the row (`on_error="fail"`), or gives null
    there (`"null"`). A call that takes longer than `time_limit` seconds always stops it: which rows that hits would
    depend on the machine. The same input must give the same output, or else a retraction would not find what it takes
    back; `verify` calls twice to check. Every row is a call, also where a CASE then chooses another value.
    """

    def make(function: Callable[..., Any]) -> Udf:
        label = str(name or getattr(function, "__name__", type(function).__name__))
        _check(function, label, nulls=nulls, on_error=on_error, time_limit=time_limit, deterministic=deterministic)
        given = _annotated(function, label, takes is None, returns is None, vectorised=vectorised)
        kinds = given[0] if takes is None else _types(takes)
        gives = given[1] if returns is None else _type(returns)
        _check_arity(function, label, kinds)
        return Udf(function, label, kinds, gives, vectorised, nulls, on_error, time_limit, deterministic, verify)

    return make if function is None else make(function)


def _type(given: str | Type) -> Type:
    return given if isinstance(given, Type) else Type.parse(given)


def _types(given: Types) -> tuple[Type, ...]:
    parts = given.split(",") if isinstance(given, str) else [given] if isinstance(given, Type) else list(given)
    return tuple(_type(part) for part in parts)


def _check(function: Any, label: str, **options: Any) -> None:
    if not callable(function):
        raise ExpressionError("this is not a function", given=function, allowed="a function", instead=_EXAMPLE)
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise ExpressionError(f"{label} returns no value when it is called", given=label, allowed="a plain function")
    for option, allowed in _CHOICES.items():
        if options[option] not in allowed:
            raise ExpressionError(
                f"there is no {option} {options[option]!r}", given=options[option], allowed=", ".join(allowed)
            )
    limit = options["time_limit"]
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, (int, float)) or not limit > 0):
        raise ExpressionError("a time limit is a positive number of seconds", given=limit, instead="time_limit=5.0")
    if not options["deterministic"]:
        raise ExpressionError(
            f"{label} says it is not deterministic",
            given="deterministic=False",
            allowed="functions of their arguments alone, so that a retraction finds what it takes back",
            instead="a column for what it depends on, filled before the rows come in",
        )


def _annotated(
    function: Callable[..., Any], label: str, takes: bool, returns: bool, *, vectorised: bool
) -> tuple[tuple[Type, ...], Type]:
    """The types of the arguments and of the result by annotations, as far as needed."""
    if not (takes or returns):
        return (), Type.STRING
    if vectorised:
        raise ExpressionError(
            f"{label} gets arrays, whose types its annotations do not say", given=label, instead=_EXAMPLE
        )
    try:
        hints = typing.get_type_hints(function)
        parameters = list(inspect.signature(function).parameters.values())
    except (NameError, TypeError, ValueError) as error:
        raise ExpressionError(f"the types of {label} cannot be found: {error}", given=label, instead=_EXAMPLE) from None
    names = [parameter.name for parameter in parameters]
    for parameter in parameters:
        if takes and parameter.kind not in _POSITIONAL:
            raise ExpressionError(
                f"{label} does not say how many arguments it takes", given=str(parameter), instead=_EXAMPLE
            )
    found = tuple(_hinted(label, name, hints) for name in names) if takes else ()
    return found, _hinted(label, "return", hints) if returns else Type.STRING


def _hinted(label: str, name: str, hints: dict[str, Any]) -> Type:
    hint = hints.get(name)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        rest = [part for part in typing.get_args(hint) if part is not type(None)]
        hint = rest[0] if len(rest) == 1 else hint
    if typing.get_origin(hint) is list and typing.get_args(hint)[0] in _ANNOTATIONS:
        return _ANNOTATIONS[typing.get_args(hint)[0]].array
    if hint not in _ANNOTATIONS:
        what = "what it gives" if name == "return" else f"its argument {name}"
        raise ExpressionError(
            f"{label} does not say a type for {what}",
            given="no annotation" if hint is None else str(hint),
            allowed="int, float, str, bool, datetime, and lists of these",
            instead=_EXAMPLE,
        )
    return _ANNOTATIONS[hint]


def _check_arity(function: Callable[..., Any], label: str, kinds: tuple[Type, ...]) -> None:
    if not kinds:
        raise ExpressionError(
            f"{label} takes nothing", given=label, allowed="at least one argument", instead="a literal: hr.lit(...)"
        )
    try:
        inspect.signature(function).bind(*kinds)
    except ValueError:  # some C functions have no signature
        return
    except TypeError as error:
        raise ExpressionError(
            f"{label} cannot take {len(kinds)} arguments: {error}", given=", ".join(kind.value for kind in kinds)
        ) from None
