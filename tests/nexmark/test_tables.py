"""NEXMark over tables that change: persons, auctions and bids are inserted, updated and deleted in random order.

The texts are those of other systems' suites (`tables.sql`). At every moment the answer is DuckDB's over what the tables
have then. `test_generated` asks the same questions of streams, with lifetimes and windows.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pyarrow as pa
import pytest
from examples.nexmark.queries import QUERIES
from examples.nexmark.streams import HOUSE, physical
from tests.fixtures.changing_tables import ChangingTables, bound, check_at_every_moment, refused

import headrace as hr
from headrace.io.generator import expected_cht

_, *_SECTIONS = re.split(r"^-- (q\d+)$", Path(__file__).with_name("tables.sql").read_text(), flags=re.MULTILINE)
TEXTS = {name: text.strip() for name, text in zip(_SECTIONS[::2], _SECTIONS[1::2], strict=True)}
#: The windows of a row by a column, which DuckDB has no function for.
HOP = re.compile(r"HOP\((\w+), (\w+), (INTERVAL '2' SECOND), (INTERVAL '10' SECOND)\)")
TUMBLE = re.compile(r"TUMBLE\((\w+), (\w+), (INTERVAL '10' SECOND)\)")
#: What the dialect lacks, and the queries that wait for it.
MISSING: dict[str, list[str]] = {}
WAITS = {name: reason for reason, names in MISSING.items() for name in names}


def in_duckdb(text: str) -> str:
    """The query as DuckDB words it."""
    text = HOP.sub(
        r"(SELECT t.*, time_bucket(\3, \2) - i * \3 AS window_start FROM \1 AS t, range(5) AS r (i)) AS hops", text
    )
    return TUMBLE.sub(
        r"(SELECT *, time_bucket(\3, \2) AS window_start, time_bucket(\3, \2) + \3 AS window_end FROM \1) AS tumbles",
        text,
    )


@cache
def changing(rows: int = 600, seed: int = 7, batches: int = 2) -> ChangingTables:
    """The tables of a small auction house."""
    found = physical(replace(HOUSE, rows=rows), revised=0.0)
    tables = {name.removesuffix("s"): _rows(expected_cht(table)) for name, table in found.items()}
    keys = {"person": ["id"], "auction": ["id"], "bid": ["auction", "bidder", "date_time"]}
    return ChangingTables(tables, keys, seed=seed, steady=["person", "auction"], batches=batches)


def _rows(history: pa.Table) -> pa.Table:
    """The rows of a history, with times of no zone, as DuckDB has them."""
    rows = history.drop_columns(["le", "re"])
    plain = [f.with_type(pa.timestamp("us")) if pa.types.is_timestamp(f.type) else f for f in rows.schema]
    return rows.cast(pa.schema(plain)).combine_chunks()


def _bind(name: str) -> hr.Stream:
    return hr.sql(TEXTS[name], **changing().streams)


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_oracle_the_answer_at_every_moment(name: str):
    stream = bound(lambda: _bind(name), WAITS.get(name))
    check_at_every_moment(changing(), {name: (stream, in_duckdb(TEXTS[name]))}, buckets=2)


def test_what_waits_is_refused():
    assert refused({name: partial(_bind, name) for name in WAITS}) == set(WAITS), "take what runs out of MISSING"


def test_every_query_is_asked():
    assert list(TEXTS) == list(QUERIES)
