"""Batches of a checkpoint that are run again, with the query of a file."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.cli.loading import NamedOutputs, find_outputs
from headrace.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.tracing.traced import TracedRun

__all__ = ["trace_again"]


def trace_again(
    checkpoint: str, target: str, batches: range | None = None, *, state: bool = False
) -> tuple[str, TracedRun]:
    """The name of the stream of a file, and the trace of its batches: by default all that are kept.

    If a script ran as a whole, all its outputs are run again, and the trace is that of the named one. A Python file
    does not say which of its streams ran together, so `FILE.py:A,B` names them; the trace is of all, its output the
    first.
    """
    # Imported here, since `headrace --help` does not need it.
    from headrace.api.tracing import traced_again
    from headrace.host.saved.folder import SavedCheckpoint
    from headrace.host.saved.replay import BatchRange, output_names

    found = find_outputs(target)
    chosen = None if batches is None else BatchRange(batches[0], batches[-1])
    names = output_names(SavedCheckpoint(checkpoint, keep=True).about())
    _check_outputs(found, target, names)
    if len(names) == 1 and found.of_script:
        try:
            return found.name, traced_again(checkpoint, [(found.stream.node, found.sink)], chosen, state=state)
        except CheckpointError:
            with suppress(CheckpointError):  # run by its name, a stream has no sink
                return found.name, traced_again(checkpoint, [(found.stream.node, None)], chosen, state=state)
            raise
    pairs = [(stream.node, sink) for _, stream, sink in found.outputs]
    place = found.place if found.of_script else None
    return found.name, traced_again(checkpoint, pairs, chosen, state=state, output=place)


def _check_outputs(found: NamedOutputs, target: str, names: Sequence[str]) -> None:
    """Raise if a target does not have the outputs of a checkpoint, with these names."""
    # Imported here, since `headrace --help` does not need it.
    from headrace.display.words import counted

    if found.of_script:
        if len(names) > 1 and found.place is None:
            raise CheckpointError(
                f"{found.name!r} is none of the outputs of this checkpoint",
                given=target,
                allowed=", ".join(name for name, _, _ in found.outputs),
            )
    elif len(found.outputs) != len(names):
        raise CheckpointError(
            f"the query of this checkpoint has {counted(len(names), 'output')}",
            given=target,
            allowed=", ".join(names),
            instead="FILE.py:A,B with all its streams, in the order of the start; the first is the one in question"
            if len(names) > 1
            else "FILE.py:NAME with one name",
        )
