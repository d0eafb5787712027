"""Finding what a command is about: a stream of a Python file, or what a script of SQL asks for."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.errors import PlanError, SourceError, nearest

if TYPE_CHECKING:
    from headrace.api.stream import Stream
    from headrace.sql.scripts import Script
    from headrace.sql.session import Outcome, SqlSession

__all__ = [
    "LoadedQuery",
    "Target",
    "endless",
    "find",
    "find_stream",
    "folder_of",
    "load_file",
    "load_script",
    "read_text",
]

_TARGET = re.compile(r"(?P<file>.+?\.(?P<kind>py|sql))(?::(?P<name>.+))?")
_ALLOWED = "FILE.py, FILE.sql, or either with :NAME"

#: What commands are about, as they show it.
Target = Annotated[
    str,
    typer.Argument(
        metavar="FILE[:NAME]",
        help="A Python file or a script of SQL (FILE.py, FILE.sql), and the name of a stream or a query in it.",
    ),
]


@dataclass(frozen=True)
class LoadedQuery:
    """What a command is about: streams whose answers are wanted, and streams that go to sinks, all as one query."""

    name: str
    queries: Mapping[str, Stream]
    deliveries: Mapping[str, tuple[Stream, Any]] = field(default_factory=dict)
    #: Whether its query was picked by name, or is the only one there could be.
    single: bool = True
    #: For a script: what exists by now, with its settings, and what came of its statements.
    session: SqlSession | None = None
    outcomes: tuple[Outcome, ...] = ()


def find(target: str, roots: Sequence[Path] | None = None, *, absolute: bool = False) -> LoadedQuery:
    """What a target is about: one stream, or everything that a script asks for.

    With `roots`, a script may use files only there. With `absolute`, its paths do not depend on where it is run.
    """
    file, name = _parts(target)
    if file.suffix == ".py":
        found, stream = _in_python(file, name)
        return LoadedQuery(found, {found: stream})
    script = load_script(file, roots, absolute=absolute)
    if name is not None:
        stream = _named(name, _by_name(script), str(file))
        return LoadedQuery(name, {name: stream}, session=script.session)
    asked = (script.queries, script.deliveries)
    return LoadedQuery(file.stem, *asked, single=False, session=script.session, outcomes=script.outcomes)


def find_stream(target: str) -> tuple[str, Stream]:
    """The one stream that `FILE:NAME` names, or the only one that FILE could mean."""
    file, name = _parts(target)
    if file.suffix == ".py":
        return _in_python(file, name)
    script = load_script(file)
    if name is not None:
        return name, _named(name, _by_name(script), str(file))
    asked = script.queries | {key: stream for key, (stream, _) in script.deliveries.items()}
    return _only(asked or script.streams, file, "SELECT …")


def endless(streams: Iterable[Stream]) -> list[str]:
    """What these streams read that has no end by itself: hosts without a limit, and what only Spark can read."""
    from headrace.io.origins import FrameRead, HostRead, SparkRead
    from headrace.plan.nodes import sources_of

    origins = [source.origin for source in sources_of(*(stream.node for stream in streams))]
    batch = [o for o in origins if isinstance(o, FrameRead) and not o.streaming]
    kept = [o for o in origins if isinstance(o, SparkRead) or (isinstance(o, HostRead) and o.limit is None)]
    kept = [o for o in kept if o not in batch]
    return list(dict.fromkeys(map(str, kept)))


def folder_of(name: str) -> str:
    """A name, which may be anything, as that of a folder."""
    return re.sub(r"[^\w-]", "_", name)


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


def load_script(file: Path, roots: Sequence[Path] | None = None, *, absolute: bool = False) -> Script:
    """Bind a script; relative paths in it are meant from its own directory."""
    # Here, and not above: `headrace --help` needs none of it.
    from headrace.sql import script

    base = (file.absolute() if absolute else file).parent
    return script(read_text(file), base=base, roots=roots)


def read_text(file: Path) -> str:
    """The text of a file."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SourceError(f"{str(file)!r} cannot be read: {reason}", given=str(file)) from error


def _parts(target: str) -> tuple[Path, str | None]:
    match = _TARGET.fullmatch(target)
    if match is None:
        raise PlanError("this names no Python file and no script", given=target, allowed=_ALLOWED)
    return Path(match["file"]), match["name"]


def _in_python(file: Path, name: str | None) -> tuple[str, Stream]:
    # Here, and not above: `headrace --help` needs none of it.
    from headrace.api.stream import Stream

    streams = {key: value for key, value in vars(load_file(file)).items() if isinstance(value, Stream)}
    if name is not None:
        return name, _named(name, streams, str(file))
    return _only(streams, file, "vwap = ticks.where(...)")


def _by_name(script: Script) -> dict[str, Stream]:
    """What can be picked from a script; a query before a stream of its name."""
    return {**script.streams, **{name: stream for name, (stream, _) in script.deliveries.items()}, **script.queries}


def _only(streams: Mapping[str, Stream], file: Path, instead: str) -> tuple[str, Stream]:
    """The only stream that no other one reads."""
    if not streams:
        raise PlanError(f"no stream is at the top level of {file}", given=str(file), instead=instead)
    last = {name: stream for name, stream in streams.items() if not _is_read(stream, streams)}
    if len({stream.node for stream in last.values()}) == 1:
        return next(iter(last.items()))
    names = ", ".join(last)
    raise PlanError("several streams are in this file", given=names, instead=f"{file}:{next(iter(last))}")


def _is_read(stream: Stream, streams: Mapping[str, Stream]) -> bool:
    """Whether another stream is made from this one."""
    from headrace.plan.nodes import walk

    others = [other.node for other in streams.values() if other.node != stream.node]
    return any(stream.node in walk(other) for other in others)


def _named(name: str, streams: Mapping[str, Stream], file: str) -> Stream:
    if name in streams:
        return streams[name]
    close = nearest(name, streams)
    raise PlanError(
        f"there is no stream {name!r} in {file}",
        given=name,
        allowed=", ".join(streams) or "(no streams)",
        instead=f"{file}:{close}" if close else "",
    )
