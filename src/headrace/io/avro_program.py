"""Schemas of Avro as programs of the machine that reads datums.

The program follows a datum through all its parts, in the order of the schema. Parts at wanted places get slots; all
others are skipped. A record in which nothing is wanted is a routine that is called, so that types may contain
themselves, and a type that is used often is compiled once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from headrace.errors import SchemaError
from headrace.io import avro_machine as machine

__all__ = ["PRIMITIVES", "AvroProgram", "AvroSlot", "Path", "parsed_schema", "record_fields"]

#: The names of the fields that lead to a part of a datum.
Path = tuple[str, ...]
PRIMITIVES = {
    "boolean": machine.BOOLEAN, "int": machine.INT, "long": machine.LONG, "float": machine.FLOAT,
    "double": machine.DOUBLE, "bytes": machine.BYTES, "string": machine.BYTES,
}  # fmt: skip
_DEEPEST = 8


@lru_cache(maxsize=256)
def parsed_schema(text: str) -> Any:
    """A schema from its JSON text; a bare name such as `string` is a schema too."""
    try:
        return json.loads(text)
    except ValueError:
        if text.strip() in PRIMITIVES:
            return text.strip()
        raise SchemaError("the Avro schema is not JSON", given=text, instead='{"type": "record", …}') from None


def record_fields(schema: Any, envelope: str = "") -> list[str]:
    """The names of a record's fields; with an envelope, of the row that its changes describe."""
    fields: list[Any] = schema["fields"] if isinstance(schema, dict) and schema.get("type") == "record" else []
    if not envelope:
        return [field["name"] for field in fields]
    # The first image defines the type of the row, and the second one names it.
    images = [field["type"] for field in fields if field["name"] in ("before", "after")]
    kinds = [kind for image in images for kind in (image if isinstance(image, list) else [image])]
    rows = [kind for kind in kinds if isinstance(kind, dict) and kind.get("type") == "record"]
    return record_fields(rows[0]) if rows else []


@dataclass(frozen=True)
class AvroSlot:
    """A part of a datum that is kept: its instruction, its place, its type, and the list that it is an element of."""

    op: int
    path: Path
    type: Any
    of: int = -1


