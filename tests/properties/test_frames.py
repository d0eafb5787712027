"""Base aggregates in SQL over finite frames, as native code, equal their twins (rule 7.4)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.ordered import long_streams

import headrace as hr
from headrace.operators.ordered.fold import FoldKernel
from headrace.operators.ordered.frames import FrameRows, FrameValues
from headrace.operators.ordered.paned import PanedValues
from headrace.operators.registry import kernel_of
from headrace.plan.nodes import Fold, Over, walk
from headrace.plan.ordered import Time, Tuples
from headrace.testing.batches import check_same_batches
from headrace.testing.strategies import SCHEMA
from headrace.testing.verify.checks import live, restarted
from headrace.testing.verify.differential import differential_reference

SOME = settings(max_examples=max(5, settings().max_examples // 2))
FEW = settings(max_examples=max(5, settings().max_examples // 5))

#: The effect of tuples carries over in the first ones, the others are recomputed.
TEXTS = {
    "total": """(i LONG): LONG {
        TABLE state(total LONG, n BYTE);
        INITIALIZE: { INSERT INTO state VALUES (i * 100, 120); }
        ITERATE: { UPDATE state SET total = total + i; UPDATE state SET n = CAST(n + 3 AS BYTE) WHERE i > 0; }
        TERMINATE: { INSERT INTO RETURN SELECT coalesce(total, -1) * 1000 + coalesce(n, 0) FROM state; } }""",
    "best": """(i LONG, x DOUBLE): DOUBLE {
        TABLE state(high DOUBLE, at_i LONG, low LONG, latest DOUBLE, first LONG);
        INITIALIZE: { INSERT INTO state VALUES (x, i, i, x, i); }
        ITERATE: {
            UPDATE state SET high = x, at_i = i WHERE x >= high AND i < 3;
            UPDATE state SET low = least(i, low), latest = x;
            INSERT INTO RETURN SELECT x + low FROM state WHERE x < -1;
        }
        TERMINATE: {
            INSERT INTO RETURN SELECT high + at_i * 3 + coalesce(latest, 1) * 7 + low + first FROM state
                WHERE latest IS NULL OR latest >= -1;
        } }""",
    "middle": """(x DOUBLE): DOUBLE {
        TABLE state(total DOUBLE, n LONG);
        INITIALIZE: { INSERT INTO state VALUES (x, 1); }
        ITERATE: { UPDATE state SET total = total + x, n = n + 1; }
        TERMINATE: { INSERT INTO RETURN SELECT total / n FROM state; } }""",
    "kinds": """(i LONG): LONG {
        TABLE seen(i LONG, n LONG, KEY (i));
        INITIALIZE: ITERATE: {
            UPDATE seen SET n = n + 1 WHERE i = kinds.i;
            INSERT INTO seen VALUES (i, 1);
        }
        TERMINATE: { INSERT INTO RETURN SELECT count(*) FROM seen; } }""",
}
ROWS = """CREATE AGGREGATE pairs(i LONG, x DOUBLE): (a LONG, b DOUBLE) {
    TABLE last_one(i LONG, x DOUBLE);
    INITIALIZE: { INSERT INTO last_one VALUES (i, x); }
    ITERATE: {
        INSERT INTO RETURN SELECT l.i, pairs.x FROM last_one AS l WHERE pairs.x > l.x;
        UPDATE last_one SET i = pairs.i, x = pairs.x;
    }
    TERMINATE: { INSERT INTO RETURN SELECT i, x FROM last_one; } }"""


@st.composite
def finite_frames(draw: st.DrawFn) -> dict[str, Any]:
    """Frames of tuples and of time; a third of them slide without tumbling by tuples."""
    slides: list[Any] = [None, None, Tuples(2), Time(1), Time(3), Time(7)]
    slide = draw(st.sampled_from(slides))
    if isinstance(slide, Tuples):
        return {"rows": draw(st.sampled_from([2, 4])), "slide": slide}
    if slide is not None or draw(st.booleans()):
        return {"range": draw(st.integers(0, 8))} | ({} if slide is None else {"slide": slide})
    return {"rows": draw(st.integers(0, 6))}


MODULES = {name: hr.sql_aggregate(f"CREATE AGGREGATE {name}{text}") for name, text in TEXTS.items()}
CALLS = {name: module.of(*module.fields.names) for name, module in MODULES.items()}
PAIRS: Any = hr.sql_aggregate(ROWS)
KEYS = st.sampled_from(["k", None, "x"])
NAMES = st.sets(st.sampled_from(sorted(TEXTS)), min_size=1, max_size=2)


def grouped(stream: hr.Stream, key: str | None) -> Any:
    return stream.group_by(key) if key else stream


def answered(stream: hr.Stream, frame: dict[str, Any], key: str | None, names: set[str]) -> hr.Stream:
    """Values of aggregates, which run as native code."""
    out = grouped(stream, key).over(**frame).aggregate(**{f"{name}_over": CALLS[name] for name in sorted(names)})
    return checked(out, Over, FrameValues)


def with_pairs(stream: hr.Stream, frame: dict[str, Any], key: str | None) -> hr.Stream:
    out = grouped(stream, key).over(**frame).operate(PAIRS, "i", "x")
    return checked(out, Fold, FrameRows)


def checked(stream: hr.Stream, node: type, folding: type) -> hr.Stream:
    """The stream, if its module runs as native code over frames."""
    (kernel,) = [kernel_of(one) for one in walk(stream.node) if isinstance(one, node)]
    assert isinstance(kernel, FoldKernel)
    assert isinstance(kernel.folding, folding)
    return stream


@SOME
@given(long_streams(), finite_frames(), KEYS, NAMES, st.integers(1, 3))
def test_differential_frames(stream: hr.Stream, frame: Any, key: str | None, names: set[str], n: int):
    differential_reference(answered(stream, frame, key, names).node, buckets=n)


@FEW
@given(long_streams(), finite_frames(), KEYS, st.integers(1, 3))
def test_differential_rows_over_frames(stream: hr.Stream, frame: Any, key: str | None, n: int):
    differential_reference(with_pairs(stream, frame, key).node, buckets=n)


@FEW
@given(long_streams(), finite_frames(), KEYS, NAMES, st.integers(1, 2))
def test_a_restored_run_continues(stream: hr.Stream, frame: Any, key: str | None, names: set[str], n: int):
    for out in (answered(stream, frame, key, names), with_pairs(stream, frame, key)):
        check_same_batches(restarted(out.node, n), live(out.node, n), "restarted after every batch")


@pytest.mark.parametrize(
    "frame", [{"rows": 3}, {"range": 20}, {"rows": 3, "slide": 3}, {"range": 25, "slide": "10 ticks"}]
)
def test_state_stays_bounded(frame: dict[str, Any]):
    """Tuples of frames to come, and nothing of groups whose tuples have all left a frame of time."""
    rounds, rows = 30, list[dict[str, Any]]()
    for t in range(0, 10 * rounds, 10):
        keys = "ab" if "rows" in frame else f"{t}-"  # in a frame of time, each group is a new one
        rows += [{"kind": "insert", "le": t + d, "re": t + d + 5, "k": keys[:-1] or "-", "i": d, "x": d / 2}
                 for d in (7, 0, 3, 8)]  # fmt: skip
        rows.append({"kind": "cti", "le": t + 5})
    stream = hr.events(rows, SCHEMA.arrow, batches=[5] * rounds)
    run = answered(stream, frame, "k", {"best"}).run(buckets=1, finish=False)
    sizes = [
        max(op["rows"] for part in batch for op in part["operators"].values() if op["operator"].startswith("Over"))
        for batch in run.statistics
    ]
    assert max(sizes[rounds // 2 :]) <= max(sizes[: rounds // 2]) + 4, sizes


# --- panes ------------------------------------------------------------------------------------------------------------

TOTAL = """
CREATE AGGREGATE summed(i LONG): LONG ALGEBRAIC {
    TABLE state(total LONG);
    INITIALIZE: { INSERT INTO state VALUES (i); }
    ITERATE: { UPDATE state SET total = coalesce(total, 0) + coalesce(i, 0); }
    TERMINATE: { INSERT INTO RETURN SELECT total FROM state; }
};
CREATE WINDOW AGGREGATE summed(i LONG): LONG ALGEBRAIC {
    TABLE inwindow(i LONG);
    TABLE state(total LONG);
    INITIALIZE: { INSERT INTO state VALUES (coalesce(i, 0)); INSERT INTO RETURN SELECT total FROM state; }
    ITERATE: {
        UPDATE state SET total = total + coalesce(i, 0);
        INSERT INTO RETURN SELECT total FROM state;
    }
    EXPIRE: { UPDATE state SET total = total - coalesce(oldest().i, 0); }
};
"""
SUMMED: Any = hr.sql_aggregate(TOTAL)


def in_panes(stream: hr.Stream, rows: int, slide: int, key: str | None) -> hr.Stream:
    """Sums of small numbers: those of panes do not overflow, so that they combine to those of windows."""
    out = grouped(stream, key).over(rows=rows, slide=slide).aggregate(s=SUMMED.of(hr.col("i") % 1000) * 2)
    return checked(out, Over, PanedValues)


@SOME
@given(long_streams(), st.sampled_from([(3, 2), (5, 2), (5, 4), (7, 4), (5, 3)]), KEYS, st.integers(1, 3))
def test_differential_panes(stream: hr.Stream, frame: tuple[int, int], key: str | None, n: int):
    stream = stream.where(hr.col("i").is_not_null())
    out = in_panes(stream, *frame, key)
    differential_reference(out.node, buckets=n)
    check_same_batches(restarted(out.node, n), live(out.node, n), "restarted after every batch")
