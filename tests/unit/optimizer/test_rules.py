"""Each rule does what it says, shows in `explain`, and changes no history."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.api.running import outputs_of
from headrace.host.local import run_local
from headrace.optimizer import combine_before_shuffle, optimize, place_admission, prune_columns, push_filters
from headrace.optimizer.combine_before_shuffle import combine_before_shuffle as combine
from headrace.plan.nodes import Admit, Aggregate, Combine, Merge, Source, Where, walk

RULES = {rule.__name__: rule for rule in (push_filters, prune_columns, place_admission, combine_before_shuffle)}


@pytest.fixture
def ticks(tmp_path: Path) -> Path:
    rows = "".join(f"{t},{'ABC'[t % 3]},{t % 7}.5,{t}\n" for t in range(50))
    (tmp_path / "ticks.csv").write_text("t,k,x,unused\n" + rows)
    return tmp_path / "ticks.csv"


def _read(path: Path, progress: object = None) -> hr.Stream:
    return hr.read_csv(str(path), "t LONG, k STRING, x DOUBLE, unused LONG", lifetime=hr.point("t"), progress=progress)


def _counted(stream: hr.Stream) -> hr.Stream:
    kept = stream.where((col("x") > 1.0) & (col("k").upper() == "A"))
    return kept.group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count(), x=hr.sum("x"))


def _nodes(stream: hr.Stream, *rules: object) -> list[object]:
    return list(walk(*optimize(outputs_of({"out": stream.node}), rules)))


def test_a_plain_filter_goes_into_the_reader_and_the_rest_stays(ticks: Path):
    nodes = _nodes(_counted(_read(ticks)), push_filters)
    (source,) = [node for node in nodes if isinstance(node, Source)]
    assert str(source.pushed) == "x > 1.0"
    assert [str(node.predicate) for node in nodes if isinstance(node, Where)] == ["upper(k) = 'A'"]
    assert "filter in the reader" in _counted(_read(ticks)).explain()


def test_a_filter_stays_where_rows_make_progress(ticks: Path):
    nodes = _nodes(_counted(_read(ticks, hr.advance(5))), push_filters)
    assert [node.pushed for node in nodes if isinstance(node, Source)] == [None]


def test_a_source_with_two_readers_is_read_once_and_whole(ticks: Path):
    stream = _read(ticks)
    both = stream.where(col("x") > 1.0).union(stream.where(col("x") <= 1.0))
    assert [node.pushed for node in _nodes(both, push_filters) if isinstance(node, Source)] == [None]


def test_sources_read_only_what_is_used(ticks: Path):
    nodes = _nodes(_counted(_read(ticks)), prune_columns)
    assert [node.schema.names for node in nodes if isinstance(node, Source)] == [("k", "x")]


def test_a_source_whose_diverted_rows_are_read_keeps_all_columns(ticks: Path):
    stream = _read(ticks)
    outputs = outputs_of({"out": _counted(stream).node, "bad": stream.diverted().node})
    sources = [node for node in walk(*optimize(outputs, [prune_columns])) if isinstance(node, Source)]
    assert [source.schema.names for source in sources] == [("t", "k", "x", "unused")]


def test_an_aggregate_becomes_two_halves(ticks: Path):
    nodes = _nodes(_counted(_read(ticks)), combine)
    assert not [node for node in nodes if isinstance(node, Aggregate)]
    assert len([node for node in nodes if isinstance(node, (Combine, Merge))]) == 2


def test_admission_shares_the_stage_of_the_groups():
    stream = hr.events("le | k | x \n 1 | A | 2 \n 2 | B | 3")
    grouped = stream.where(col("x") > 0).group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count())
    (admit,) = [node for node in _nodes(grouped, place_admission) if isinstance(node, Admit)]
    assert admit.needs == ("k",)
    assert "stage 2" not in grouped.explain()


@pytest.mark.parametrize("left_out", [push_filters, prune_columns, place_admission], ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("progress", [None, hr.advance(5), hr.ordered()], ids=["explicit", "advance", "ordered"])
def test_no_rule_changes_a_history(ticks: Path, left_out: object, progress: object):
    outputs = outputs_of({"out": _counted(_read(ticks, progress)).node})
    rules = [rule for rule in RULES.values() if rule is not left_out]
    with_it, without = run_local(outputs), run_local(outputs, rules=rules)
    assert hr.same_history(with_it.results["out"].cht(), without.results["out"].cht())
    assert with_it.results["out"].cht().num_rows == 5


def test_a_filter_above_a_filter_stays(ticks: Path):
    """Found in use: the second filter was lost, because the reader of its source has a filter already."""
    twice = _read(ticks).where(col("t") > 40).where(col("t") < 43)
    assert twice.cht()["t"].to_pylist() == [41, 42]
    assert [str(node.predicate) for node in _nodes(twice, push_filters) if isinstance(node, Where)] == ["t < 43"]


_STEPS = (
    lambda s: s.where(col("t") > 10),
    lambda s: s.where((col("t") < 40) & (col("k").upper() != "B")),
    lambda s: s.where(col("k") == "A"),
    lambda s: s.where(col("k").upper() == "C"),
    lambda s: s.select("k", "x", t=col("t") + 5),
    lambda s: s.shift(3),
    lambda s: s.union(s.where(col("x") > 3)),
)


@given(st.lists(st.sampled_from(_STEPS), min_size=1, max_size=5))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_differential_steps_over_files(ticks: Path, steps: list[Callable[[hr.Stream], hr.Stream]]):
    stream = reduce(lambda stream, step: step(stream), steps, _read(ticks))
    assert hr.history_diff(stream.cht(rules=()), stream.cht()) == ""
