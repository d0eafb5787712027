"""JSON in texts: the compiled scan against Python's own parser."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ExpressionError
from headrace.expr import call, col, evaluate
from headrace.expr.json_path import json_path, json_steps
from headrace.history.json import own_function

x = col("x")
KEYS = st.sampled_from(["a", "b", "ab", "", "é", "a b", "日"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
STEPS = st.lists(KEYS | st.integers(-3, 3), max_size=3)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """JSON texts, written in several ways, and some with a mistake."""
    text = json.dumps(draw(VALUES), ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1])))
    text = draw(st.sampled_from(["", " ", "\n\t"])) + text + draw(st.sampled_from(["", " ", "\r"]))
    if draw(st.integers(0, 3)):
        return text
    at = draw(st.integers(0, len(text)))
    wrong = draw(st.sampled_from(["", "x", '"', "\\", "{", "]", ",", "0", "\\u12", ":", "-", "1e", "\0", "\\ud800"]))
    return text[:at] + wrong + text[at + draw(st.integers(0, 2)) :]


def of(text: str | None, function: str, *arguments: str) -> object:
    return evaluate(call(function, x, *arguments), pa.table({"x": pa.array([text], pa.string())})).to_pylist()[0]


@given(st.lists(texts() | st.none(), min_size=1, max_size=8), STEPS)
def test_differential_json_with_the_parser_of_python(rows: list[str | None], steps: list[str | int]):
    path = json_path(*steps)
    table = pa.table({"x": pa.array(["{}", *rows], pa.string())}).slice(1)  # a column that does not begin at 0
    calls = [(name, (path,)) for name in ("json_get", "json_text", "json_value", "json_query", "json_exists")]
    calls += [("json_array_length", ()), *(("is_json", (kind,)) for kind in ("value", "object", "array", "scalar"))]
    for name, arguments in calls:
        columns = [pa.array(rows, pa.string()), *(pa.array([a] * len(rows)) for a in arguments)]
        expected = own_function(name).call(*columns).to_pylist()
        assert evaluate(call(name, x, *arguments), table).to_pylist() == expected, name


@given(VALUES, STEPS)
def test_oracle_a_value_is_what_python_reads(value: object, steps: list[str | int]):
    expected: object = value
    for step in steps:
        there = isinstance(expected, dict) and step in expected
        if isinstance(expected, list) and isinstance(step, int):
            there = -len(expected) <= step < len(expected)
        if not there:
            assert of(json.dumps(value), "json_exists", json_path(*steps)) is False
            return
        expected = expected[step]  # type: ignore[index]
    found = of(json.dumps(value), "json_get", json_path(*steps))
    assert isinstance(found, str)
    assert json.loads(found) == expected


@pytest.mark.parametrize(
    ("function", "path", "text", "expected"),
    [
        ("json_get", "$.a", '{"a": "x"}', '"x"'),
        ("json_get", "$.a", '{"a": null}', "null"),
        ("json_get", "$.a", '{"a": 1, "a": 2}', "2"),
        ("json_get", "$.a", '{"\\u0061": 1.50}', "1.50"),
        ("json_text", "$.a", '{"a": "x\\n\\u00e9\\ud83d\\ude00"}', "x\né😀"),
        ("json_text", "$.a", '{"a": null}', None),
        ("json_text", "$.a", '{"a": {"b": 1}}', '{"b": 1}'),
        ("json_text", "$.a", '{"a": "\\ud800"}', None),
        ("json_value", "$.a[1]", '{"a": [1, 12345678901234567890.00]}', "12345678901234567890.00"),
        ("json_value", "$.a", '{"a": []}', None),
        ("json_value", "$[-1]", "[1, 2, 3]", "3"),
        ("json_value", "$[-4]", "[1, 2, 3]", None),
        ("json_query", "$.a", '{"a": [1,  2]}', "[1,  2]"),
        ("json_query", "$.a", '{"a": 1}', None),
        ("json_exists", "$.a", '{"a": null}', True),
        ("json_exists", "$.a", "{'a': 1}", False),
        ("json_value", "$", "01", None),
        ("json_value", "$", "NaN", None),
        ("json_value", "$", "", None),
    ],
)
def test_values_at_the_end_of_a_path(function: str, path: str, text: str, expected: object):
    assert of(text, function, path) == expected


def test_deep_texts_are_read_up_to_a_limit():
    assert of("[" * 500 + "]" * 500, "is_json", "value") is True
    assert of("[" * 501 + "]" * 501, "is_json", "value") is False


def test_a_value_as_another_type():
    table = pa.table({"x": ['{"n": 7}', '{"n": 2.5}', '{"n": "8"}', '{"n": "x"}', '{"n": {}}', "{", None]})
    assert evaluate(x.json_value("$.n", "LONG"), table).to_pylist() == [7, None, 8, None, None, None, None]
    assert evaluate(x.json_get("n").json_text(), table).to_pylist()[:3] == ["7", "2.5", "8"]


def test_no_rows():
    empty = pa.table({"x": pa.array([], pa.string())})
    assert evaluate(x.json_get("a", 0), empty).to_pylist() == []
    assert evaluate(x.is_json(), empty).to_pylist() == []


def test_paths():
    assert json_steps("strict $ . a [ 0 ]['b c'][\"d\"]") == ("a", 0, "b c", "d")
    assert json_steps(json_path("a b", -1, "$x")) == ("a b", -1, "$x")
    for wrong in ("a", "", "$.", "$[*]", "$.a?(@ > 1)", "$[1 to 2]", "$..a"):
        with pytest.raises(ExpressionError, match="JSON"):
            x.json_value(wrong)
    with pytest.raises(ExpressionError, match="a key or a place"):
        x.json_get('a"b')
    with pytest.raises(ExpressionError, match="kind of JSON"):
        x.is_json("list")  # type: ignore[arg-type]
