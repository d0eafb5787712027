from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.server.postgres.lexing import adapted, lexemes, place_before, statements, with_literals


def texts(text: str) -> list[str]:
    return [statement.text for statement in statements(text)]


def test_statements_end_where_a_semicolon_means_it():
    assert texts("SELECT ';' ; -- a;b\n SELECT \"a;b\" /* ; */; ;") == ["SELECT ';'", 'SELECT "a;b"']
    body = "CREATE AGGREGATE f(x INT): INT { INITIALIZE: { a; b; } }"
    assert texts(f"{body}; SELECT 1") == [body, "SELECT 1"]
    assert texts("  -- nothing\n ;") == []
    assert [statement.start for statement in statements("a; b ;c")] == [0, 3, 6]


def test_a_brace_that_is_not_closed_hides_nothing():
    assert texts("SELECT { ; SELECT 1") == ["SELECT { ; SELECT 1"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT $1 + $2", "SELECT 1 + 'b'"),
        ("SELECT '$1' || $1", "SELECT '$1' || 1"),
        ('SELECT "$1", `$2` FROM t -- $1', 'SELECT "$1", `$2` FROM t'),
        ("SELECT /* $1 */ $2, $1, $2", "SELECT /* $1 */ 'b', 1, 'b'"),
        ("SELECT 'it''s $1', $1", "SELECT 'it''s $1', 1"),
    ],
)
def test_parameters_outside_of_texts_names_and_comments_are_replaced(text: str, expected: str):
    (statement,) = statements(text)
    assert with_literals(statement, ["1", "'b'"]) == expected


def test_a_place_behind_a_literal_is_found_again():
    (statement,) = statements("SELECT $1, x, $2 FROM t")
    literals = ["'a long one'", "1"]
    text = with_literals(statement, literals)
    for word in ("x", "FROM", "SELECT"):
        assert statement.text[place_before(statement, literals, text.index(word)) :].startswith(word)
    assert place_before(statement, literals, text.index("long")) == statement.text.index("$1")


def test_public_is_no_schema_of_its_own():
    (statement,) = statements("SELECT public.t.x FROM public.t WHERE s = 'public.t' LIMIT 3::INTEGER")
    found = adapted(statement)
    assert " ".join(found.text.split()) == "SELECT t.x FROM t WHERE s = 'public.t' LIMIT 3"
    assert len(found.text) >= len(statement.text) - 9
    assert found.text.index("WHERE") == statement.text.index("WHERE")


@given(st.text(alphabet="'\"`$;{}-/*\n a1", max_size=40))
def test_lexemes_lie_in_order_and_never_fail(text: str):
    place = 0
    for lexeme in lexemes(text):
        assert place <= lexeme.start < lexeme.end
        place = lexeme.end
    for statement in statements(text):
        assert text[statement.start :].startswith(statement.text)
        assert with_literals(statement, ["x"] * statement.parameters) is not None
