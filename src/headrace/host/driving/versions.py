"""Which checkpoints this Headrace can read: the table of their formats, and the rule.

The rule: a version reads what the last two minor versions before it and all versions of its own minor version have
written. A format that is no longer written stays in `FORMATS` for as long as the rule needs it, with the step that
turns its description into that of the next format. Formats that are older, and those that a newer Headrace has
written, are refused with the versions that can read them.

The files of the store have a format of their own (`headrace.store.bundle.VERSION`), which their heads contain: a reader
of a format reads all earlier ones. `tests/kept` has checkpoints of every format and every version of the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.errors import CheckpointError
from headrace.modules.registry import package_offering
from headrace.plan.per_window import PerWindow
from headrace.stages.cut import Line
from headrace.version import VERSION

__all__ = ["FORMAT", "FORMATS", "CheckpointFormat", "module_versions", "readable"]

#: The format that is written. It changes when earlier versions of Headrace cannot read what is stored.
FORMAT = 3
_Description = dict[str, Any]
#: What every description has, and what later versions added, with its type.
_PARTS: dict[str, type] = {
    "fingerprint": str, "plan": list, "buckets": int, "sources": list, "sinks": list, "owner": str,
}  # fmt: skip
_ADDED_PARTS: dict[str, type] = {
    "dates": list, "source_dates": list, "operators": dict, "nodes": list, "bases": list, "origins": dict,
    "places": dict, "outputs": list, "modules": list, "services": list, "left_out": list,
}  # fmt: skip
#: What the lists and dictionaries have; the others have texts.
_ENTRIES: dict[str, type] = {"dates": bool, "source_dates": bool, "outputs": dict, "operators": dict}
#: What entries that are dictionaries have.
_MEMBERS: dict[str, dict[str, type]] = {
    "outputs": {"stream": str, "place": str, "form": str},
    "operators": {"operator": str, "columns": dict, "merged": dict, "spread": bool},
}
#: Parts with one entry for each operator, each output, each source.
_ALIKE = (("plan", "nodes", "bases"), ("sinks", "dates", "outputs"), ("sources", "source_dates", "origins", "places"))
#: Parts by the fingerprints of operators.
_BY_NODE = ("origins", "places", "operators")


@dataclass(frozen=True)
class CheckpointFormat:
    """A format of checkpoints: the versions of Headrace that write it and read it, and how this version reads it."""

    number: int
    written_by: str
    read_by: str
    #: Turns the description into that of the next format; None for the format that is written, and for those that
    #: this version does not read.
    step: Callable[[_Description], _Description] | None = None

    @property
    def is_read(self) -> bool:
        return self.step is not None or self.number == FORMAT


#: In formats 1 and 2, before there was a segment store, Spark kept the state: no step can make one of the other.
FORMATS: Mapping[int, CheckpointFormat] = {
    known.number: known
    for known in (
        CheckpointFormat(1, "a preview of Headrace 0.1.0", "that preview only"),
        CheckpointFormat(2, "a preview of Headrace 0.1.0", "that preview only"),
        CheckpointFormat(FORMAT, "Headrace 0.1.0 and later", "Headrace 0.1.0 and later"),
    )
}


def readable(place: str, about: _Description) -> _Description:
    """The description of a checkpoint as the current format has it; `CheckpointError` if it cannot be read."""
    number = about.get("format")
    while number != FORMAT:
        known = FORMATS.get(number) if isinstance(number, int) else None
        if known is None or known.step is None:
            raise _unreadable(place, about, known)
        about = known.step(about)
        number = about["format"]
    _check_parts(place, about)
    return about


def _check_parts(place: str, about: _Description) -> None:
    """Refuse a description that somebody has changed, or that has lost a part."""
    expected = _PARTS | {name: kind for name, kind in _ADDED_PARTS.items() if name in about}
    for name, kind in expected.items():
        if not isinstance(about.get(name), kind):
            raise _damaged(place, name, "has another type" if name in about else "is missing")
        if not _is_whole(name, about[name]):
            raise _damaged(place, name, "has another content")
    for first, *others in _ALIKE:
        for name in others:
            if name in about and len(about[name]) != len(about[first]):
                raise _damaged(place, name, f"has {len(about[name])} entries, and {first!r} {len(about[first])}")
    for name in _BY_NODE if "nodes" in about else ():
        if name in about and not set(about[name]) <= set(about["nodes"]):
            raise _damaged(place, name, "names operators that are not in 'nodes'")


def _is_whole(name: str, part: object) -> bool:
    """Whether a part has entries of the right types."""
    if name == "buckets":
        return not isinstance(part, bool) and part > 0  # type: ignore[operator] # it is a number
    if not isinstance(part, (list, dict)):
        return True
    entries = part if isinstance(part, list) else list(part.values())
    if not all(isinstance(entry, _ENTRIES.get(name, str)) for entry in entries):
        return False
    members = _MEMBERS.get(name, {})
    return all(isinstance(entry.get(one), kind) for entry in entries for one, kind in members.items())


def _damaged(place: str, name: str, what: str) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint's headrace.json is damaged: {name!r} {what}",
        given=f"{place}/headrace.json",
        instead="restore the file, or another checkpoint directory and new sinks",
    )


def _unreadable(place: str, about: _Description, known: CheckpointFormat | None) -> CheckpointError:
    number = about.get("format")
    newer = isinstance(number, int) and number > FORMAT
    unknown = f"a Headrace after {VERSION}" if newer else "an unknown program"
    writer = f"Headrace {about['headrace']}" if "headrace" in about else known.written_by if known else unknown
    readers = known.read_by if known else f"{writer}, and later ones that still read format {number}"
    afresh = "another checkpoint directory, or delete this one to start afresh"
    read = [f"{one.number} ({one.written_by})" for one in FORMATS.values() if one.is_read]
    return CheckpointError(
        "the checkpoint was written by another version of Headrace",
        given=f"{place}: format {number}, written by {writer}; this is Headrace {VERSION}",
        allowed=f"format {', '.join(read)}; format {number} is read by {readers}",
        instead=f"{readers}; or {afresh}" if newer else afresh,
    )


def module_versions(line: Line) -> list[str]:
    """The modules of a query, each with the hash of its code, and with the version of the package that offers it."""
    operators = [getattr(node, "aggregate", node) for node in line.nodes]  # an aggregate may run in several steps
    modules = {str(module): module for node in operators if isinstance(node, PerWindow) for module in node.modules}
    packages = {text: package_offering(type(module)) for text, module in modules.items()}
    of = {text: f", of {package}" if package else "" for text, package in packages.items()}
    return [f"module {text}, code {module.mark}{of[text]}" for text, module in sorted(modules.items())]
