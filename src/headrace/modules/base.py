"""What the author of a module writes: a class with two schemas and one method, or three (rules 6.1 and 6.2).

    class MyAverage(hr.Aggregate):
        \"\"\"The arithmetic mean.\"\"\"

        input = "value DOUBLE"
        output = "DOUBLE"

        def compute(self, values):
            return sum(values) / len(values)

`input` names the fields the module takes and their types; who uses the module says which columns they are. `output` is
the type of the answer, or the columns of an operator's. Parameters are those of an ordinary `__init__`.

What a module sees:

- *time-insensitive* (the default): payloads only. With one input field `compute` gets a list of values, with several a
  list of named tuples.
- *time-sensitive* (`time_sensitive = True`): a list of events, named tuples of `le`, `re` and the fields, and the
  window, with `le` and `re`.

Items come sorted by start, end and value, so that arrival never shows; a module must not change the list. They are
values that can be pickled, so a state may keep them.

The *incremental* kinds keep one state per window, any picklable value, which the engine stores: `initial()` makes it,
`add(state, items)` and `remove(state, items)` give the next one (or change it and give None), and
`compute(state)` reads it. A state that cannot take items back is made anew from all of them.

An operator gives any number of outputs: dicts, tuples, or for one column bare values. They last as long as the window;
a time-sensitive one may give `self.event(le, re, ...)` instead.
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
    """What a time-sensitive module knows of its window: `[le, re)`."""

    le: int
    re: int


class Module:
    """What all modules share: schemas, parameters and properties (rule 6.5)."""

    kind: ClassVar[Literal["aggregate", "operator"]]
    incremental: ClassVar[bool] = False

    #: The fields it takes, as `"price DOUBLE, quantity LONG"`.
    input: ClassVar[str | Schema] = ""
    #: The type of its answer, or an operator's columns.
    output: ClassVar[str | Schema | Type] = ""
    #: Whether it sees lifetimes and the window.
    time_sensitive: ClassVar[bool] = False
    #: Whether it looks at no end after its window's: the engine then shows it none, and need not wait for them.
    within_window: ClassVar[bool] = False
    #: Whether equal input gives equal output; a module that says otherwise is refused.
    deterministic: ClassVar[bool] = True
    #: Whether its state depends on the order items come in: it is then made anew, in order, when anything changes.
    order_sensitive: ClassVar[bool] = False
    #: Columns of its output that a filter may use before it instead of behind it.
    filter_through: ClassVar[tuple[str, ...]] = ()

    _arguments: inspect.BoundArguments | None

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        cls._check_whole()
        made = super().__new__(cls)
        made._arguments = cls._bound(args, kwargs)
        return made

    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        bound = self._arguments
        return (bound.args, bound.kwargs) if bound is not None else ((), {})

    @classmethod
    def _bound(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments | None:
        """The parameters, by name; a wrong one fails here, with the module's name."""
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
    def _check_whole(cls) -> None:
        """A class that lacks something cannot be used; the error says what to write."""
        if not cls.input:
            raise ModuleError(
                f"{cls.__name__} does not say what it takes",
                given="no input",
                allowed="names and types",
                instead='input = "value DOUBLE"',
            )
        if not cls.output:
            raise ModuleError(
                f"{cls.__name__} does not say what it gives",
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
                f"{cls.__name__} says it is not deterministic",
                given="deterministic = False",
                allowed="modules whose output depends on their input alone",
                instead="pass what it depends on as a field or a parameter",
            )

    @classmethod
    def _check_compute(cls) -> None:
        """`compute` must have a place for what it is given."""
        given = ["state" if cls.incremental else "items", *(["window"] if cls.time_sensitive else [])]
        try:
            inspect.signature(cls.compute).bind(cls, *given)
        except TypeError as error:
            blind = "" if cls.time_sensitive else "; or time_sensitive = True, to see lifetimes and the window"
            raise ModuleError(
                f"{cls.__name__}'s compute cannot be called with {' and '.join(given)}: {error}",
                given=f"compute{inspect.signature(cls.compute)}",
                allowed=f"compute of a module that is {'' if cls.time_sensitive else 'not '}time-sensitive",
                instead=f"def compute(self, {', '.join(given)}){blind}",
            ) from None

    @classmethod
    def _needed(cls) -> tuple[str, ...]:
        return ("initial", "add", "compute") if cls.incremental else ("compute",)

    @cached_property
    def fields(self) -> Schema:
        """What it takes."""
        found = Schema.of(self.input)
        for field in found:
            # Items are named tuples: their fields are attributes.
            if field.name in RESERVED or field.name[0] == "_" or keyword.iskeyword(field.name):
                raise ModuleError(
                    f"an input field may not be named {field.name!r}",
                    given=str(found),
                    allowed=f"names of attributes that do not begin with _, but not {', '.join(RESERVED)}",
                    instead=f"{field.name.strip('_')}_value",
                )
        return found

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def doc(self) -> str:
        return inspect.getdoc(type(self)) or ""

    @property
    def takes_window(self) -> bool:
        """Whether `compute` has a place for the window."""
        parameters = inspect.signature(self.compute).parameters.values()
        return len([p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]) > 1

    @property
    def invertible(self) -> bool:
        """Whether items can be taken back from its state."""
        return self.incremental and not self.order_sensitive and type(self).remove is not Module.remove

    @property
    def algebraic(self) -> bool:
        """Whether states merge."""
        return self.incremental and type(self).merge is not Module.merge

    @property
    def composes(self) -> bool:
        """Whether it can take its own answers for items: that of the answers is that of all their items."""
        return False

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        """The answer, or the outputs: `compute(items)`, for time-sensitive modules `compute(items, window)`."""
        raise NotImplementedError

    def initial(self) -> Any:
        """The state of a window without items."""
        raise NotImplementedError

    def add(self, state: Any, items: list[Any]) -> Any:
        """The state with more items."""
        raise NotImplementedError

    def remove(self, state: Any, items: list[Any]) -> Any:
        """The state without some of its items."""
        raise NotImplementedError

    def merge(self, state: Any, other: Any) -> Any:
        """The state of the items of both."""
        raise NotImplementedError

    def item(self, values: tuple[Any, ...]) -> Any:
        """An item of a module that sees no times: a value, or a named tuple of several."""
        return values[0] if len(self.fields) == 1 else row_type(self.fields.names)._make(values)

    def stepwise(self) -> Module | None:
        """An incremental module that gives the same of items in their order; None if all of them are needed at once."""
        return self if self.incremental and not self.time_sensitive else None

    def by_slots(self, frame: Any, answers: Schema) -> Any:  # noqa: ARG002 - for those that have another way
        """What goes through slots of tuples, all groups in one call; None if each group is gone through by itself."""
        return None

    def folder(self, kind: Kind) -> Folder | None:
        """How it goes from tuple to tuple in windows of a kind; None if each window is computed anew."""
        goes = self.incremental and not self.time_sensitive and (kind == "unbounded" or self.invertible)
        return Incremental(self) if goes else None

    def mapping(self, columns: Iterable[Any], named: Mapping[str, Any]) -> dict[str, Expr]:
        """Which expression each input field is: given in order, by name, or the column of the same name."""
        given = list(columns)
        if len(given) > len(self.fields) or set(named) - set(self.fields.names):
            raise ModuleError(
                f"{self} cannot take these columns",
                given=", ".join([*map(str, given), *named]),
                allowed=str(self.fields),
                instead=f"of({', '.join(f'{name}={name!r}' for name in self.fields.names)})",
            )
        found = dict(zip(self.fields.names, given, strict=False))
        for name in set(found) & set(named):
            raise ModuleError(f"{self} is given {name} twice", given=[found[name], named[name]])
        found |= named
        return {
            name: col(found.get(name, name)) if isinstance(found.get(name, name), str) else as_expr(found[name])
            for name in self.fields.names
        }

    def check_types(self, mapping: Mapping[str, Expr], schema: Schema) -> None:
        """Refuse columns of other types than the module takes."""
        for field in self.fields:
            found = mapping[field.name].type(schema)
            if not _fits(found, field.type):
                raise ModuleError(
                    f"{self} takes {field.name} as {field.type.value}",
                    given=f"{mapping[field.name]} of type {found.value}",
                    allowed=str(self.fields),
                    instead=f"{mapping[field.name]}.cast({field.type.value!r})",
                )

    @cached_property
    def mark(self) -> str:
        """Changes when the module's code does."""
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
    code = getattr(value, "__code__", None)
    return repr((code.co_code, code.co_names)) if code is not None else ""


