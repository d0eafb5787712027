"""The same queries in SQL: `queries.sql`, bound to the streams of a house."""

from __future__ import annotations

from pathlib import Path

from examples.nexmark.queries import Ranked, directory
from examples.nexmark.streams import House

import headrace as hr
from headrace import Stream

__all__ = ["TEXT", "sql_queries"]

TEXT = Path(__file__).with_name("queries.sql").read_text(encoding="utf-8")


def sql_queries(house: House, text: str = TEXT) -> dict[str, Stream]:
    """The queries of the text by name, over the streams of a house."""
    own = {"directory": directory, "ranked": Ranked}
    return hr.script(text, functions=own, **house._asdict()).queries
