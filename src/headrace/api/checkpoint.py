"""Checkpoints, as people handle them."""

from __future__ import annotations

from pathlib import Path

from headrace.host.saved.query import SavedQuery

__all__ = ["checkpoint"]


def checkpoint(path: str | Path) -> SavedQuery:
    """The checkpoint that a query was started with: to look at, to check, to copy, to tidy up."""
    return SavedQuery(path)