@dataclass
class AvroProgram:
    """A schema as a program that keeps the parts at `wanted` places."""

    wanted: frozenset[Path]
    present: frozenset[Path]
    code: list[list[int]] = field(default_factory=list)
    branches: list[int] = field(default_factory=list)
    slots: list[AvroSlot] = field(default_factory=list)
    unreadable: dict[Path, str] = field(default_factory=dict)
    names: dict[str, tuple[Any, str]] = field(default_factory=dict)
    calls: list[tuple[int, str]] = field(default_factory=list)

    def compile(self, schema: Any) -> None:
        """Emit the whole program."""
        self._part(schema, "", ())
        self._emit(machine.END)
        routines: dict[str, int] = {}
        while self.calls:  # types that are skipped are routines; one may call others
            at, name = self.calls.pop()
            if name not in routines:
                routines[name] = len(self.code)
                self._body(*self.names[name], None)
                self._emit(machine.RETURN)
            self.code[at][2] = routines[name]

    def _emit(self, op: int, slot: int = -1, x: int = 0, y: int = 0) -> int:
        self.code.append([op, slot, x, y])
        return len(self.code) - 1

    def _slot(self, op: int, path: Path, type: Any, of: int = -1) -> int:
        self.slots.append(AvroSlot(op, path, type, of))
        return len(self.slots) - 1

    def _wants(self, path: Path | None) -> bool:
        return path is not None and any(place[: len(path)] == path for place in self.wanted | self.present)

    def _part(self, schema: Any, space: str, path: Path | None, slot: int = -1) -> None:
        """Emit the instructions of a part; it is skipped if nothing in it is wanted."""
        if isinstance(schema, list):
            return self._union(schema, space, path, slot)
        kind = schema if isinstance(schema, str) else schema.get("type")
        if isinstance(kind, (dict, list)):
            return self._part(kind, space, path, slot)
        if isinstance(schema, str) and kind not in PRIMITIVES and kind != "null":
            return self._named(kind, space, path, slot)
        if isinstance(schema, dict) and "name" in schema and kind in ("record", "error", "enum", "fixed"):
            name, space = _full_name(schema, space)
            self.names[name] = (schema, space)
            if kind in ("record", "error") and not self._wants(path):
                self._find_names(schema, space)
                self.calls.append((self._emit(machine.CALL), name))
                return None
        return self._body(schema, space, path, slot)

    def _find_names(self, schema: Any, space: str) -> None:
        """Note the types that are defined inside a type that is skipped."""
        if isinstance(schema, list):
            for branch in schema:
                self._find_names(branch, space)
        elif isinstance(schema, dict):
            if "name" in schema and schema.get("type") in ("record", "error", "enum", "fixed"):
                name, space = _full_name(schema, space)
                self.names[name] = (schema, space)
            for part in schema.get("fields", []):
                self._find_names(part.get("type"), space)
            for inner in ("type", "items", "values"):
                if isinstance(schema.get(inner), (dict, list)):
                    self._find_names(schema[inner], space)

    def _named(self, kind: str, space: str, path: Path | None, slot: int) -> None:
        name = kind if "." in kind or not space else f"{space}.{kind}"
        name = name if name in self.names else kind
        if name not in self.names:
            raise SchemaError(
                f"the Avro schema uses an unknown type {kind!r}", given=kind, allowed="types defined before"
            )
        schema, space = self.names[name]
        if schema["type"] in ("record", "error") and (not self._wants(path) or len(path or ()) > _DEEPEST):
            self.calls.append((self._emit(machine.CALL), name))
        else:
            self._body(schema, space, path, slot)

    def _body(self, schema: Any, space: str, path: Path | None, slot: int = -1) -> None:
        kind = schema if isinstance(schema, str) else schema.get("type")
        if kind in ("record", "error"):
            self._record(schema, space, path)
        elif kind in ("array", "map"):
            self._list(schema, space, path)
        elif kind == "null":
            self._emit(machine.NULL, slot)
        elif kind in PRIMITIVES or kind in ("enum", "fixed"):
            op = {"enum": machine.ENUM, "fixed": machine.FIXED}.get(kind) or PRIMITIVES[kind]
            if slot < 0 and path in self.wanted:
                slot = self._slot(op, path or (), schema)
            x = len(schema["symbols"]) if kind == "enum" else schema["size"] if kind == "fixed" else 0
            self._emit(op, slot, x)
        else:
            raise SchemaError(f"the Avro schema has an unknown type {kind!r}", given=str(kind))

    def _record(self, schema: Any, space: str, path: Path | None) -> None:
        if path in self.wanted:
            self.unreadable[path or ()] = "a record"
        if path in self.present:
            self._emit(machine.PRESENT, self._slot(machine.PRESENT, path or (), schema))
        for part in schema["fields"]:
            inner = None if path is None else (*path, part["name"])
            self._part(part["type"], space, inner if self._wants(inner) else None)

    def _union(self, schema: list[Any], space: str, path: Path | None, slot: int) -> None:
        table = len(self.branches)
        self.branches += [0] * len(schema)
        self._emit(machine.UNION, -1, table, len(schema))
        jumps = []
        for i, branch in enumerate(schema):
            self.branches[table + i] = len(self.code)
            self._part(branch, space, path, slot)
            jumps.append(self._emit(machine.JUMP))
        for jump in jumps:
            self.code[jump][2] = len(self.code)

    def _list(self, schema: Any, space: str, path: Path | None) -> None:
        items = schema["items"] if schema["type"] == "array" else schema["values"]
        slot = element = -1
        if path in self.wanted:
            leaf = _leaf(items, self.names, space) if schema["type"] == "array" else None
            if leaf is None:
                self.unreadable[path or ()] = f"a {schema['type']}"
            else:
                slot = self._slot(machine.LOOP, path or (), schema)
                element = self._slot(leaf[0], path or (), leaf[1], slot)
        loop = self._emit(machine.LOOP, slot, 0, 0)
        if schema["type"] == "map":
            self._emit(machine.BYTES)
        self._part(items, space, None, element)
        self._emit(machine.NEXT, -1, loop + 1)
        self.code[loop][2:] = [len(self.code), int(schema["type"] == "array" and self._may_be_empty(items, space, ()))]

    def _may_be_empty(self, items: Any, space: str, inside: tuple[str, ...]) -> bool:
        """Whether elements have no bytes: nulls, and records of nothing else."""
        kind = items.get("type") if isinstance(items, dict) else items
        if isinstance(kind, dict):
            return self._may_be_empty(kind, space, inside)
        if isinstance(kind, str) and isinstance(items, str) and kind not in PRIMITIVES and kind != "null":
            name = f"{space}.{kind}" if f"{space}.{kind}" in self.names else kind
            items, space = self.names.get(name, (items, space))
            kind = items.get("type") if isinstance(items, dict) and name not in inside else ""
            inside = (*inside, name)
        if kind in ("record", "error"):
            space = _full_name(items, space)[1]
            return all(self._may_be_empty(part["type"], space, inside) for part in items["fields"])
        return kind == "null" or (kind == "fixed" and items["size"] == 0)


def _full_name(schema: Any, space: str) -> tuple[str, str]:
    """The full name of a type and the namespace of the types inside it."""
    name: str = schema["name"]
    if "." in name:
        return name, name.rpartition(".")[0]
    space = schema.get("namespace", space) or ""
    return (f"{space}.{name}" if space else name), space


def _leaf(items: Any, names: dict[str, tuple[Any, str]], space: str) -> tuple[int, Any] | None:
    """The instruction and the type of elements that are plain, or plain or null."""
    branches = [branch for branch in items if branch != "null"] if isinstance(items, list) else [items]
    if len(branches) != 1 or isinstance(branches[0], list):
        return None
    kind = branches[0] if isinstance(branches[0], str) else branches[0].get("type")
    if isinstance(branches[0], str) and kind not in PRIMITIVES:
        found = names.get(f"{space}.{kind}") or names.get(kind)
        branches, kind = ([found[0]], found[0]["type"]) if found else (branches, kind)
    op = {"enum": machine.ENUM, "fixed": machine.FIXED}.get(kind) or PRIMITIVES.get(kind)
    return None if op is None else (op, branches[0])
