"""Questions of a user of streaming databases: at every moment the answer is DuckDB's over what the tables have then."""

from __future__ import annotations

import random
import re
from datetime import datetime, timedelta
from functools import cache, partial
from pathlib import Path

import pyarrow as pa
import pytest
from tests.fixtures.changing_tables import ChangingTables, bound, check_at_every_moment, refused

import headrace as hr

_, *_SECTIONS = re.split(
    r"^-- (.*)$", Path(__file__).with_name("queries.sql").read_text().partition("\n\n")[2], flags=re.MULTILINE
)
QUERIES = {name: text.strip() for name, text in zip(_SECTIONS[::2], _SECTIONS[1::2], strict=True)}
KEYS = {"customers": ["cid"], "products": ["pid"], "orders": ["oid"], "items": ["iorder", "ipos"], "payments": ["yid"]}
#: What the dialect lacks, and the queries that wait for it.
MISSING: dict[str, list[str]] = {}
WAITS = {name: reason for reason, names in MISSING.items() for name in names}


@cache
def shop() -> ChangingTables:
    """A small shop."""
    draw = random.Random(5)
    day = datetime(2024, 5, 1)  # noqa: DTZ001 - DuckDB's timestamps have no zone
    rows = {
        "customers": [
            {"cid": i, "cname": f"c{i}", "city": draw.choice(["Oslo", "Rome", "Bern"]), "tier": draw.randint(1, 4)}
            for i in range(1, 31)
        ],
        "products": [
            {"pid": i, "pname": f"p{i}", "category": draw.choice("abcd"), "price": draw.randint(5, 100)}
            for i in range(1, 26)
        ],
        "orders": [
            {
                "oid": i, "ocustomer": draw.randint(1, 24), "placed": day + timedelta(minutes=draw.randint(0, 300)),
                "status": draw.choice(["open", "sent", "back"]),
            }
            for i in range(1, 91)
        ],
        "items": [
            {"iorder": i, "ipos": k, "iproduct": draw.randint(1, 22), "qty": draw.randint(1, 9)}
            for i in range(1, 91) for k in range(draw.randint(1, 3))
        ],
        "payments": [
            {
                "yid": i, "yorder": draw.randint(1, 95), "amount": draw.randint(10, 900),
                "method": draw.choice(["card", "cash"]),
            }
            for i in range(1, 71)
        ],
    }  # fmt: skip
    tables = {name: pa.Table.from_pylist(found) for name, found in rows.items()}
    return ChangingTables(tables, KEYS, seed=6, batches=1)


def _bind(name: str) -> hr.Stream:
    return list(hr.script(QUERIES[name], **shop().streams).queries.values())[-1]


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_oracle_the_answer_at_every_moment(name: str):
    stream = bound(lambda: _bind(name), WAITS.get(name))
    check_at_every_moment(shop(), {name: (stream, QUERIES[name])}, buckets=2)


def test_what_waits_is_refused():
    assert refused({name: partial(_bind, name) for name in WAITS}) == set(WAITS), "take what runs out of MISSING"
