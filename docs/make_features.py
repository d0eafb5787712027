"""Writes the table of features from `sql/features.toml`: `python docs/make_features.py`.

Tests run every line of Headrace and of Spark. What is said of Flink and Materialize is what their documentation says.
"""
# ruff: noqa: INP001 - a script, not a package

from __future__ import annotations

import textwrap
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

SQL = Path(__file__).parent / "sql"
PAGE = SQL / "features.md"
FLINK = "https://nightlies.apache.org/flink/flink-docs-release-2.0/docs/dev/table/sql/queries/"
MATERIALIZE = "https://materialize.com/docs/sql/"
WIDTH = 110

INTRODUCTION = """\
# Features, and what others have

<!-- written by docs/make_features.py from features.toml; tests run every line of Headrace and of Spark -->

For those who know Flink SQL, Materialize or Spark SQL. Each table says who has what; the texts behind it are those of
Headrace, in the same order, and every one of them is run by a test, which compares its rows. `orders` and `customers`
are tables, whose rows may change at any time, and `ticks` is a stream of instants; a text that asks the same of one of
them gives one answer, and keeps it up to date.

- **Spark SQL** is what the installed Spark does with the text, or with the one behind it: as a batch query, because it
  refuses most of them over streams. A test runs these lines, too, and sees that what is marked *no* fails.
- **Flink SQL** (2.0, streaming mode) and **Materialize** are as documented; each cell leads to the page. *no*: the
  documentation has nothing of the kind. A dash: it does not say.
"""


def parts() -> dict[str, list[dict[str, Any]]]:
    """The rows of the table, by the part of the page."""
    return tomllib.loads((SQL / "features.toml").read_text(encoding="utf-8"))


def page() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *(_part(title, rows) for title, rows in parts().items()), _links()])


def _part(title: str, rows: list[dict[str, Any]]) -> str:
    head = "| | Headrace | Flink SQL | Materialize | Spark SQL |\n|---|---|---|---|---|\n"
    lines = (
        f"| {row['feature']} | {'not yet' if 'waits' in row else 'yes'} | {_linked(FLINK, *row['flink'])} "
        f"| {_linked(MATERIALIZE, *row['materialize'])} | {'yes' if 'spark' in row else 'no'} |\n"
        for row in rows
    )
    return f"## {title}\n\n{head}{''.join(lines)}\n```sql\n{chr(10).join(map(_text, rows))}\n```\n"


def _text(row: dict[str, Any]) -> str:
    """The text of a feature, below a comment with its name; and Spark's, if it is another."""
    waits = f" (not yet: {row['waits']})" if "waits" in row else ""
    lines = [f"-- {row['feature'].replace('`', '')}{waits}", *_broken(row["headrace"])]
    if row.get("spark", "same") != "same":
        lines += ["-- … in Spark", *_broken(row["spark"])]
    return "\n".join(lines)


def _broken(text: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()) + ";", WIDTH, break_long_words=False, break_on_hyphens=False)


def _linked(base: str, says: str, at: str) -> str:
    word, colon, more = says.partition(":")
    return f"[{word}][{_label(base, at)}]{colon}{more}"


def _label(base: str, at: str) -> str:
    return f"{'Flink' if base == FLINK else 'Materialize'}: {at.strip('/').rpartition('/')[2] or 'overview'}"


def _links() -> str:
    """The addresses behind the cells."""
    rows = [row for part in parts().values() for row in part]
    ends = {(base, row[name][1]) for row in rows for base, name in ((FLINK, "flink"), (MATERIALIZE, "materialize"))}
    found = {_label(base, at): urljoin(base, f"{at.strip('/')}/" if at.strip("/") else "") for base, at in ends}
    assert len(found) == len(ends), "two pages of one name"
    return "".join(f"[{label}]: {address}\n" for label, address in sorted(found.items()))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
