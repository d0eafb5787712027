"""How notebooks show an object: as a widget, if widgets are installed, and as HTML or text besides.

Jupyter and VS Code ask for `_repr_mimebundle_`, marimo for `_display_`. The widgets are made by `headrace.notebook`,
which is above everything that is shown: it is imported when a notebook asks, and nowhere else.
"""

from __future__ import annotations

import sys
from html import escape
from typing import Any

__all__ = ["RichDisplay"]


class RichDisplay:
    """An object that notebooks show as a widget."""

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any] | None:
        del include, exclude
        widget = self._widget() if "ipykernel" in sys.modules else None
        return None if widget is None else widget._repr_mimebundle_()

    def _display_(self) -> Any:
        widget = self._widget()
        return _Html(self) if widget is None else widget

    def _widget(self) -> Any:
        """The widget; None if there is none, since `headrace[notebook]` is not installed."""
        try:
            from headrace.notebook.widgets import widget_of  # upward, and only when a notebook asks
        except ImportError:
            return None
        return widget_of(self)


class _Html:
    """The object without its widget, as marimo shows others."""

    def __init__(self, thing: Any) -> None:
        self._thing = thing

    def _repr_html_(self) -> str:
        shown = getattr(self._thing, "_repr_html_", None)
        return shown() if shown is not None else f"<pre>{escape(repr(self._thing))}</pre>"
