"""Writes the table of features from `sql/features.toml`: `python docs/make_features.py`.

Tests run every line of Headrace and of Spark. What is said of Flink and Materialize is what their documentation says.
"""
# ruff: noqa: INP001 - a script, not a package

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

SQL = Path(__file__).parent / "sql"
PAGE = SQL / "features.md"
FLINK = "https://nightlies.apache.org/flink/flink-docs-release-2.0/docs/dev/table/sql/queries/"
MATERIALIZE = "https://materialize.com/docs/sql/"

INTRODUCTION = """\
# Features, and what others have

<!-- written by docs/make_features.py from features.toml; tests run every line of Headrace and of Spark -->

For those who know Flink SQL, Materialize or Spark SQL. Every text in the column Headrace is run by a test, which
compares its rows. `orders` and `customers` are tables, whose rows may change at any time, and `ticks` is a stream of
instants; a text that asks the same of one of them gives one answer, and keeps it up to date.

- **Spark SQL** is what the installed Spark does with the text, or with the one that the table gives: as a batch query,
  because it refuses most of them over streams. A test runs these lines, too, and sees that what is marked *no* fails.
- **Flink SQL** (2.0, streaming mode) and **Materialize** are as documented; each cell leads to the page. *no*: the
  documentation has nothing of the kind. A dash: it does not say.
"""


def parts() -> dict[str, list[dict[str, Any]]]:
    """The rows of the table, by the part of the page."""
    return tomllib.loads((SQL / "features.toml").read_text(encoding="utf-8"))


def page() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *(_table(title, rows) for title, rows in parts().items())])


def _table(title: str, rows: list[dict[str, Any]]) -> str:
    head = "| | Headrace | Flink SQL | Materialize | Spark SQL |\n|---|---|---|---|---|\n"
    lines = (
        f"| {row['feature']} | {_code(row['headrace'])}{_waits(row)} | {_linked(FLINK, *row['flink'])} "
        f"| {_linked(MATERIALIZE, *row['materialize'])} | {_spark(row)} |\n"
        for row in rows
    )
    return f"## {title}\n\n{head}{''.join(lines)}"


def _code(text: str) -> str:
    """Code in one line of a table."""
    return "`" + " ".join(text.split()).replace("|", "\\|") + "`"


def _waits(row: dict[str, Any]) -> str:
    return f" *not yet: {row['waits']}*" if "waits" in row else ""


def _linked(base: str, says: str, at: str) -> str:
    word, colon, more = says.partition(":")
    return f"[{word}]({base}{at}{'' if at.endswith('/') else '/'}){colon}{more}"


def _spark(row: dict[str, Any]) -> str:
    if "spark" not in row:
        return "no"
    return "yes" if row["spark"] == "same" else f"yes: {_code(row['spark'])}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
