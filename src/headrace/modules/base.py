"""Base classes of modules: a module is a class with two schemas and one method, or three (rules 6.1 and 6.2).

    class MyAverage(hr.Aggregate):
        \"\"\"The arithmetic mean.\"\"\"

        input = "value DOUBLE"
        output = "DOUBLE"

        def compute(self, values):
            return sum(values) / len(values)

`input` names the module's input fields and their types; the query says which columns they are. `output` is the type of
the answer, or the columns of an operator's outputs. Parameters are those of an ordinary `__init__`.

What a module sees:

- *time-insensitive* (the default): payloads only. With one input field `compute` gets a list of values, with several a
  list of named tuples.
- *time-sensitive* (`time_sensitive = True`): a list of events, named tuples of `le`, `re` and the fields, and the
  window, with `le` and `re`.

Items are sorted by start, end and value, so that answers do not depend on arrival; a module must not change the list.
Items can be pickled, so a state may keep them.

The *incremental* kinds keep one state per window, any picklable value, which the engine stores: `initial()` creates it,
`add(state, items)` and `remove(state, items)` return the next state (or change it and return None), and
`compute(state)` reads it. A state without `remove` is computed anew from all items.

An operator returns any number of outputs: dicts, tuples, or plain values for one column. They last as long as the
window; a time-sensitive operator may return `self.event(le, re, ...)` instead.
"""

from __future__ import annotations

import hashlib
import inspect
import keyword
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self

from headrace.errors import ModuleError
from headrace.expr import Expr, as_expr, col
from headrace.modules.fold import Folder, Incremental, Kind
from headrace.modules.folding import FrameCode, PaneCode
from headrace.modules.items import row_type
from headrace.schema import RESERVED, Schema, Type

__all__ = ["Aggregate", "Event", "IncrementalAggregate", "IncrementalOperator", "Module", "Operator", "Window"]

_SIMPLE = {"int": (int,), "float": (int, float), "str": (str,), "bool": (bool,)}


class Event(NamedTuple):
    """An output of a time-sensitive operator."""

    le: int
    re: int
    payload: Any


class Window(NamedTuple):
    """The window of a time-sensitive module: `[le, re)`."""

    le: int
    re: int


