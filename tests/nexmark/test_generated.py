"""NEXMark on generated events, out of order and revised: the answer is that of batch SQL over the final history.

The SQL is in `batch.sql`; the history of the inputs is found without the engine, by the generator.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from examples.nexmark.queries import QUERIES, build_query
from examples.nexmark.streams import HOUSE, physical, replay

import headrace as hr
from headrace.io.generator import Auctions, expected_cht, facts

BUSY = replace(HOUSE, rows=1_200)
#: A day and a half with a bid every other minute: all hours, and windows with few bids or none.
QUIET = Auctions(
    rows=1_000, seed=23, start="2024-02-28T15:00:00Z", rate_per_second=0.008, disorder=0.5, max_delay="3 h",
    hot=0.1, open_for="6 h",
)  # fmt: skip


def events(config: Auctions) -> dict[str, pa.Table]:
    """What arrives, a fifth of it corrected later."""
    return physical(config, revised=0.2)


# --- the batch computation ------------------------------------------------------------------------------------------

PREAMBLE, *SECTIONS = re.split(r"^-- (q.*)$", Path(__file__).with_name("batch.sql").read_text(), flags=re.MULTILINE)
BATCH = dict(zip(SECTIONS[::2], SECTIONS[1::2], strict=True))


@cache
def truth(config: Auctions) -> duckdb.DuckDBPyConnection:
    """A database with the histories of the inputs."""
    base = duckdb.connect()
    for name, table in events(config).items():
        history = expected_cht(table)
        # Times of no zone: what DuckDB does with zones comes with an extension.
        plain = [f.with_type(pa.timestamp("us")) if pa.types.is_timestamp(f.type) else f for f in history.schema]
        base.register(f"{name}_given", history.cast(pa.schema(plain)))
        base.execute(f"CREATE TABLE {name} AS FROM {name}_given")
    base.execute(PREAMBLE)
    return base


def batch(config: Auctions, name: str, like: pa.Schema) -> pa.Table:
    """What SQL says, with columns ordered and typed as in `like`."""
    found = truth(config).sql(BATCH[name]).to_arrow_table()
    return found.select(like.names).cast(like)


# --- the streams ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """A house, how it is cut into batches, and what runs it."""

    config: Auctions
    host: str
    buckets: int
    batches: int
    seed: int

    def run(self) -> hr.Run:
        draw, tables = random.Random(self.seed), events(self.config)
        sizes = {name: self._cut(draw, table.num_rows) for name, table in tables.items()}
        house = replay(tables, self.config.max_delay, sizes)
        queries = {name: build_query(name, house) for name in QUERIES}
        queries["q6 of the lowest"] = build_query("q6", house, lowest=True)
        return hr.run(queries, host=self.host, buckets=self.buckets)

    def _cut(self, draw: random.Random, total: int) -> list[int]:
        cuts = sorted(draw.sample(range(1, total), self.batches - 1))
        return [b - a for a, b in zip([0, *cuts], [*cuts, total], strict=True)]


WAYS = {
    "busy, in one batch": Way(BUSY, "local", buckets=1, batches=1, seed=1),
    "busy, in random batches": Way(BUSY, "local", buckets=3, batches=6, seed=2),
    "quiet, in random batches": Way(QUIET, "local", buckets=2, batches=6, seed=3),
    "busy, on Spark": Way(BUSY, "spark", buckets=2, batches=3, seed=4),
}


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.spark if way.host == "spark" else ()) for name, way in WAYS.items()],
)
def finished(request: pytest.FixtureRequest) -> tuple[Way, hr.Run]:
    """All queries as one, in one of the ways."""
    way = WAYS[request.param]
    if way.host == "spark":
        request.getfixturevalue("spark_with_examples")
    return way, way.run()


@pytest.mark.parametrize("name", BATCH)
def test_differential_the_history_is_that_of_batch_sql(finished: tuple[Way, hr.Run], name: str):
    way, run = finished
    ours = run.cht(name)
    right = batch(way.config, name, ours.schema)
    assert right.num_rows or way.config is QUIET, "an empty history proves nothing"
    assert not hr.history_diff(right, ours, names=("batch SQL", "this host"))


def test_every_query_is_asked():
    assert {name.split()[0] for name in BATCH} == set(QUERIES)


@pytest.mark.parametrize("config", [BUSY, QUIET], ids=["busy", "quiet"])
def test_the_events_misbehave(config: Auctions):
    for table in events(config).values():
        found = facts(table, config.max_delay)
        assert found.out_of_order > 0
        assert found.retractions > 0
        assert found.late == 0


def test_answers_are_corrected_on_the_way(finished: tuple[Way, hr.Run]):
    way, run = finished
    corrected = {name for name in BATCH if "retract" in run.events(name)["kind"].to_pylist()}
    assert corrected >= ({"q4", "q6", "q18", "q19"} if way.batches > 1 else set())
    assert run.diverted().num_rows == 0
