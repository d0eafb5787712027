"""The plan's node: an operator and its inputs, from which schema, properties and progress are derived.

A plan is a graph of nodes that point at their inputs. Nodes hold what the user asked for and nothing that runs: kernels
are in `operators/`, one for each node class. A plan that makes no sense cannot be built: every node checks itself
against the schema of its inputs. Two nodes are equal when they would compute the same; `fingerprint` is that, as text.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from headrace.errors import PlanError, SchemaError
from headrace.expr import Expr, col
from headrace.plan.liveliness import Liveliness
from headrace.progress import Progress
from headrace.schema import NUMBERED, RESERVED, STAMPS, Schema

__all__ = ["Node", "OneInput", "Properties", "Reach", "refuse_reserved", "renamed", "walk"]

#: What one output of an operator follows from: from one event, as long as that lasts or moved to a later time; from one
#: event, at other times, or at times before it; from a pair of events, while both last; from all that holds at an
#: instant; or from any part of its inputs.
Reach = Literal["event", "event, another time", "event, back in time", "pair", "instant", "streams"]


@dataclass(frozen=True)
class Properties:
    """What is known about a stream before it runs.

    `insert_only`: nothing is ever taken back. `settled`: lifetimes never change once given, so an event is final as
    soon as the CTI passes its LE (rule 3.5). `keys`: the columns whose hash, in this order, decides a row's bucket, in
    whatever stage the node runs; None when nothing is known; () when everything is in one bucket.
    """

    insert_only: bool
    settled: bool
    keys: tuple[str, ...] | None = None


if TYPE_CHECKING:
    _Derived = cached_property
else:

    class _Derived(cached_property):
        """A cached property of a node that follows from that of its inputs: these are asked first, from the bottom.

        So a plan may be as deep as it likes: no call waits for more than the one below it.
        """

        def __get__(self, node: Any, owner: type[Any] | None = None) -> Any:
            name = self.attrname
            assert name is not None
            if node is None or name in node.__dict__:
                return super().__get__(node, owner)
            waiting = [child for child in node.inputs if name not in child.__dict__]
            while waiting:
                below = [child for child in waiting[-1].inputs if name not in child.__dict__]
                if below:
                    waiting += below
                else:
                    getattr(waiting.pop(), name)
            return super().__get__(node, owner)


@dataclass(frozen=True, eq=False)
class Node(ABC):
    """An operator and its inputs.

    What others have to know of it before it runs is declared here: a class that leaves an abstract member out cannot be
    built.
    """

    #: Linear operators may run on any part of their input, so they run wherever their input is.
    linear: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        for name in ("schema", "properties"):
            own = cls.__dict__.get(name)
            if isinstance(own, cached_property):
                derived = _Derived(own.func)
                derived.__set_name__(cls, name)
                setattr(cls, name, derived)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    @property
    def inside(self) -> tuple[Node, ...]:
        """Plans that are no inputs and that it runs by itself: the body of a loop."""
        return ()

    @_Derived
    def schema(self) -> Schema:
        """The payload this node gives."""
        return self.inputs[0].schema

    @_Derived
    def properties(self) -> Properties:
        return self.inputs[0].properties

    @property
    @abstractmethod
    def reach(self) -> Reach:
        """What one of its outputs follows from."""

    @property
    def by_event(self) -> bool:
        """Whether each output is made of one event alone: of a final event it makes a final one."""
        return self.reach.startswith("event")

    @property
    def pairwise(self) -> bool:
        """Whether it gives more for more, of each event or pair of events alone, and never reaches back in time."""
        return self.reach in ("event", "event, another time", "pair")

    @property
    def instant_wise(self) -> bool:
        """Whether what it gives at an instant follows from what it is given then, whatever lifetimes say else."""
        return self.reach in ("event", "pair", "instant")

    @property
    def instants(self) -> bool | None:
        """Whether all its events are instants; None: as far as those of its inputs are. False says that none knows."""
        return False

    @property
    def ends(self) -> bool | None:
        """Whether none of its events lasts for ever; None and False as for `instants`."""
        return False

    @property
    @abstractmethod
    def liveliness(self) -> Liveliness:
        """Its output CTI, what it remembers, and what would improve either, for people (rule 6.4)."""

    @abstractmethod
    def uses(self, side: int, needed: set[str]) -> set[str]:
        """The columns of one input that it uses, when its readers use `needed` of its own."""

    def all_of(self, side: int) -> set[str]:
        """All columns of one input, for operators that tell events apart or put them in order."""
        return set(self.inputs[side].schema.names)

    @property
    def needs(self) -> tuple[str, ...] | None:
        """Columns of the input that rows must be brought together by; () for all in one place, None for no need."""
        return None

    def need(self, position: int) -> tuple[str, ...] | None:  # noqa: ARG002 - for operators whose inputs differ
        """As `needs`, of one input."""
        return self.needs

    def progress(self, inputs: list[Progress]) -> Progress:
        """The output's progress, for operators without state."""
        return inputs[0]

    def by_answer(self) -> Node | None:
        """The same operator with each answer given once, when it is final, if it knows that before its CTI tells.

        None where the output CTI alone tells what is final (rule 3.5).
        """
        return None

    def side(self) -> Node | None:
        """The stream of what it diverts, if it diverts anything."""
        return None

    def describe(self) -> str:
        """One line that says everything the user asked for."""
        return type(self).__name__

    def with_inputs(self, *inputs: Node) -> Node:
        """The same operator over other inputs."""
        raise NotImplementedError

    def lifted(self, inputs: tuple[Node, ...], keys: tuple[str, ...], derived: tuple[bool, ...]) -> Node:  # noqa: ARG002
        """The same operator for all groups at once, inside `group_by(...).apply`.

        The inputs that are `derived` from the group's stream, at least one, now have the columns `keys` in front of
        their own: they tell the groups apart, are found nowhere else, and may be null. What is returned must have them
        in front of its own columns too (`keys_first` puts them there), and must keep groups apart by them: as keys of
        their own in front of the operator's, say. Where the payload is passed on and all of its columns count alike,
        the operator stays as it is. An input that is not derived is the same for every group, and may make no sense.
        """
        raise PlanError(
            f"group_by(...).apply cannot yet hold {type(self).__name__}",
            given=self.describe(),
            allowed="other operators",
            instead="put it before group_by(...), or behind apply(...)",
        )

    @property
    def marks(self) -> str:
        """What tells it from an operator of the same description: the code of modules, say."""
        return ""

    @_Derived
    def fingerprint(self) -> str:
        """A short text that is equal exactly for plans that compute the same."""
        text = "\n".join([self.describe(), self.marks, str(self.schema), *(node.fingerprint for node in self.inputs)])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)


