"""A query on Spark with its checkpoint and output on S3: its workers get what they need to reach it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.events import history, to_changes
from headrace.io.sinks import read_events_output

pytestmark = pytest.mark.usefixtures("spark")


@pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")
def test_a_query_goes_on_from_a_checkpoint_on_s3_on_either_host(tmp_path: Path, s3: str):
    stream = hr.read_parquet(str(tmp_path / "in"), "t LONG, k LONG, v LONG", lifetime=hr.point("t"))
    sums = stream.group_by("k").window(hr.tumbling(50)).aggregate(n=hr.count(), s=hr.sum("v"))
    (tmp_path / "in").mkdir()
    for number, host in enumerate(("spark", "local", "spark")):
        rows = range(4000 * number, 4000 * (number + 1))
        table = pa.table({"t": rows, "k": [row % 1999 for row in rows], "v": rows})
        pq.write_table(table, tmp_path / "in" / f"{number}.parquet")
        query = sums.start(hr.files(f"{s3}/out"), checkpoint=f"{s3}/state", host=host, buckets=2)
        query.process_all_available()
        if number == 2:
            query.finish()
        query.stop()
    found = history(to_changes(read_events_output(f"{s3}/out", sums.schema), sums.schema))
    assert not hr.history_diff(sums.cht(), found, names=("expected", "found"))
