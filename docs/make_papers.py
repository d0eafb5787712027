"""Writes the page of the papers' examples: `python docs/make_papers.py`.

The thesis's examples are in `sql/papers.toml`, those of the paper on ESL in `tests/fixtures/esl_paper`. Tests run them.
"""
# ruff: noqa: INP001 - a script, not a package

from __future__ import annotations

import textwrap
import tomllib
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
PAGE = DOCS / "sql" / "papers.md"
ESL = DOCS.parent / "tests" / "fixtures" / "esl_paper"
WIDTH = 110

INTRODUCTION = """\
# The papers' examples

<!-- written by docs/make_papers.py from papers.toml and tests/fixtures/esl_paper; tests run every line -->

The dialect comes from two texts: the thesis *FlinkCQL*, and the paper on Stream Mill and its language ESL. This page
lists all their examples, in their order, and what differs. The [reference](reference.md#differences-from-flinkcql) says
where words that are the same mean something else.

## FlinkCQL

*as printed*: the text runs letter for letter. A part of a query runs in a query. Examples that the thesis states in
words or by their answers have a text here, and give the stated answers.

"""

SECOND = """
## Stream Mill and ESL

The paper has 18 examples. Their listings are missing in the text that this project has, so they are written anew from
their captions and the explanations around them; each is a file with its input and its answer. What the paper says about
them holds: the average of example 7 is blocking and refused on a stream without a window, and an `ORDER BY` of the
stream's own time changes nothing.

"""


def examples() -> list[dict[str, Any]]:
    """The examples of the thesis."""
    found: list[dict[str, Any]] = tomllib.loads((DOCS / "sql" / "papers.toml").read_text(encoding="utf-8"))["example"]
    return found


def page() -> str:
    """The whole page."""
    thesis = "\n".join(map(_thesis, examples()))
    return INTRODUCTION + thesis + SECOND + "".join(map(_esl, sorted(ESL.glob("*.sql"))))


def _thesis(example: dict[str, Any]) -> str:
    text = " ".join((example.get("printed") or example["run"]).split())
    runs = _runs(example)
    head = textwrap.fill(f"**{example['place']}**, {example['what']}. {runs[0].upper()}{runs[1:]}.", WIDTH)
    code = textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)
    return f"{head}\n\n```sql\n{code}\n```\n"


def _runs(example: dict[str, Any]) -> str:
    if "refused" in example:
        return "refused, as the thesis says"
    if "why" not in example:
        return "as printed"
    return f"stated {example['stated']}: {example['why']}" if "stated" in example else f"differs: {example['why']}"


def _esl(path: Path) -> str:
    number = int(path.stem.split("_")[1])
    shows = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("-- ").rstrip(".")
    shown = textwrap.fill(shows, WIDTH, initial_indent="  ", subsequent_indent="  ")
    return f"- [Example {number}](../../tests/fixtures/esl_paper/{path.name})\n{shown}\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