def walk(*roots: Node) -> Iterator[Node]:
    """Every node once, inputs before their readers."""
    seen: set[str] = set()
    for root in roots:
        waiting = [(root, iter(root.inputs))] if root.fingerprint not in seen else []
        while waiting:
            node, inputs = waiting[-1]
            child = next((one for one in inputs if one.fingerprint not in seen), None)
            if child is not None:
                waiting.append((child, iter(child.inputs)))
            else:
                waiting.pop()
                seen.add(node.fingerprint)
                yield node


def refuse_reserved(schema: Schema, below: Schema | None = None) -> None:
    """Refuse payload columns with names that the engine gives to an event's own parts.

    Only the stamps of ingress, and numbers of tuples, pass where they come from `below`.
    """
    for column in schema:
        if below is not None and column.name in below and (column.name in STAMPS or column.name in NUMBERED):
            continue
        if column.name in RESERVED or column.name.startswith("__"):
            raise SchemaError(
                f"a payload column may not be named {column.name!r}",
                given=str(schema),
                allowed=f"any name but {', '.join(RESERVED)} and those that begin with '__'",
                instead=f"select(..., {column.name}_=col({column.name!r}))",
            )


def renamed(keys: tuple[str, ...] | None, outputs: tuple[tuple[str, Expr], ...]) -> tuple[str, ...] | None:
    """What columns that rows are together by are called in the output; None when one of them is gone."""
    new_names = {str(expr): name for name, expr in reversed(outputs)}
    renamed = [new_names.get(str(col(key))) for key in keys or ()]
    return None if keys is None or None in renamed else tuple(name for name in renamed if name)


@dataclass(frozen=True, eq=False)
class OneInput(Node):
    """An operator with one input."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def with_inputs(self, *inputs: Node) -> Node:
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "input"}
        return type(self)(inputs[0], **values)
