"""Importing the Python file that a command is about."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from headrace.errors import SourceError

__all__ = ["load_file"]


def load_file(file: Path) -> ModuleType:
    """Import a file as it would run from its own directory, but not as a program: `__name__` is not `__main__`.

    It goes by its own name, so that its classes can be found again, here and by another process.
    """
    if not file.is_file():
        raise SourceError(f"there is no file {str(file)!r}", given=str(file))
    spec = importlib.util.spec_from_file_location(file.stem, file.absolute())
    if spec is None or spec.loader is None:
        raise SourceError(f"{str(file)!r} cannot be imported", given=str(file))
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.absolute().parent))
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module
