"""Nodes of a plan: an operator and its inputs, from which schema, properties and progress are derived.

A plan is a graph of nodes that point at their inputs. Nodes describe the query and contain no code that runs: kernels
are in `operators/`, one for each node class. An invalid plan cannot be built: every node checks itself against the
schema of its inputs. Two nodes are equal if they compute the same; `fingerprint` expresses this as text.
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

#: The inputs that determine one output of an operator: one event, during its lifetime or moved to a later time; one
#: event, at other times, or at times before it; a pair of events, while both last; all events alive at an instant; or
#: any part of the inputs.
Reach = Literal["event", "event, another time", "event, back in time", "pair", "instant", "streams"]


@dataclass(frozen=True)
class Properties:
    """Properties of a stream that are known before it runs.

    `insert_only`: there are no retractions. `settled`: no lifetime changes once the CTI has passed its LE, so an event
    is final then (rule 3.5). `keys`: the columns whose hash, in this order, decides a row's bucket, in any
    stage in which the node runs; None if unknown; () if all rows are in one bucket.
    """

    insert_only: bool
    settled: bool
    keys: tuple[str, ...] | None = None


if TYPE_CHECKING:
    _Derived = cached_property
else:

    class _Derived(cached_property):
        """A cached property of a node that follows from that of its inputs, which are computed first, bottom up.

        So a plan may have any depth without deep recursion.
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

    The members declare what other parts need to know before the operator runs; a class without one of the abstract
    members cannot be instantiated.
    """

    #: Linear operators may run on any part of their input, so they run wherever their input is.
    linear: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        for name in ("schema", "properties", "dates", "all_instants"):
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
        """Plans that the operator runs itself and that are not inputs: the body of a loop."""
        return ()

    @_Derived
    def schema(self) -> Schema:
        """The payload columns of the output."""
        return self.inputs[0].schema

    @_Derived
    def properties(self) -> Properties:
        return self.inputs[0].properties

    @_Derived
    def dates(self) -> bool:
        """Whether its times are dates, which users see as UTC timestamps, and not plain numbers (rule 1.1).

        All times count the same ticks, so streams of both kinds can be combined; then numbers are taken as dates.
        """
        return any(node.dates for node in self.inputs)

    @property
    @abstractmethod
    def reach(self) -> Reach:
        """The inputs that determine one output."""

    @property
    def by_event(self) -> bool:
        """Whether each output follows from one event: a final event gives a final output."""
        return self.reach.startswith("event")

    @property
    def pairwise(self) -> bool:
        """Whether outputs follow from single events or pairs, never back in time: more input gives more output."""
        return self.reach in ("event", "event, another time", "pair")

    @property
    def instant_wise(self) -> bool:
        """Whether the output at an instant follows from the input at that instant alone."""
        return self.reach in ("event", "pair", "instant")

    @property
    def instants(self) -> bool | None:
        """Whether all its events are instants; None: if those of its inputs are; False: unknown."""
        return False

    @_Derived
    def all_instants(self) -> bool:
        """Whether the plan shows that all its events are instants, by `instants` of its operators."""
        return all(node.all_instants for node in self.inputs) if self.instants is None else self.instants

    @property
    def ends(self) -> bool | None:
        """Whether all its events end; None and False as for `instants`."""
        return False

    @property
    @abstractmethod
    def liveliness(self) -> Liveliness:
        """Its output CTI, its state, and advice to improve either, as text for users (rule 6.4)."""

    @abstractmethod
    def uses(self, side: int, needed: set[str]) -> set[str]:
        """The columns of one input that it uses, if its readers use `needed` of its output."""

    def all_of(self, side: int) -> set[str]:
        """All columns of one input, for operators that compare or order events."""
        return set(self.inputs[side].schema.names)

    @property
    def needs(self) -> tuple[str, ...] | None:
        """The columns of the input by which rows must be brought together; (): all in one bucket; None: not at all."""
        return None

    def need(self, position: int) -> tuple[str, ...] | None:  # noqa: ARG002 - for operators whose inputs differ
        """`needs` for one input."""
        return self.needs

    def progress(self, inputs: list[Progress]) -> Progress:
        """The output's progress, for operators without state."""
        return inputs[0]

    def by_answer(self) -> Node | None:
        """The same operator giving each answer once, when it is final, if it knows that before its output CTI does.

        None where only the output CTI shows what is final (rule 3.5).
        """
        return None

    def side(self) -> Node | None:
        """The stream of the rows or windows that it diverts, if it diverts any."""
        return None

    def describe(self) -> str:
        """The operator with all its arguments, in one line."""
        return type(self).__name__

    def with_inputs(self, *inputs: Node) -> Node:
        """The same operator over other inputs."""
        raise NotImplementedError

    def lifted(self, inputs: tuple[Node, ...], keys: tuple[str, ...], derived: tuple[bool, ...]) -> Node:  # noqa: ARG002
        """The same operator for all groups at once, inside `group_by(...).apply`.

        The inputs that are `derived` from the group's stream, at least one, have the columns `keys` in front of their
        own. These identify the groups, have names that no other column has, and may be null. The result must have them
        in front too (`keys_first` puts them there), and must keep groups apart by them: for instance as additional keys
        in front of the operator's. An operator that passes the payload on and treats all columns alike stays as it is.
        An input that is not derived is the same for every group, and may be refused.
        """
        raise PlanError(
            f"group_by(...).apply cannot yet hold {type(self).__name__}",
            given=self.describe(),
            allowed="other operators",
            instead="put it before group_by(...), or after apply(...)",
        )

    @property
    def marks(self) -> str:
        """What distinguishes operators with the same description, such as the code of modules."""
        return ""

    @_Derived
    def fingerprint(self) -> str:
        """A short text that is equal for plans that compute the same, and for no others."""
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
            child = next((node for node in inputs if node.fingerprint not in seen), None)
            if child is not None:
                waiting.append((child, iter(child.inputs)))
            else:
                waiting.pop()
                seen.add(node.fingerprint)
                yield node


def refuse_reserved(schema: Schema, below: Schema | None = None) -> None:
    """Refuse payload columns with the names of parts of an event.

    Only the stamps of ingress and the numbers of tuples are allowed, if they come from `below`.
    """
    for column in schema:
        if below is not None and column.name in below and (column.name in STAMPS or column.name in NUMBERED):
            continue
        if column.name in RESERVED or column.name.startswith("__"):
            raise SchemaError(
                f"a payload column may not be named {column.name!r}",
                given=str(schema),
                allowed=f"any name but {', '.join(RESERVED)} and those that begin with '__'",
                instead=f"another name, such as {(column.name.strip('_') or 'column') + '_'}",
            )


def renamed(keys: tuple[str, ...] | None, outputs: tuple[tuple[str, Expr], ...]) -> tuple[str, ...] | None:
    """The output names of the columns by which rows are together; None if one of them is missing."""
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
