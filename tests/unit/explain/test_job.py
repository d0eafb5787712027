"""What `explain` says of a batch on Spark: one job, what is shuffled before each stage, and what is not."""

from __future__ import annotations

import headrace as hr
from headrace import col

ROWS = hr.read_csv("rows.csv", "k STRING, v LONG, t LONG", lifetime=hr.point("t"))


def counted(stream: hr.Stream, *keys: str, name: str = "n") -> hr.Stream:
    return stream.group_by(*keys).window(hr.tumbling(6)).aggregate(**{name: hr.count()})


def told(stream: hr.Stream) -> dict[str, list[str]]:
    """The lines of `explain` that are no operators: those on the whole job, and those of every level."""
    found: dict[str, list[str]] = {"job": []}
    place = "job"
    for line in stream.explain().splitlines()[1:]:
        if line.startswith(("intake", "stage")):
            place = line.partition(":")[0]
            found[place] = []
        elif "#" not in line[:4] and not line.startswith("     "):
            found[place].append(line.strip())
    return found


def test_a_plan_without_state_has_no_shuffle():
    assert told(ROWS.where(col("v") > 1)) == {
        "job": [
            "on Spark a batch is one job without a shuffle: each task reads a share of the files and writes the sinks"
        ],
        "intake": [],
    }


def test_a_stage_says_what_is_shuffled():
    found = told(counted(ROWS, "k"))
    tasks = "the intake has a task for each share of the files, every stage one for each bucket"
    assert found["job"] == [f"on Spark a batch is one job with one shuffle: {tasks}"]
    assert (found["intake"], found["stage 1"]) == ([], ["shuffled: #2 by k"])


def test_operators_over_rows_that_are_partitioned_alike_share_a_stage():
    once = counted(ROWS, "k")
    again = once.group_by("k").window(hr.tumbling(60)).aggregate(m=hr.max("n"))
    assert told(again.join(once, "k"))["stage 1"] == [
        "shuffled: #2 by k",
        "not shuffled again: #4 by k for #5; #5 by k and #3 by k for #6",
    ]


def test_other_keys_need_a_stage_of_their_own():
    found = told(counted(counted(ROWS, "k"), "n", name="m"))
    assert found["job"][0].startswith("on Spark a batch is one job with 2 shuffles: ")
    assert (found["stage 1"], found["stage 2"]) == (["shuffled: #2 by k"], ["shuffled: #4 by n"])


def test_rows_that_skip_a_stage_are_handed_through():
    everything = counted(counted(ROWS, "k"))
    (shuffled,) = told(everything.join(ROWS, {"n": "v"}))["stage 3"]
    assert shuffled == "shuffled: #5 by n; #1 by v, handed through stage 1 and 2"


def test_rows_that_pass_a_stage_in_their_bucket():
    once = counted(ROWS, "k")
    rare = (
        counted(once, "n", name="m").select(k=col("n").cast("STRING"), p=col("n")).group_by("k").window(hr.tumbling(60))
    )
    found = told(rare.aggregate(m=hr.max("p")).join(once, "k"))["stage 3"]
    assert found[0] == "shuffled: #7 by k; #3 by k, to the bucket where it is, handed through stage 2"
