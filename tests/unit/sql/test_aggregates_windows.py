"""Aggregates with a window version: ESL's examples, what OVER goes by, and how the two versions are one aggregate."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from tests.fixtures.esl import AVG, DECAY, made

import headrace as hr
from headrace.errors import ModuleFailed, SqlError
from headrace.sql.aggregates import SqlFolder, modules_of

NAIVE = """
CREATE WINDOW AGGREGATE myavg(next REAL): REAL {
    TABLE inwindow(wnext REAL);
    INITIALIZE: ITERATE: { INSERT INTO RETURN SELECT myavg(wnext) FROM inwindow; }
}
"""  # example 11
DELTA = """
CREATE WINDOW AGGREGATE myavg(next REAL): REAL {
    TABLE inwindow(wnext REAL);
    TABLE state(tsum REAL, cnt INT);
    INITIALIZE: { INSERT INTO state VALUES (next, 1); INSERT INTO RETURN VALUES (next); }
    ITERATE: {
        UPDATE state SET tsum = tsum + next, cnt = cnt + 1;
        INSERT INTO RETURN SELECT tsum / cnt FROM state;
    }
    EXPIRE: { UPDATE state SET tsum = tsum - oldest().wnext, cnt = cnt - 1; }
}
"""  # example 12
MAX = """
CREATE WINDOW AGGREGATE mymax(next REAL): REAL ALGEBRAIC {
    TABLE inwindow(wnext REAL);
    INITIALIZE: { INSERT INTO RETURN VALUES (next); }
    ITERATE: { DELETE FROM inwindow WHERE wnext < next; INSERT INTO RETURN VALUES (oldest()); }
    EXPIRE: { INSERT INTO RETURN SELECT max(wnext) FROM inwindow WHERE wnext < oldest(); }
}
"""  # examples 13 and 16
THEFT = """
CREATE WINDOW AGGREGATE theft(kind STRING, tag STRING): (tag STRING) {
    TABLE inwindow(kind STRING, tag STRING);
    INITIALIZE: ITERATE: { DELETE FROM inwindow WHERE kind = 'item' AND theft.kind = 'ap'; }
    EXPIRE: {
        INSERT INTO RETURN SELECT oldest().tag
            WHERE oldest().kind = 'item' AND (SELECT count(*) FROM inwindow WHERE kind = 'ap') = 0;
    }
}
"""  # example 18


def rows_preceding(module: Any, items: list[Any], rows: int) -> list[list[Any]]:
    """What a window version returns at each tuple."""
    folder = module.folder("rows")
    stepper, found = folder.make(), []
    for number, item in enumerate(items):
        arguments = item if isinstance(item, tuple) else (item,)
        if number > rows and folder.keeps_window:
            while stepper.inwindow and stepper.inwindow[0][-1] < number - rows:
                stepper.expire()
        elif number > rows:
            stepper.expire(items[number - rows - 1])
        found.append(stepper.arrive(*arguments, mark=number))
        stepper = folder.load(stepper.save())
    return found


@pytest.mark.parametrize(
    ("text", "items", "answers"),
    [
        (f"{AVG};{NAIVE}", [1.0, 2.0, 6.0, 1.0], [[1.0], [1.5], [4.0], [3.5]]),
        (DELTA, [1.0, 2.0, 6.0, 1.0], [[1.0], [1.5], [4.0], [3.5]]),
        (f"{AVG};{DELTA}", [1.0, 2.0, 6.0, 1.0], [[1.0], [1.5], [4.0], [3.5]]),
        (MAX, [3.0, 1.0, 2.0, 0.5, 0.25], [[3.0], [3.0], [2.0], [2.0], [0.5]]),
    ],
    ids=["naive", "delta", "delta beside base", "max"],
)
def test_examples(text: str, items: list[Any], answers: list[Any]):
    assert rows_preceding(made(text), items, 1) == answers


def test_the_theft_alarm():
    stepper = made(THEFT).folder("range").make()
    for tag in ("a", "b"):
        assert stepper.arrive("item", tag, mark=tag) == []
    assert stepper.expire() == [("a",)]
    assert stepper.arrive("ap", "boss", mark="c") == []
    assert [row[-1] for row in stepper.inwindow] == ["c"]
    assert stepper.arrive("item", "d", mark="d") == []
    assert stepper.expire() == []
    assert stepper.expire() == [("d",)]


def test_the_window_is_kept_only_where_a_body_looks_at_it():
    def folder(text: str) -> SqlFolder:
        found = made(text).folder("rows")
        assert found is not None
        return found

    assert folder(f"{AVG};{NAIVE}").keeps_window
    assert not folder(DELTA).keeps_window
    assert not folder(DELTA.replace("TABLE inwindow(wnext REAL);", "").replace("oldest().wnext", "1.0")).keeps_window
    assert folder(DELTA.replace("VALUES (next);", "VALUES (oldest());", 1)).keeps_window
    assert "def expire(self, oldest_wnext):" in folder(DELTA).source


def test_what_over_goes_by():
    base, both, window = made(AVG), made(f"{AVG};{DELTA}"), made(DELTA)
    assert base.folder("rows") is base.folder("range") is None
    assert base.folder("unbounded").terminates
    assert not made(DECAY).folder("unbounded").terminates
    for module in (both, window):
        assert module.folder("rows").definition.window
        assert module.folder("range") == module.folder("rows")
    assert not both.folder("unbounded").definition.window
    assert both.folder("unbounded").terminates
    assert window.folder("unbounded").definition.window
    assert (base.blocking, both.blocking, window.blocking) == (True, True, False)
    assert made(MAX).definition.algebraic


def test_over_a_set_of_tuples_the_window_version_answers_at_the_last():
    assert made(DELTA).compute([1.0, 2.0, 6.0]) == 3.0
    assert made(MAX).compute([3.0, 1.0, 2.0]) == 3.0
    stream = hr.events([{"le": 1, "x": 3.0}, {"le": 2, "x": 4.0}], "x DOUBLE")
    found = hr.sql(DELTA + "; SELECT myavg(x) AS a FROM s [TUMBLING 10 ticks]", s=stream).cht()
    assert found["a"].to_pylist() == [3.5]


@pytest.mark.parametrize("text", [f"{AVG};{DELTA}", f"{DELTA};{AVG}", f"{AVG};{NAIVE}"])
def test_two_versions_are_one_aggregate(text: str):
    module = modules_of(text)["myavg"]
    again = pickle.loads(pickle.dumps(module))  # noqa: S301 - our own
    assert again.text == module.text == modules_of(module.text)["myavg"].text
    assert module.text.index("CREATE AGGREGATE") < module.text.index("CREATE WINDOW AGGREGATE")
    assert again.compute([1.0, 2.0]) == 1.5
    assert rows_preceding(again, [1.0, 2.0, 6.0], 1) == [[1.0], [1.5], [4.0]]
    assert "class Myavg:" in module.source
    assert "class MyavgOverWindow:" in module.source


def test_others_call_the_base_version():
    text = f"""{AVG};{DELTA};
    CREATE AGGREGATE twice(next REAL): REAL {{
        TABLE t(v REAL);
        INITIALIZE: ITERATE: {{ INSERT INTO t VALUES (next); }}
        TERMINATE: {{ INSERT INTO RETURN SELECT 2 * myavg(v) FROM t; }}
    }}"""
    assert made(text).compute([1.0, 2.0]) == 3.0


CALLS = """
CREATE AGGREGATE calls(next REAL): REAL {
    TABLE t(v REAL);
    INITIALIZE: ITERATE: { INSERT INTO t VALUES (next); }
    TERMINATE: { INSERT INTO RETURN SELECT myavg(v) FROM t; }
}
"""


def test_a_name_is_one_aggregate_in_a_text():
    # The base version that `calls` knows is dropped; a window version alone has its name now.
    both = CALLS.replace("calls", "both").replace("myavg(v) FROM", "myavg(v) + calls(v) FROM")
    with pytest.raises(SqlError, match="one name for two aggregates"):
        hr.script(f"{AVG};{CALLS}; DROP AGGREGATE myavg; {DELTA}; {both}")
    mine = DELTA.replace("VALUES (next);", "SELECT calls(wnext) FROM inwindow;", 1)
    with pytest.raises(SqlError, match="one name for two aggregates"):
        hr.script(f"{AVG};{CALLS}; DROP AGGREGATE myavg; {mine}")
    hr.script(f"{AVG};{CALLS}; DROP AGGREGATE myavg; DROP AGGREGATE calls; {DELTA}; {CALLS}; {both}")


def test_both_versions_are_dropped_together():
    shown = hr.script(f"{AVG};{DELTA}; SHOW AGGREGATES; DROP AGGREGATE myavg; SHOW AGGREGATES; {DELTA}").outcomes
    assert [len(one.rows) for one in shown if hasattr(one, "rows")] == [1, 0]


def test_a_failure_says_its_line():
    text = """
    CREATE WINDOW AGGREGATE f(x LONG): LONG {
        TABLE inwindow(x LONG);
        INITIALIZE: ITERATE: { INSERT INTO RETURN VALUES (f.x); }
        EXPIRE: { INSERT INTO RETURN VALUES ((SELECT x FROM inwindow)); }
    }"""
    module = made(text)
    stepper = module.folder("rows").make()
    stepper.arrive(1)
    assert stepper.expire() == [1]
    stepper.arrive(2)
    stepper.arrive(3)
    with pytest.raises(ModuleFailed, match="f, line 5: a sub-select gave 2 rows"):
        stepper.expire()


def test_the_tuple_that_leaves_is_named_even_when_it_is_deleted():
    text = """
    CREATE WINDOW AGGREGATE f(x LONG): (x LONG, left_behind LONG) {
        TABLE inwindow(x LONG);
        INITIALIZE: ITERATE: {}
        EXPIRE: {
            DELETE FROM inwindow WHERE x < 3;
            INSERT INTO RETURN SELECT oldest(), count(*) FROM inwindow;
        }
    }"""
    stepper = made(text).folder("rows").make()
    for one in (1, 2, 3, 4):
        stepper.arrive(one, mark=one)
    assert stepper.expire() == [(1, 2)]
    assert [row[-1] for row in stepper.inwindow] == [3, 4]
    assert stepper.expire() == [(3, 2)]
    assert [row[-1] for row in stepper.inwindow] == [4]
