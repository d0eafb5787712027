"""Marks the lines of `docs/sql/features.toml` that are refused, unmarks those that run, and writes the page again.

`python -m tests.docs.mark_features`, from the project's folder.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.docs.test_features import DOCS, ROWS, bind, filled, make_features
from tests.fixtures.changing_tables import refused


def main() -> None:
    """Rewrite the file and the page."""
    path = Path(DOCS, "sql", "features.toml")
    text = re.sub(r"^waits = .*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    with TemporaryDirectory() as folder:
        place = filled(Path(folder))
        missing = refused({str(row["feature"]): partial(bind, row, place) for row in ROWS if "answer" in row})
    for feature in missing:
        line = f'feature = "{feature}"\n'
        text = text.replace(line, f'{line}waits = "the dialect does not have it"\n')
    path.write_text(text, encoding="utf-8")
    make_features.PAGE.write_text(make_features.page(), encoding="utf-8")


if __name__ == "__main__":
    main()
