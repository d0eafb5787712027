"""Patterns as one text: a shape, followed by clauses as in MATCH_RECOGNIZE.

    U D+ U+ D+ U+ DEFINE U AS up, D AS NOT up WHERE count(D.*) = count(U.*) - 1 WITHIN 30 s

The conditions speak of columns, so such a text has a meaning only over a stream.
"""

from __future__ import annotations

import re

from headrace.patterns import Pattern
from headrace.schema import Schema
from headrace.sql import syntax as s
from headrace.sql.bind.context import Context
from headrace.sql.bind.patterns import Reading
from headrace.sql.bind.scope import Relation, visible
from headrace.sql.parse import parse_statement

__all__ = ["has_clauses", "pattern_of"]

_CLAUSE = re.compile(r"\b(?:AFTER\s+MATCH|ALL\s+MATCHES|WITHIN|REGISTERS|SUBSET|DEFINE|WHERE)\b", re.IGNORECASE)


def has_clauses(text: str) -> bool:
    """Whether a text says more than a shape."""
    return _CLAUSE.search(text) is not None


def pattern_of(text: str, schema: Schema) -> Pattern:
    """The pattern that a text says over a stream with these columns."""
    clause = _CLAUSE.search(text)
    end = len(text) if clause is None else clause.start()
    whole = f"SELECT * FROM stream MATCH_RECOGNIZE (\nPATTERN ({text[:end].strip()})\n{text[end:]}\n)"
    context = Context(whole)
    part = _found(parse_statement(whole))
    relation = Relation("stream", {name: name for name in visible(schema.names)})
    return Reading(context, {}, relation, schema, part).pattern


def _found(part: s.Part) -> s.MatchRecognize:
    waiting = [part]
    while True:
        one = waiting.pop()
        if isinstance(one, s.MatchRecognize):
            return one
        waiting += one.parts()
