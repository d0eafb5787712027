"""Options about the columns of files, `rename=` and `sparse=`, of other types: refused by name, with what to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import SchemaError


@pytest.mark.parametrize("rename", ["cost", ["cost"], 5, {"cost": 5}, {5: "cost"}])
def test_names_that_are_no_dictionary_of_texts(tmp_path: Path, rename: Any):
    (tmp_path / "rows.csv").write_text("t\n1\n")
    with pytest.raises(SchemaError, match=r"rename is a dictionary|names of columns are texts") as error:
        hr.read_csv(tmp_path / "rows.csv", "t LONG", lifetime=hr.point("t"), rename=rename)
    assert error.value.instead == "rename={'name in the file': 'new name'}"


@pytest.mark.parametrize("sparse", [5, None, [5], {"note": 1, 5: 2}])
def test_columns_that_rows_may_lack_are_texts(tmp_path: Path, sparse: Any):
    (tmp_path / "rows.json").write_text('{"t": 1}\n')
    with pytest.raises(SchemaError, match="sparse names the columns") as error:
        hr.read_json(tmp_path / "rows.json", "t LONG", lifetime=hr.point("t"), sparse=sparse)
    assert error.value.instead == "sparse=['note']"
