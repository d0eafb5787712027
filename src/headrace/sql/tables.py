"""The grammar as tables: the action for each token in each state of the parser, built from `grammar.lark` once.

Lark checks the grammar (LALR(1), without conflicts) and computes the tables; `parse` walks them itself, because whether
a word is a keyword depends on the tokens allowed there, and because every part has to know its place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lark import Lark
    from lark.grammar import Rule

__all__ = ["END", "RESERVED", "STARTS", "Lexemes", "ParseTables", "Production", "grammar", "tables"]

STARTS = ("script", "lone_statement", "lone_expression")
END = "$END"

# Words that are never names, unless quoted. All other keywords are names wherever the grammar cannot take the keyword.
RESERVED = frozenset({
    "AND", "AS", "BETWEEN", "BY", "CASE", "CREATE", "DISTINCT", "ELSE", "FALSE", "FROM", "GROUP", "HAVING", "IN",
    "INSERT", "INTO", "IS", "JOIN", "LIKE", "NOT", "NULL", "ON", "OR", "ORDER", "SELECT", "THEN", "TRUE", "UNION",
    "USING", "WHEN", "WHERE",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Production:
    """One alternative of a rule, as the parser needs it.

    `kept` are the positions of the parts that have a value. `method` builds the value; it is None for
    rules that only pass their part on, and for helpers, whose parts become parts of the rule above.
    """

    rule: str
    size: int
    kept: tuple[int, ...]
    method: str | None
    helper: bool


@dataclass(frozen=True)
class Lexemes:
    """Keywords and signs with the names of their tokens, and patterns: of tokens, of tokens with priority where they
    are allowed, and of skipped text.
    """

    words: dict[str, str]
    signs: dict[str, str]
    plain: re.Pattern[str]
    special: re.Pattern[str]
    ignored: re.Pattern[str]


@dataclass(frozen=True)
class ParseTables:
    """For each state: the next state or the production to finish, by token; and the next state by rule."""

    actions: tuple[dict[str, int | Production], ...]
    following: tuple[dict[str, int], ...]
    starts: dict[str, tuple[int, int]]
    lexemes: Lexemes


def grammar() -> str:
    """The text of the grammar."""
    return files("headrace.sql").joinpath("grammar.lark").read_text(encoding="utf-8")


@cache
def tables() -> ParseTables:
    """The tables, built on first use."""
    from lark import Lark  # start-up: only texts need it
    from lark.lexer import Lexer  # same

    class NoLexer(Lexer):
        """Replaces Lark's own lexers, which are unused and slow to build."""

        def __init__(self, conf: Any) -> None: ...

        def lex(self, lexer_state: Any, parser_state: Any) -> Any:
            raise NotImplementedError

        __future_interface__ = 2

    lark = Lark(
        grammar(), parser="lalr", lexer=NoLexer, start=list(STARTS), maybe_placeholders=False, propagate_positions=False
    )
    return _tables(lark)


def _tables(lark: Lark) -> ParseTables:
    table = lark.parse_interactive("", start=STARTS[0]).parser_state.parse_conf.parse_table
    productions: dict[int, Production] = {}
    actions: list[dict[str, int | Production]] = [{} for _ in table.states]
    following: list[dict[str, int]] = [{} for _ in table.states]
    for state, moves in table.states.items():
        for symbol, (action, target) in moves.items():
            if action.name == "Reduce":
                actions[state][symbol] = productions.setdefault(id(target), _production(target))
            elif symbol.isupper() or symbol == END:
                actions[state][symbol] = target
            else:
                following[state][symbol] = target
    starts = {name: (table.start_states[name], table.end_states[name]) for name in STARTS}
    return ParseTables(tuple(actions), tuple(following), starts, _lexer(lark))


def _production(rule: Rule) -> Production:
    kept = tuple(i for i, symbol in enumerate(rule.expansion) if not getattr(symbol, "filter_out", False))
    name = str(rule.origin.name)
    helper = name.startswith("_")
    if helper or (rule.options.expand1 and len(kept) == 1 and not rule.alias):
        return Production(name, len(rule.expansion), kept, None, helper)
    method = str(rule.alias or name)
    return Production(name, len(rule.expansion), kept, f"{method}_" if iskeyword(method) else method, helper)


def _lexer(lark: Lark) -> Lexemes:
    words: dict[str, str] = {}
    signs: dict[str, str] = {}
    plain: list[str] = []
    special: list[str] = []
    ignored: list[str] = []
    for terminal in lark.terminals:
        value = terminal.pattern.value
        if terminal.pattern.type == "str":
            (words if value[0].isalpha() else signs)[value] = terminal.name
        elif terminal.name in lark.ignore_tokens:
            ignored.append(f"(?:{value})")
        else:
            (special if terminal.priority else plain).append(f"(?P<{terminal.name}>{value})")
    plain.append("(?P<SIGN>" + "|".join(re.escape(sign) for sign in sorted(signs, key=len, reverse=True)) + ")")
    skipped = re.compile("(?:" + "|".join(ignored) + ")*+")
    return Lexemes(
        words, signs, re.compile("|".join(plain), re.IGNORECASE), re.compile("|".join(special), re.IGNORECASE), skipped
    )