class Module:
    """The base of all modules: schemas, parameters and properties (rule 6.5)."""

    kind: ClassVar[Literal["aggregate", "operator"]]
    incremental: ClassVar[bool] = False

    #: The input fields, as `"price DOUBLE, quantity LONG"`.
    input: ClassVar[str | Schema] = ""
    #: The type of the answer, or an operator's columns.
    output: ClassVar[str | Schema | Type] = ""
    #: Whether it sees lifetimes and the window.
    time_sensitive: ClassVar[bool] = False
    #: Whether it uses no end after its window's: the engine then hides these, and does not wait for them.
    within_window: ClassVar[bool] = False
    #: Whether equal input gives equal output; a module with False is refused.
    deterministic: ClassVar[bool] = True
    #: Whether its state depends on the order of items: it is then computed anew, in order, after every change.
    order_sensitive: ClassVar[bool] = False
    #: Output columns that a filter may use before the module instead of after it.
    filter_through: ClassVar[tuple[str, ...]] = ()

    _arguments: inspect.BoundArguments | None

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        cls._check_definition()
        instance = super().__new__(cls)
        instance._arguments = cls._bound(args, kwargs)
        return instance

    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        bound = self._arguments
        return (bound.args, bound.kwargs) if bound is not None else ((), {})

    @classmethod
    def _bound(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments | None:
        """The parameters, by name; the error for a wrong one names the module."""
        if cls.__init__ is object.__init__:
            signature = inspect.Signature()
        else:
            parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
            signature = inspect.Signature(parameters)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ModuleError(
                f"{cls.__name__} cannot take these parameters: {error}",
                given=", ".join([*map(repr, args), *(f"{k}={v!r}" for k, v in kwargs.items())]) or "none",
                allowed=f"{cls.__name__}{signature}",
                instead=f"{cls.__name__}(...).of('column') to say which columns it takes",
            ) from None
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            cls._check_parameter(name, value, signature.parameters[name].annotation)
        return bound

    @classmethod
    def _check_parameter(cls, name: str, value: Any, annotation: Any) -> None:
        wanted = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
        allowed = _SIMPLE.get(wanted)
        if allowed and (not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed)):
            raise ModuleError(
                f"{cls.__name__}'s parameter {name} must be {wanted}", given=value, allowed=f"{name}: {wanted}"
            )

    @classmethod
    def _check_definition(cls) -> None:
        """Refuse an incomplete class; the error says what to write."""
        if not cls.input:
            raise ModuleError(
                f"{cls.__name__} has no input fields",
                given="no input",
                allowed="names and types",
                instead='input = "value DOUBLE"',
            )
        if not cls.output:
            raise ModuleError(
                f"{cls.__name__} has no output type",
                given="no output",
                allowed="a type, or names and types",
                instead='output = "DOUBLE"',
            )
        for method in cls._needed():
            if getattr(cls, method) is getattr(_BASES[cls.kind, cls.incremental], method, None):
                raise ModuleError(
                    f"{cls.__name__} has no method {method}",
                    given=cls.__name__,
                    allowed=", ".join(cls._needed()),
                    instead=f"def {method}(self, ...)",
                )
        cls._check_compute()
        if not cls.deterministic:
            raise ModuleError(
                f"{cls.__name__} is not deterministic",
                given="deterministic = False",
                allowed="modules whose output depends on their input alone",
                instead="pass what the output depends on as a field or a parameter",
            )

    @classmethod
    def _check_compute(cls) -> None:
        """Refuse a `compute` that does not accept its arguments."""
        arguments = ["state" if cls.incremental else "items", *(["window"] if cls.time_sensitive else [])]
        try:
            inspect.signature(cls.compute).bind(cls, *arguments)
        except TypeError as error:
            blind = "" if cls.time_sensitive else "; or time_sensitive = True, to see lifetimes and the window"
            raise ModuleError(
                f"{cls.__name__}'s compute cannot be called with {' and '.join(arguments)}: {error}",
                given=f"compute{inspect.signature(cls.compute)}",
                allowed=f"compute of a module that is {'' if cls.time_sensitive else 'not '}time-sensitive",
                instead=f"def compute(self, {', '.join(arguments)}){blind}",
            ) from None

    @classmethod
    def _needed(cls) -> tuple[str, ...]:
        return ("initial", "add", "compute") if cls.incremental else ("compute",)

    @cached_property
    def fields(self) -> Schema:
        """The input fields."""
        fields = Schema.of(self.input)
        for field in fields:
            # Items are named tuples: their fields are attributes.
            if field.name in RESERVED or field.name[0] == "_" or keyword.iskeyword(field.name):
                raise ModuleError(
                    f"an input field may not be named {field.name!r}",
                    given=str(fields),
                    allowed=f"names of attributes that do not begin with _, but not {', '.join(RESERVED)}",
                    instead=f"{field.name.strip('_')}_value",
                )
        return fields

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def doc(self) -> str:
        return inspect.getdoc(type(self)) or ""

    @property
    def takes_window(self) -> bool:
        """Whether `compute` has a parameter for the window."""
        parameters = inspect.signature(self.compute).parameters.values()
        return len([p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]) > 1

    @property
    def invertible(self) -> bool:
        """Whether items can be removed from its state."""
        return self.incremental and not self.order_sensitive and type(self).remove is not Module.remove

    @property
    def algebraic(self) -> bool:
        """Whether its states can be merged."""
        return self.incremental and type(self).merge is not Module.merge

    @property
    def composes(self) -> bool:
        """Whether its answers can be its items: the answer for several answers is the answer for all their items."""
        return False

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        """The answer or the outputs: `compute(items)`; for time-sensitive modules `compute(items, window)`."""
        raise NotImplementedError

    def initial(self) -> Any:
        """The state of a window without items."""
        raise NotImplementedError

    def add(self, state: Any, items: list[Any]) -> Any:
        """The state with more items."""
        raise NotImplementedError

    def remove(self, state: Any, items: list[Any]) -> Any:
        """The state without these items."""
        raise NotImplementedError

    def merge(self, state: Any, other: Any) -> Any:
        """The state of the items of both."""
        raise NotImplementedError

    def item(self, values: tuple[Any, ...]) -> Any:
        """An item of a time-insensitive module: a value, or a named tuple of several."""
        return values[0] if len(self.fields) == 1 else row_type(self.fields.names)._make(values)

    def stepwise(self) -> Module | None:
        """An incremental module with the same answers for items in order; None if it needs all items at once."""
        return self if self.incremental and not self.time_sensitive else None

    def by_slots(self, frame: Any, answers: Schema) -> Any:  # noqa: ARG002 - for those that have another way
        """Code that folds slots of tuples of all groups in one call; None if each group runs by itself."""
        return None

    def by_panes(self, pane: Any, window: Any) -> PaneCode | None:  # noqa: ARG002 - for those that have another way
        """Code that computes panes, and windows over their results, in one kernel; None if there is none."""
        return None

    def by_frames(self) -> FrameCode | str:
        """Code that computes frames of all groups in one call, or the reason why there is none."""
        return ""

    def folder(self, kind: Kind) -> Folder | None:
        """The folder that goes from tuple to tuple in windows of a kind; None if each window is computed anew."""
        folds = self.incremental and not self.time_sensitive and (kind == "unbounded" or self.invertible)
        return Incremental(self) if folds else None

    def mapping(self, columns: Iterable[Any], named: Mapping[str, Any]) -> dict[str, Expr]:
        """The expression of each input field: given in order, by name, or the column of the same name."""
        positional = list(columns)
        if len(positional) > len(self.fields) or set(named) - set(self.fields.names):
            raise ModuleError(
                f"{self} cannot take these columns",
                given=", ".join([*map(str, positional), *named]),
                allowed=str(self.fields),
                instead=f"of({', '.join(f'{name}={name!r}' for name in self.fields.names)})",
            )
        arguments = dict(zip(self.fields.names, positional, strict=False))
        for name in sorted(set(arguments) & set(named)):
            raise ModuleError(f"{self} gets {name} twice", given=[arguments[name], named[name]])
        arguments |= named
        return {
            name: col(arguments.get(name, name))
            if isinstance(arguments.get(name, name), str)
            else as_expr(arguments[name])
            for name in self.fields.names
        }

    def check_types(self, mapping: Mapping[str, Expr], schema: Schema) -> None:
        """Refuse columns whose types do not fit the input fields."""
        for field in self.fields:
            kind = mapping[field.name].type(schema)
            if not _fits(kind, field.type):
                raise ModuleError(
                    f"{self} takes {field.name} as {field.type.value}",
                    given=f"{mapping[field.name]} of type {kind.value}",
                    allowed=str(self.fields),
                    instead=f"{mapping[field.name]}.cast({field.type.value!r})",
                )

    @cached_property
    def mark(self) -> str:
        """A hash of the module's code."""
        parts = [f"{type(self).__module__}.{type(self).__qualname__}"]
        for base in type(self).__mro__:
            if base.__module__ == Module.__module__ or base is object:
                continue
            try:
                parts.append(inspect.getsource(base))
            except (OSError, TypeError):  # typed into a console: no source to read
                parts += [_bytecode(value) for _, value in sorted(vars(base).items())]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]

    def __str__(self) -> str:
        arguments = self._arguments.arguments if self._arguments is not None else {}
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"

    __repr__ = __str__


