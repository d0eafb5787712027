"""Writes the page that compares names from `names.toml`: `python docs/make_names.py`.

A test runs every line of the table that is Headrace's, and looks up every name of PySpark and Polars in the library.
Names of ibis and PyFlink were looked up by hand, in the versions that the page names.
"""
# ruff: noqa: INP001 - a script, not a package

from __future__ import annotations

import tomllib
from pathlib import Path

PAGE = Path(__file__).parent / "names.md"
TABLE = Path(__file__).parent / "names.toml"
LIBRARIES = ("headrace", "pyspark", "polars", "ibis", "flink")

INTRODUCTION = """\
# What it is called elsewhere

<!-- written by docs/make_names.py from names.toml; a test runs every line of the column Headrace -->

For those who know PySpark, Polars, ibis (12) or Flink's Table API (2.3). `s` and `t` are streams with the columns `k`,
`x` and `at`, and `df`, `pl`, `F` what these libraries' own examples call so. A dash means that there is nothing of the
kind. Names that look alike may mean slightly different things: here every row has a
[lifetime](glossary.md#lifetime), and a join, a union or a filter holds [at every instant](semantics.md).
"""


def parts() -> dict[str, list[dict[str, str]]]:
    """The rows of the table, by the part of the page."""
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))


def page() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *(_table(title, rows) for title, rows in parts().items())])


def _table(title: str, rows: list[dict[str, str]]) -> str:
    head = "| | Headrace | PySpark | Polars | ibis | Flink |\n|---|---|---|---|---|---|\n"
    lines = (f"| {row['idea']} | {' | '.join(_cell(row.get(name, '–')) for name in LIBRARIES)} |\n" for row in rows)
    return f"## {title}\n\n{head}{''.join(lines)}"


def _cell(text: str) -> str:
    """Code as code; what has no name of its own, as it stands."""
    return f"`{text}`" if "(" in text and "`" not in text else text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
