"""Load the target of a command: a stream of a Python file, or the queries of a SQL script."""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.errors import HeadraceError, PlanError, SourceError, nearest

if TYPE_CHECKING:
    from headrace.api.stream import Stream
    from headrace.sql.scripts import Script
    from headrace.sql.session import Outcome, SqlSession

__all__ = [
    "LoadedQuery",
    "NamedOutputs",
    "Target",
    "endless",
    "find",
    "find_outputs",
    "find_stream",
    "folder_of",
    "load_file",
    "load_script",
    "read_text",
]

_TARGET = re.compile(r"(?P<file>.+?\.(?P<kind>py|sql))(?::(?P<name>.+))?")
_IN_PYTHON = "vwap = ticks.where(...)"
_ALLOWED = "FILE.py, FILE.sql, or either with :NAME"

#: The argument that names the target of a command.
Target = Annotated[
    str,
    typer.Argument(
        metavar="FILE[:NAME]",
        help="A Python file or a SQL script (FILE.py, FILE.sql), and the name of a stream or query in it.",
    ),
]


@dataclass(frozen=True)
class LoadedQuery:
    """The target of a command, run as one query: streams to print, and streams that go to sinks."""

    name: str
    queries: Mapping[str, Stream]
    deliveries: Mapping[str, tuple[Stream, Any]] = field(default_factory=dict)
    #: Whether the target is one stream, selected by name or the only one.
    single: bool = True
    #: For a script: its session with catalog and settings, and the outcomes of its statements.
    session: SqlSession | None = None
    outcomes: tuple[Outcome, ...] = ()


def find(target: str, roots: Sequence[Path] | None = None, *, absolute: bool = False) -> LoadedQuery:
    """Load a target: one stream, or all outputs of a script.

    With `roots`, a script may use files only there. With `absolute`, its paths do not depend on the current directory.
    """
    file, name = _parts(target)
    if file.suffix == ".py":
        found, stream = _in_python(file, name)
        return LoadedQuery(found, {found: stream})
    script = load_script(file, roots, absolute=absolute)
    if name is not None:
        stream = _named(name, _by_name(script), str(file))
        return LoadedQuery(name, {name: stream}, session=script.session)
    outputs = (script.queries, script.deliveries)
    return LoadedQuery(file.stem, *outputs, single=False, session=script.session, outcomes=script.outcomes)


def find_stream(target: str) -> tuple[str, Stream]:
    """The one stream that `FILE:NAME` names, or the only one that FILE could mean."""
    file, name = _parts(target)
    if file.suffix == ".py":
        return _in_python(file, name)
    return _in_script(load_script(file), file, name)


@dataclass(frozen=True)
class NamedOutputs:
    """A stream of a file, and the outputs with which it may have been started, in their order."""

    name: str
    stream: Stream
    #: Names, streams, and sinks where they are known. Of a Python file, those that the target names.
    outputs: Sequence[tuple[str, Stream, Any]]
    #: Whether the file is a script, which says what its outputs are.
    of_script: bool

    @property
    def place(self) -> int | None:
        """The place of the stream among the outputs; None if it is none of them."""
        return next((place for place, (name, _, _) in enumerate(self.outputs) if name == self.name), None)

    @property
    def sink(self) -> Any:
        """The sink of the stream in the file, if there is one."""
        return None if self.place is None else self.outputs[self.place][2]


def find_outputs(target: str) -> NamedOutputs:
    """The stream of `FILE:NAME` with the other outputs of its script; of `FILE.py:A,B` the first, with the others.

    Paths of a script do not depend on the current directory.
    """
    file, name = _parts(target)
    if file.suffix == ".py":
        streams = _streams_of(file)
        names = [_only(streams, file, _IN_PYTHON)[0]] if name is None else [part.strip() for part in name.split(",")]
        found = [(one, _named(one, streams, str(file)), None) for one in names]
        return NamedOutputs(*found[0][:2], found, of_script=False)
    script = load_script(file, absolute=True)
    outputs: list[tuple[str, Stream, Any]] = [(key, stream, None) for key, stream in script.queries.items()]
    outputs += [(key, stream, sink) for key, (stream, sink) in script.deliveries.items()]
    name, stream = _in_script(script, file, name)
    return NamedOutputs(name, stream, outputs, of_script=True)