def _bytecode(value: Any) -> str:
    code = value if inspect.iscode(value) else getattr(value, "__code__", None)
    if code is None:
        return ""
    constants = [_bytecode(one) if inspect.iscode(one) else repr(one) for one in code.co_consts]
    return repr((code.co_code, code.co_names, constants))


def _fits(kind: Type, wanted: Type) -> bool:
    if kind is wanted or (kind.is_text and wanted.is_text):
        return True
    order = [Type.BYTE, Type.SHORT, Type.INT, Type.LONG, Type.DOUBLE]
    if kind is Type.FLOAT:
        return wanted is Type.DOUBLE
    return kind in order and wanted in order and order.index(kind) <= order.index(wanted)


class Aggregate(Module):
    """From the values, or the events, of a window to one value."""

    kind = "aggregate"

    @cached_property
    def gives(self) -> Type:
        """The type of its answer."""
        return self.output if isinstance(self.output, Type) else Type.parse(str(self.output))

    def of(self, *columns: Any, **named: Any) -> Expr:
        """The aggregate of these columns or expressions, for `aggregate(...)`."""
        if not isinstance(self, Aggregate):  # called on the class
            raise ModuleError("of needs an instance", given=self, instead="Module().of('column')")
        # Imported here because expressions over modules and modules import each other.
        from headrace.modules.call import ModuleCall

        return ModuleCall.of(self, self.mapping(columns, named))


class IncrementalAggregate(Aggregate):
    """An aggregate that keeps a state per window."""

    incremental = True


class Operator(Module):
    """From the payloads, or the events, of a window to any number of payloads, or events."""

    kind = "operator"

    @cached_property
    def gives(self) -> Schema:
        """The columns of its outputs."""
        if isinstance(self.output, Type) or " " not in str(self.output).strip():
            raise ModuleError(
                f"{self.name} must name its output columns",
                given=str(self.output),
                allowed="names and types",
                instead='output = "value DOUBLE"',
            )
        return Schema.of(self.output)

    def of(self, *columns: Any, **named: Any) -> Expr:
        """Refused: an operator returns rows, and `aggregate(...)` needs a value."""
        arguments = ", ".join([*map(repr, columns), *(f"{name}={value!r}" for name, value in named.items())])
        raise ModuleError(
            f"{self.name} gives rows, not a value: it cannot be part of an expression",
            given=f"{self.name}.of({arguments})",
            allowed="window(...).operate(module, ...), over(...).operate(module, ...)",
            instead=f"operate({self.name}, {arguments})",
        )

    def event(self, le: int, re: int, *values: Any, **named: Any) -> Event:
        """An output that lasts from `le` to `re`."""
        return Event(le, re, named or values)


class IncrementalOperator(Operator):
    """An operator that keeps a state per window."""

    incremental = True


_BASES: dict[tuple[str, bool], type[Module]] = {
    ("aggregate", False): Aggregate,
    ("aggregate", True): IncrementalAggregate,
    ("operator", False): Operator,
    ("operator", True): IncrementalOperator,
}
