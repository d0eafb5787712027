"""Delta tables: as sinks, and their versions as a source.

sink.py      answers as rows of a table, exactly once
source.py    the rows of a table and the changes of its versions
log.py       versions: the files that each adds and removes
reading.py   the rows of files, and the difference of two sets of files
place.py     where a table is, and errors

The package `deltalake` writes, merges and opens tables. The log of a table is read here: a version is one small file of
JSON, and which files a version adds is what a source needs and the package does not tell.
"""

try:
    import deltalake  # noqa: F401 - only to say what is missing
except ModuleNotFoundError:
    from headrace.errors import PlanError

    raise PlanError("Delta tables need the package deltalake", instead="pip install 'headrace[delta]'") from None

from headrace.adapters.delta.sink import DeltaSink
from headrace.adapters.delta.source import DeltaSource, read_table

__all__ = ["DeltaSink", "DeltaSource", "read_table"]
