"""Whatever is wrong with files: what a run reports as lost is what came in and did not leave, each row at its line."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fixtures.bad_files import Written, files, written

import headrace as hr

pytestmark = pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")  # rows are lost here on purpose


@given(files(), st.sampled_from(["divert", "drop"]), st.sampled_from([None, 1, 3]), st.integers(1, 3))
def test_oracle_losses_are_rows_in_minus_rows_used(
    drawn: list[Written], late: str, batch_rows: int | None, buckets: int
):
    with tempfile.TemporaryDirectory() as folder:
        for format in ("csv", "json", "parquet"):
            some = [one for one in drawn if one.format == format]
            if some:
                _check(Path(folder) / format, some, late, batch_rows, buckets)


def _check(folder: Path, some: list[Written], late: str, batch_rows: int | None, buckets: int) -> None:
    stream = written(folder, some, late)
    run = hr.run({"out": stream, "grouped": stream.group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count())},
                 batch_rows=batch_rows, buckets=buckets)  # fmt: skip
    ((_, counts),) = run.counts.items()
    rows, used = sum(len(one.rows) for one in some), run.cht("out").num_rows
    assert (counts["rows"], counts["accepted"]) == (rows, used)
    assert run.lost == counts["diverted"] + counts["dropped"] == rows - used
    assert run.diverted().num_rows == counts["diverted"]
    assert sum(run.cht("grouped")["n"].to_pylist()) == used
    assert (run.losses() == "") == (rows == used)
    for row in run.diverted().to_pylist():
        one = next(one for one in some if row["file"] == str((folder / one.name).absolute()))
        assert row["line"] in one.lines, "it is the line of a row"
        kind = one.rows[one.lines.index(row["line"])].kind
        assert (kind == "good") == row["reason"].startswith("late"), row
    broken = sum(row.kind != "good" for one in some for row in one.rows)
    assert counts["malformed"] == broken
