"""Checkpoints: the public function."""

from __future__ import annotations

from pathlib import Path

from headrace.host.saved.query import SavedQuery

__all__ = ["checkpoint"]


def checkpoint(path: str | Path) -> SavedQuery:
    """The checkpoint of a query, to inspect, check, copy and tidy up."""
    return SavedQuery(path)
