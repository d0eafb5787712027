"""Conditions from people who may not run SQL: columns of one operator, and `le` and `re`, compared with values.

Pages and servers take these, with AND between several. A whole expression of SQL could read files of the server.
"""

from __future__ import annotations

import operator as comparisons
import re
from collections.abc import Callable, Mapping
from functools import reduce

import pyarrow as pa

from headrace.display.words import clipped
from headrace.errors import TraceError
from headrace.expr import Expr, col, lit
from headrace.tracing.given import time_value
from headrace.tracing.record import TracedOperator

__all__ = ["comparisons_of", "masked"]

_COMPARISON = re.compile(r'\s*("(?:[^"]|"")+"|\w+)\s*(<=|>=|<>|=|<|>)\s*(.+?)\s*', re.DOTALL)
_SIGNS: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "<": comparisons.lt, "<=": comparisons.le, "=": comparisons.eq,
    "<>": comparisons.ne, ">=": comparisons.ge, ">": comparisons.gt,
}  # fmt: skip
#: A text in quotes, or a name, as SQL writes it. The words of a command that are in it belong to the text.
_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*\"""")
_AND = re.compile(r"\sand\s", re.IGNORECASE)


def masked(text: str) -> str:
    """A text with other characters for what stands in quotes, so that its words are found, at their places."""
    return _QUOTED.sub(lambda found: "_" * len(found[0]), text)


def comparisons_of(operator: TracedOperator, text: str) -> Expr:
    """The condition of a text such as `k = 'a' AND price > 100`."""
    bounds = [0, *(place for found in _AND.finditer(masked(text)) for place in found.span()), len(text)]
    parts = [text[start:end] for start, end in zip(bounds[::2], bounds[1::2], strict=True)]
    return reduce(comparisons.and_, (_comparison(operator, part) for part in parts))


def _comparison(operator: TracedOperator, text: str) -> Expr:
    """A column compared with a value."""
    names = operator.node.schema.names
    own = [*names, "le", "re"]
    parts = _COMPARISON.fullmatch(text)
    name = parts[1] if parts is not None else ""
    name = name[1:-1].replace('""', '"') if name.startswith('"') else name
    if parts is None or name not in own:
        raise TraceError(
            f"a condition here compares columns of operator #{operator.number} with values", given=clipped(text, 100),
            allowed=f"one of {', '.join(own)}, then < <= = <> >= or >, then a value; AND between several",
            instead=f"{own[0]} = 1",
        )  # fmt: skip
    value = parts[3][1:-1].replace("''", "'") if re.fullmatch(r"'.*'", parts[3], re.DOTALL) else parts[3]
    if name not in names:
        return _SIGNS[parts[2]](col(name), lit(time_value(operator, name, value)))
    kind = operator.node.schema[name].type.arrow
    try:
        wanted = pa.scalar(value, pa.string()).cast(kind).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeEncodeError) as error:
        raise TraceError(f"this is no value of {name}", given=clipped(value, 100), allowed=str(kind)) from error
    return _SIGNS[parts[2]](col(name), lit(wanted))
