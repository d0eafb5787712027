"""Tables of a trace have columns of their own; those of events may have the same names, or one name in two types."""

from __future__ import annotations

import json
import re

import pytest

import headrace as hr
from headrace import col
from headrace.dashboard.traces import TraceData
from headrace.errors import HeadraceError

NAMES = ("batch", "batch_value", "operator", "side", "weight", "<script>alert(1)</script>", "a.b", "q\"uo'te", "ü")
ROWS = [{"le": le, "re": le + 5, **{name: le * 100 + i for i, name in enumerate(NAMES)}} for le in (1, 2, 3)]
EVENTS = hr.events(ROWS)
LARGE = EVENTS.where(col("batch") > 100)


def test_inputs_of_a_reason():
    trace = LARGE.trace(batch_rows=1)
    why = trace.why({"batch": 200})
    (row,) = why.inputs.to_pylist()
    assert (row["operator"], row["batch"], row["operator_value"]) == (2, 1, 202)
    assert (row["batch_value_value"], row["batch_value"]) == (200, 201)
    assert json.loads(json.dumps(why.as_dict()))["steps"][0]["values"]["batch"] == 200
    missing = trace.why_not({"batch": 100})
    assert missing.as_dict()["inputs"][0]["operator_value"] == 102


def test_changes_and_effects():
    trace = LARGE.trace(batch_rows=1)
    names = trace.of(3).column_names
    assert len(set(names)) == len(names)
    assert trace.forward({"batch": 300})["operator"].to_pylist() == [1, 2, 3]


def test_comparisons():
    compared = LARGE.trace(batch_rows=1).compare(EVENTS.where(col("batch") > 200).trace(batch_rows=1))
    (left,) = [row for row in compared.answers.to_pylist() if row["side"] == "left"]
    assert (left["weight"], left["side_value"], left["weight_value"]) == (1, 203, 204)
    assert compared.differences()["side"].to_pylist() == ["left"]
    assert "1 only left, 0 only right, 1 in both" in str(compared)


def test_inputs_with_a_column_of_one_name_in_two_types():
    numbers = hr.events([{"le": 1, "re": 9, "k": "x", "v": 1}])
    words = hr.events([{"le": 1, "re": 9, "k": "x", "v": "one"}])
    joined = numbers.join(words.select("k", w="v"), on="k").trace()
    why = joined.why(v=1)
    rows = why.inputs.select(["v", "v string"]).to_pylist()
    assert rows == [{"v": 1, "v string": None}, {"v": None, "v string": "one"}]
    assert [row["k"] for row in why.as_dict()["inputs"]] == ["x", "x"]
    assert joined.why_not(v=1, w="two").inputs.num_rows == 2


def test_a_column_that_is_called_as_another_one_with_its_type():
    words = hr.events([{"le": 1, "re": 9, "k": "x", "v": "one", "v int64": "odd"}])
    numbers = hr.events([{"le": 1, "re": 9, "k": "x", "v": 1, "v int64": 2}])
    trace = words.join(numbers.select("k", w="v", u="v int64"), on="k").trace()
    (other,) = [row for row in trace.why(w=1).inputs.to_pylist() if row["v"] is None]
    assert (other["v int64 int64"], other["v int64 int64 int64"], other["v int64"]) == (1, 2, None)
    assert trace.forward(v="one")["w"].to_pylist().count(1) == 1
    assert trace.changes.num_rows == trace.operators.to_pandas()["changes"].sum()


def test_values_do_not_steer_a_terminal(capsys: pytest.CaptureFixture[str]):
    value = "a\x1b[2J\x07\x00\x9b \u202eb"
    events = hr.events([{"le": 1, "re": 9, "k": value}, {"le": 2, "re": 9, "k": "c"}])
    trace = events.trace()
    trace.show()
    texts = [capsys.readouterr().out, str(trace.why(k=value)), str(trace.compare(events.trace()))]
    texts += [str(trace.why_not(k=f"{value}!"))]
    with pytest.raises(HeadraceError) as raised:
        trace.why()
    for text in (*texts, str(raised.value)):
        assert "a\\x1b[2J\\x07\\x00\\x9b \\u202eb" in text
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)


def test_errors_of_functions_do_not_steer_a_terminal():
    @hr.udf
    def double(x: int) -> int:
        raise ValueError("\x1b[2J\u202e" * x)

    with pytest.raises(HeadraceError, match=re.escape("ValueError: \\x1b[2J\\u202e")):
        hr.events([{"le": 1, "re": 9, "x": 1}]).select(y=double("x")).trace()


def test_questions_of_a_page():
    data = TraceData("large", LARGE.trace(batch_rows=1))
    answer = data.why(operator=3, batch=1, row=0)
    assert (answer["inputs"], answer["steps"][0]["values"]["operator"]) == (1, 202)
    assert data.why_not(operator=3, batch=3, values='{"batch": "100"}')["reasons"][0]["kind"] == "filtered"


def test_a_page_asks_for_null():
    data = TraceData("words", hr.events([{"le": 1, "re": 2, "k": "a"}], "k STRING").where(col("k") != "None").trace())
    assert data.why_not(operator=3, batch=1, values='{"k": null}')["steps"][0]["wanted"] == "k = NULL"
