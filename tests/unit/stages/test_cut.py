"""Where operators run: a shared part of a plan once, and two inputs in place when their rows are where they must be."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import headrace as hr
from headrace import col
from headrace.api.running import outputs_of
from headrace.optimizer import optimize
from headrace.plan.nodes import Join, Merge, Node, Source, Union
from headrace.stages.cut import Line, cut
from headrace.stages.stage import StageRun

Build = Callable[[], hr.Stream]
ROWS = [{"le": t, "re": t + 4, "k": "abc"[t % 3], "j": "cab"[t % 2], "i": t % 5} for t in range(40)]
STREAM = hr.events(ROWS)
OTHER = hr.events([{**row, "le": row["le"] + 1, "re": row["re"] + 3} for row in ROWS])


def counted(stream: hr.Stream, *keys: str) -> hr.Stream:
    return stream.group_by(*keys).window(hr.tumbling(6)).aggregate(n=hr.count())


def line_of(*streams: hr.Stream) -> Line:
    return cut(optimize(outputs_of({f"out{i}": stream.node for i, stream in enumerate(streams)})))


def level(line: Line, kind: type[Node]) -> int:
    (found,) = [line.levels[node.fingerprint] for node in line.nodes if isinstance(node, kind)]
    return found


def kernels(line: Line) -> list[Node]:
    """The operators with state, of all levels, as a bucket builds them."""
    return [k.node for n in range(1, line.depth + 1) for k in StageRun(line, n, 0, 1).kernels.values()]


# --- multicast --------------------------------------------------------------------------------------------------------


def test_a_stream_that_is_used_twice_is_computed_once():
    once = counted(STREAM, "k")
    twice = once.join(once.shift(6), "k").union(once.join(once.where(col("n") > 1), "k"))
    built = kernels(line_of(twice))
    assert sum(isinstance(node, Merge) for node in built) == 1
    assert sum(isinstance(node, Join) for node in built) == 2
    assert sum(step.split()[1] == "Merge" for step in twice.explain().splitlines() if "#" in step[:5]) == 1


def test_what_is_written_twice_is_computed_once_too():
    again = [counted(STREAM, "k"), counted(STREAM.where(col("i") > 2), "k"), counted(STREAM, "k")]
    line = line_of(*again)
    assert sum(isinstance(node, Merge) for node in kernels(line)) == 2
    assert len(line.sources) == 1


# --- in place ---------------------------------------------------------------------------------------------------------


def runs_alike(stream: hr.Stream) -> None:
    """However many buckets there are, the answer is that of one."""
    answer = stream.cht(buckets=1)
    for n in (2, 3, 5):
        assert hr.same_history(answer, stream.cht(buckets=n, batch_rows=7))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "in_place"),
    [
        (lambda: counted(STREAM, "k").join(counted(OTHER, "k"), "k"), True),
        (lambda: counted(STREAM, "k").join(counted(OTHER, "j"), {"k": "j"}), True),
        (lambda: counted(STREAM, "k").left_join(counted(OTHER, "k").shift(6), "k"), True),
        (lambda: counted(STREAM, "k", "j").join(counted(OTHER, "k", "j"), {"k": "k", "j": "j"}), True),
        (lambda: counted(STREAM, "k", "j").join(counted(OTHER, "k", "j"), {"j": "j", "k": "k"}), True),
        (lambda: STREAM.join(OTHER, "k"), True),
        (lambda: counted(STREAM, "k").select(m=col("n"), p=col("k")).join(counted(OTHER, "j"), {"p": "j"}), True),
        # Both are together by two columns, but those that are equal stand in another order: other buckets.
        (lambda: counted(STREAM, "k", "j").join(counted(OTHER, "j", "k"), {"k": "k", "j": "j"}), False),
        # Together by more than is equal, or by something else, or in one bucket.
        (lambda: counted(STREAM, "k", "j").join(counted(OTHER, "k"), "k"), False),
        (lambda: counted(STREAM, "k").join(counted(OTHER, "k"), "n"), False),
        (lambda: counted(STREAM).join(counted(OTHER), "n"), False),
        # A column of that name, but made anew.
        (lambda: counted(STREAM, "k").select("n", k=col("k").upper()).join(counted(OTHER, "k"), "k"), False),
    ],
)
def test_a_join_runs_in_place_only_if_both_sides_are_where_its_keys_would_bring_them(build: Build, in_place: bool):
    line = line_of(build())
    below = max(
        line.levels[child.fingerprint] for node in line.nodes if isinstance(node, Join) for child in node.inputs
    )
    assert (level(line, Join) == below) is in_place
    runs_alike(build())


@pytest.mark.slow
def test_a_side_from_an_earlier_level_is_brought_to_where_the_other_is():
    twice = counted(counted(STREAM, "k").select(often=col("n")), "often")
    joined = twice.join(counted(OTHER, "i").select("i", m=col("n")), {"often": "i"})
    line = line_of(joined)
    assert level(line, Join) == 2
    (edge,) = [e for e in line.edges if e.to == 2 and e.producer.schema.names == ("i", "m")]
    assert edge.route == ("i",)
    runs_alike(joined)


@pytest.mark.slow
def test_a_join_within_a_part_of_its_keys_keeps_that_partitioning():
    joined = counted(STREAM, "k").join(counted(OTHER, "k"), ["k", "n"])
    over = counted(joined, "k")
    line = line_of(over)
    assert line.depth == 1
    assert joined.node.properties.keys == ("k",)
    runs_alike(over)


@pytest.mark.slow
def test_a_union_of_streams_that_are_together_by_the_same_columns_stays_so():
    both = counted(STREAM, "k").union(counted(OTHER, "k"))
    line = line_of(counted(both, "k"))
    assert level(line, Union) == line.depth == 1
    assert [type(node) for node in line.at(0)].count(Source) == 2
    runs_alike(counted(both, "k"))
