"""Change parts of a tree: the same tree with some parts replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar, cast

from headrace.sql.syntax.parts import Part

__all__ = ["rewritten"]

P = TypeVar("P", bound=Part)


def rewritten(part: P, change: Callable[[Part], Part | None]) -> P:
    """The tree with every part for which `change` returns another part replaced by it; that one is not searched."""
    return cast("P", _rewritten(part, change))


def _rewritten(value: Any, change: Callable[[Part], Part | None]) -> Any:
    if isinstance(value, tuple):
        items = tuple(_rewritten(item, change) for item in value)
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    if not isinstance(value, Part):
        return value
    other = change(value)
    if other is not None:
        return other
    inner = {f.name: getattr(value, f.name) for f in fields(value) if f.name != "at"}
    new = {name: found for name, old in inner.items() if (found := _rewritten(old, change)) is not old}
    return replace(value, **new) if new else value
