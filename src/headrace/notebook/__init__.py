"""Headrace in notebooks: a cell magic for SQL (`cells.py`), and widgets that show themselves (`widgets.py`).

Streams, running queries and results are shown by `display/rich.py`: as widgets if `headrace[notebook]` is installed and
the page of the notebook can run them, else as HTML.
"""

from __future__ import annotations

from headrace.notebook.cells import Answer, Cells, load_ipython_extension

__all__ = ["Answer", "Cells", "load_ipython_extension"]
