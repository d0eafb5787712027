"""The data of TPC-H, small, and a log of its changes."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tests.fixtures.changing_tables import ChangingTables

__all__ = ["DIFFERENCES", "QUERIES", "STANDARD", "changing", "tables"]

HERE = Path(__file__).parent
KEYS = {
    "region": ["r_regionkey"],
    "nation": ["n_nationkey"],
    "supplier": ["s_suppkey"],
    "part": ["p_partkey"],
    "partsupp": ["ps_partkey", "ps_suppkey"],
    "customer": ["c_custkey"],
    "orders": ["o_orderkey"],
    "lineitem": ["l_orderkey", "l_linenumber"],
}
#: Where most rows belong to few rows of a table, its changes are rare, or answers would be empty most of the time.
STEADY = ("region", "nation", "supplier", "part", "customer")
_, *_SECTIONS = re.split(r"^-- (q\d+)$", (HERE / "standard.sql").read_text(), flags=re.MULTILINE)
#: The queries as the specification words them.
STANDARD = {name: text.strip() for name, text in zip(_SECTIONS[::2], _SECTIONS[1::2], strict=True)}
#: What Headrace SQL words in another way: a list of queries, the words, the other words and the reason.
DIFFERENCES: list[dict[str, Any]] = tomllib.loads((HERE / "differences.toml").read_text()).get("difference", [])


def _spoken(name: str) -> str:
    text = STANDARD[name]
    for difference in DIFFERENCES:
        if name in difference["queries"]:
            found = re.sub(difference["standard"], difference["headrace"], text)
            assert found != text, f"{name} has no {difference['standard']}"
            text = found
    return text


#: The queries in Headrace SQL.
QUERIES = {name: _spoken(name) for name in STANDARD}


@cache
def tables(scale: float, orders: int) -> dict[str, pa.Table]:
    """The tables of this scale, with the first orders only and what they consist of."""
    program = Path(sys.executable).with_name("tpchgen-cli")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, "parquet", "-s", str(scale), "-o", folder], check=True, capture_output=True)
        found = {name: _plain(pq.read_table(Path(folder, f"{name}.parquet"))) for name in KEYS}
    kept = found["orders"].slice(0, orders)
    of_kept = pc.is_in(found["lineitem"]["l_orderkey"], kept["o_orderkey"].combine_chunks())
    return {**found, "orders": kept, "lineitem": found["lineitem"].filter(of_kept)}


def _plain(table: pa.Table) -> pa.Table:
    """The table with texts of the usual kind, and every column nullable."""
    fields = [pa.field(f.name, pa.string() if pa.types.is_string_view(f.type) else f.type) for f in table.schema]
    return table.cast(pa.schema(fields)).combine_chunks()


@cache
def changing(scale: float = 0.001, orders: int = 300, seed: int = 20, batches: int = 2) -> ChangingTables:
    """The tables as they come about, change and shrink."""
    return ChangingTables(tables(scale, orders), KEYS, seed=seed, steady=STEADY, batches=batches)
