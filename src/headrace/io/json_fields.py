"""Fields that a schema names and no row has: a typing error would otherwise be a column of nulls.

A row of JSON may lack a field, which is then null. But if none of the rows has it, its name is wrong. So before the
first rows of a source are read, its files are searched for the names, until all are found: usually in the first block.
All files that are there count, however they are divided into batches. If there are rows, and none has a field, the
query ends with an error, unless the format says that the field is `sparse`.

The search is one for `"name":` in the bytes of the files, so it is fast, and may find a name in another object: then
nothing is reported. Rows of hosts and services are not searched, because they come later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from headrace.errors import HeadraceError, SchemaError, nearest
from headrace.io.files import open_stream, source_errors
from headrace.io.json_members import SPACE, first_members, member_pattern
from headrace.io.origins import Files
from headrace.plan.nodes import Source
from headrace.plan.policies import Physical
from headrace.schema import RESERVED, STAMPS

__all__ = ["check_fields", "check_first_files"]

_BLOCK_BYTES = 1 << 20


def check_fields(source: Source) -> None:
    """Raise if the source has files of JSON lines with rows, and a column that none of these rows has."""
    origin = source.origin
    if not isinstance(origin, Files) or origin.format.name != "json" or origin.label or "*" in origin.format.sparse:
        return
    if origin.format.on_drift in ("divert", "widen"):  # each file is judged, and may lack a column
        return
    stored = {new: old for old, new in origin.format.rename}
    missing = {name: member_pattern(stored.get(name, name)) for name in _names(source, origin)}
    first_lines = b""
    for data in _blocks(origin, source) if missing else ():
        missing = {name: field for name, field in missing.items() if not field.search(data)}
        if not missing:
            return
        first_lines = first_lines or data.lstrip()
    present = first_members(first_lines)
    if present:  # else no line is an object, which the reader will say
        raise _error(source, [stored.get(name, name) for name in missing], present)


def check_first_files(sources: Iterable[Source], planned: Mapping[str, object], taken: Mapping[str, int]) -> None:
    """Check the sources of which a batch reads the first files: `taken` counts those of the batches before."""
    for source in sources:
        if planned.get(source.fingerprint) and not taken.get(source.fingerprint):
            check_fields(source)


def _names(source: Source, origin: Files) -> list[str]:
    """The columns that must be in some row; an envelope's own columns begin with an underscore."""
    own = {*STAMPS.names, *origin.format.sparse, *(RESERVED if isinstance(source.lifetime, Physical) else ())}
    return [n for n in source.columns.names if n not in own and not (origin.format.envelope and n.startswith("_"))]


def _blocks(origin: Files, source: Source) -> Iterator[bytes]:
    """The bytes of all files, in blocks that overlap by more than a name; a file without inserts has no rows to search.

    What cannot be read is left to the reader.
    """
    names = [*source.columns.names, *(old for old, _ in origin.format.rename)]
    overlap = 6 * max(map(len, names)) + SPACE + 4  # an escape has six characters
    for file in origin.files():
        try:
            with source_errors(file.path), open_stream(file.path, origin.format.max_expansion) as stream:
                end = b""
                while data := bytes(stream.read(_BLOCK_BYTES)):
                    if not isinstance(source.lifetime, Physical) or b"insert" in data or b"kind" not in data:
                        yield end + data
                    end = (end + data)[-overlap:]
        except HeadraceError:
            return


def _error(source: Source, missing: list[str], present: list[str]) -> SchemaError:
    close = nearest(missing[0], present)
    sparse = f"sparse={missing!r}, if rows may lack it"
    return SchemaError(
        f"no row of {source.origin} has the field {', '.join(map(repr, missing))}",
        given=", ".join(str(field) for field in source.columns if field.name not in STAMPS),
        allowed=", ".join(present),
        instead=f"{close}; or {sparse}" if close else sparse,
    )
