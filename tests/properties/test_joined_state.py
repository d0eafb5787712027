"""Operators with two inputs, alone and over many histories: what they have given is right after every batch, however
much they have forgotten, and no change of theirs comes before a CTI already given.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from tests.strategies.paced import random_rounds

import headrace as hr
from headrace import col
from headrace.changes import Changes
from headrace.events import history, to_changes
from headrace.operators.reference import bag, history_of, progress_of, reference_stream, rows_of
from headrace.operators.registry import kernel_of
from headrace.plan.nodes import Clip, Join, Node
from headrace.testing.strategies import SCHEMA, tables
from headrace.time import NEG_INFINITY

Batch = list[dict[str, Any]]
#: Sources that differ, so that the twins can tell them apart; what they give is fed by hand.
LEFT, RIGHT = (hr.events([{"kind": "cti", "le": t}], SCHEMA.arrow).node for t in (0, 1))
BY_KEY = (("k", "k"),)
OPERATORS: dict[str, list[Node]] = {
    "join": [Join(LEFT, RIGHT, BY_KEY), Join(LEFT, RIGHT, BY_KEY, col("i") > col("i_right"))],
    "left join": [Join(LEFT, RIGHT, BY_KEY, kind="left"), Join(LEFT, RIGHT, (), col("i") == col("i_right"), "left")],
    "anti join": [
        Join(LEFT, RIGHT, BY_KEY, kind="anti"),
        Join(LEFT, RIGHT, BY_KEY, col("i") >= col("i_right"), "anti"),
    ],
    "clip": [Clip(LEFT, RIGHT, BY_KEY), Clip(LEFT, RIGHT, (("k", "k"), ("i", "i"))), Clip(LEFT, RIGHT)],
}


def check(node: Node, rounds: list[tuple[Batch, ...]]) -> None:
    """Feed a kernel by hand and compare it with the twins after every round."""
    kernel = kernel_of(node)
    so_far: tuple[Batch, Batch] = ([], [])
    total, promised = Changes.empty(node.schema), NEG_INFINITY
    for batches in rounds:
        so_far = (so_far[0] + batches[0], so_far[1] + batches[1])
        progress = [progress_of(events) for events in so_far]
        given, now = kernel.step([to_changes(tables(batch), SCHEMA) for batch in batches], progress)
        sources = [node.inputs[0].inputs[0], node.inputs[1].inputs[0]]
        seen = {
            source.fingerprint: (history_of(events), reached)
            for source, events, reached in zip(sources, so_far, progress, strict=True)
        }
        rows, expected = reference_stream(node, seen, ended=False)
        assert now.cti == expected.cti
        assert not len(given) or given.sync_times().min() >= promised
        promised = now.cti
        total = Changes.concat([total, given]).consolidate()
        assert bag(rows_of(history(total))) == bag(rows)


@pytest.mark.parametrize("operator", OPERATORS)
def test_kernels_agree_with_their_twins_over_many_histories(operator: str):
    variants = OPERATORS[operator]
    for seed in range(settings().max_examples):
        try:
            check(variants[seed % len(variants)], random_rounds(seed))
        except Exception as error:
            error.add_note(f"random_rounds({seed}) through {variants[seed % len(variants)].describe()}")
            raise