def endless(streams: Iterable[Stream]) -> list[str]:
    """The inputs of these streams that have no end: hosts without a limit, and inputs that only Spark can read."""
    from headrace.io.origins import endless_origins

    return endless_origins(*(stream.node for stream in streams))


def folder_of(name: str) -> str:
    """Any name as the name of a folder."""
    return re.sub(r"[^\w-]", "_", name)


def load_file(file: Path) -> ModuleType:
    """Import a file as if from its own directory; `__name__` is the stem of the file, not `__main__`.

    The module is registered under that name, so that this and other processes can find its classes again. What the
    file raises is a `SourceError` that says where.
    """
    if not file.is_file():
        raise SourceError(f"there is no file {str(file)!r}", given=str(file))
    spec = importlib.util.spec_from_file_location(file.stem, file.absolute())
    if spec is None or spec.loader is None:
        raise SourceError(f"{str(file)!r} cannot be imported", given=str(file))
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.absolute().parent))
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
    except HeadraceError:
        raise
    except (Exception, SystemExit) as error:  # the user's own file may raise anything
        raise SourceError(
            f"this file cannot be run: {type(error).__name__}: {error}{_raised_in(error, file)}",
            given=str(file),
            instead="mend the file",
        ) from error
    return module


def _raised_in(error: BaseException, file: Path) -> str:
    """The line of a file that raised an error, and the place below it where it arose."""
    if isinstance(error, SyntaxError):  # its text names the place
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename) == file.absolute()][-1:]
    places = [f"line {frame.lineno} of {Path(frame.filename).name}" for frame in [*own, frames[-1]]]
    return f" ({', '.join(dict.fromkeys(places))})"


def load_script(file: Path, roots: Sequence[Path] | None = None, *, absolute: bool = False) -> Script:
    """Bind a script; relative paths in it start from its own directory."""
    # Imported here, since `headrace --help` does not need it.
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
        raise PlanError("this is neither a Python file nor a SQL script", given=target, allowed=_ALLOWED)
    return Path(match["file"]), match["name"]


def _in_python(file: Path, name: str | None) -> tuple[str, Stream]:
    streams = _streams_of(file)
    if name is not None:
        return name, _named(name, streams, str(file))
    return _only(streams, file, _IN_PYTHON)


def _streams_of(file: Path) -> dict[str, Stream]:
    """The streams at the top level of a Python file."""
    # Imported here, since `headrace --help` does not need it.
    from headrace.api.stream import Stream

    return {key: value for key, value in vars(load_file(file)).items() if isinstance(value, Stream)}


def _in_script(script: Script, file: Path, name: str | None) -> tuple[str, Stream]:
    if name is not None:
        return name, _named(name, _by_name(script), str(file))
    outputs = script.queries | {key: stream for key, (stream, _) in script.deliveries.items()}
    return _only(outputs or script.streams, file, "SELECT …")


def _by_name(script: Script) -> dict[str, Stream]:
    """The streams of a script by name; a query takes precedence over a stream of the same name."""
    return {**script.streams, **{name: stream for name, (stream, _) in script.deliveries.items()}, **script.queries}


def _only(streams: Mapping[str, Stream], file: Path, instead: str) -> tuple[str, Stream]:
    """The only stream that no other one reads."""
    if not streams:
        raise PlanError(f"there is no stream at the top level of {file}", given=str(file), instead=instead)
    unread = {name: stream for name, stream in streams.items() if not _is_read(stream, streams)}
    if len({stream.node for stream in unread.values()}) == 1:
        return next(iter(unread.items()))
    names = ", ".join(unread)
    raise PlanError("there are several streams in this file", given=names, instead=f"{file}:{next(iter(unread))}")


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