def _fits(found: Type, wanted: Type) -> bool:
    if found is wanted or (found.is_text and wanted.is_text):
        return True
    order = [Type.BYTE, Type.SHORT, Type.INT, Type.LONG, Type.DOUBLE]
    if found is Type.FLOAT:
        return wanted is Type.DOUBLE
    return found in order and wanted in order and order.index(found) <= order.index(wanted)


class Aggregate(Module):
    """A bag of values, or of events, to one value per window."""

    kind = "aggregate"

    @cached_property
    def gives(self) -> Type:
        """The type of its answer."""
        return self.output if isinstance(self.output, Type) else Type.parse(str(self.output))

    def of(self, *columns: Any, **named: Any) -> Expr:
        """The aggregate of these columns or expressions, for `aggregate(...)`."""
        if not isinstance(self, Aggregate):  # called on the class
            raise ModuleError("of needs an instance", given=self, instead="Module().of('column')")
        # Here, because an expression over modules and the modules themselves need each other.
        from headrace.modules.call import ModuleCall

        return ModuleCall.of(self, self.mapping(columns, named))


class IncrementalAggregate(Aggregate):
    """An aggregate that keeps a state per window."""

    incremental = True


class Operator(Module):
    """A bag of payloads, or of events, to zero or more payloads, or events, per window."""

    kind = "operator"

    @cached_property
    def gives(self) -> Schema:
        """The columns of its outputs."""
        if isinstance(self.output, Type) or " " not in str(self.output).strip():
            raise ModuleError(
                f"{self.name} must name the columns it gives",
                given=str(self.output),
                allowed="names and types",
                instead='output = "value DOUBLE"',
            )
        return Schema.of(self.output)

    def of(self, *columns: Any, **named: Any) -> Expr:
        """Refused: it gives rows, and what stands in `aggregate(...)` is a value."""
        given = ", ".join([*map(repr, columns), *(f"{name}={value!r}" for name, value in named.items())])
        raise ModuleError(
            f"{self.name} gives rows, not a value: it is no part of an expression",
            given=f"{self.name}.of({given})",
            allowed="window(...).operate(module, ...), over(...).operate(module, ...)",
            instead=f"operate({self.name}, {given})",
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
