from __future__ import annotations

import pytest

from headrace.errors import ExpressionError
from headrace.expr.patterns import check_like, check_regex, java_regex, like_regex, re2_regex


@pytest.mark.parametrize(
    "pattern",
    [
        r"\p{L}", r"\1", r"(a)\1", "(?i)a", "(?=a)", "(?<name>a)", "a++", "a**", "[a[b]]", "[a&&b]", "[]", "[a", "(a",
        "a)", r"\Qa\E", r"\h", "a{", "a]", "*a", r"[\S]", "a{2000}", r"[\b]", "\\",
    ],
)  # fmt: skip
def test_what_only_one_engine_knows_is_refused(pattern: str):
    with pytest.raises(ExpressionError, match="regular expression"):
        check_regex(pattern)


def test_equal_texts_that_differ_are_written_out():
    assert re2_regex("a.$") == java_regex("a.$") == r"a[^\n]\z"
    assert re2_regex(r"[\s-]\s") == r"[ \t\n\f\r-][ \t\n\f\r]"
    assert re2_regex(r"\b") == r"\b"
    assert "(?<=" in java_regex(r"\b")
    assert re2_regex(r"\.\$") == r"\.\$"


@pytest.mark.parametrize("pattern", ["\\", "a\\", "a\\b"])
def test_a_stray_backslash_in_like_is_refused(pattern: str):
    with pytest.raises(ExpressionError, match="LIKE"):
        check_like(pattern)


def test_like_as_a_regular_expression():
    assert like_regex(r"a.%\%_") == r"(?s)\Aa\..*%.\z"
