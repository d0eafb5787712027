"""The same queries as a text: `queries.sql`, bound to the streams of a house."""

from __future__ import annotations

from pathlib import Path

from examples.nexmark.queries import Ranked, directory
from examples.nexmark.streams import House

import headrace as hr
from headrace import Stream

__all__ = ["TEXT", "asked_in_sql"]

TEXT = Path(__file__).with_name("queries.sql").read_text(encoding="utf-8")


def asked_in_sql(house: House, text: str = TEXT) -> dict[str, Stream]:
    """The queries of the text by their names, asked of a house."""
    own = {"directory": directory, "ranked": Ranked}
    return hr.script(text, functions=own, **house._asdict()).queries
