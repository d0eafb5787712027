"""The conditions of a pattern as small programs, for the native operator.

The expression engine evaluates conditions on single tuples, for all tuples at once: these are `masks`. Conditions on a
run become programs for a stack machine over `slots`, the numbers that a run keeps, and `columns`, expressions over one
tuple that the expression engine has computed as well. So the machine has only numbers: integers (also times, truth
values, and texts as their ranks among all texts) and floating numbers, each with a NULL flag. Operations mean the same
as in the expression engine: NULL gives NULL, overflow and division by zero give NULL, NaN equals itself and is the
greatest.

A program is a list of pairs, an operation and its operand. One compiled machine runs them all.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any

from headrace.errors import PlanError
from headrace.expr import Call, Case, Cast, Column, Expr, Literal, conjuncts, lit
from headrace.expr.nodes import Bound
from headrace.patterns.references import Ref, References
from headrace.schema import Type
from headrace.time import ticks

__all__ = ["Program", "Slot", "SlotUpdate", "carried", "compiled"]

# Operations of the machine, similar ones next to each other. Operands: the number of a column or slot; a constant
# itself (of a floating one the bits, of a text its number); the bits of a whole number, or _DATES; 1 for FLOAT.
COLUMN, SLOT, SLOT_SUM, CONSTANT, TEXT, NULL = range(6)
SELECT, IS_NULL, NOT, NEG_F, ABS_F, ABS_I, TO_FLOAT, TO_SINGLE, TO_WHOLE, FITS = range(6, 16)  # of one
AND, OR, COALESCE, GREATEST_I, LEAST_I, GREATEST_F, LEAST_F = range(16, 23)  # of two, which may be NULL
EQ_I, LT_I, EQ_F, LT_F, ADD_I, SUB_I, MUL_I, MOD_I, ADD_F, SUB_F, MUL_F, DIV_F, MOD_F = range(23, 36)  # of two
# Kinds of updates: take a column, take the first of a variable, count, sum, compare, or run a program.
TAKE, FIRST, COUNT, SUM_I, SUM_F, LEAST, GREATEST, RUN = range(8)

#: The functions over a run that conditions may use.
_RUNNING = ("first", "last", "count", "sum", "avg", "min", "max", "register")
#: The operand of `FITS` for computed DATETIMEs: the years 1 to 9999.
_DATES = 1
#: A DECIMAL of so many digits is a LONG.
_MOST_DIGITS = 18
_EPOCH = date(1970, 1, 1)
#: What may be said of DECIMAL and DATE of several tuples, and is the same of their digits and days.
_ALIKE = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "isin", "is_null", "is_not_null"))
_ARITHMETIC = {"add": (ADD_I, ADD_F), "subtract": (SUB_I, SUB_F), "multiply": (MUL_I, MUL_F), "modulo": (MOD_I, MOD_F)}
_SPANS = (Type.TIME, Type.INTERVAL)
_EXTREMES = {"greatest": (GREATEST_I, GREATEST_F), "least": (LEAST_I, LEAST_F), "coalesce": (COALESCE, COALESCE)}
#: The operations after the arguments of these functions, for all types.
_PLAIN = {
    "divide": (DIV_F, 0), "time_diff": (SUB_I, 64), "shift_time": (ADD_I, 64, FITS, _DATES), "and": (AND, 0),
    "or": (OR, 0), "not": (NOT, 0), "is_null": (IS_NULL, 0), "is_not_null": (IS_NULL, 0, NOT, 0),
}  # fmt: skip
#: Functions that return NULL for NULL and may be computed from one tuple before it is stored.
_STRICT = frozenset((
    "sqrt", "exp", "ln", "log10", "sign", "sin", "cos", "tan", "asin", "acos", "atan", "radians", "degrees", "floor",
    "ceil", "round", "upper", "lower", "trim", "ltrim", "rtrim", "reverse", "length", "substring", "replace",
    "position", "split_part", "repeat", "left", "right", "lpad", "rpad", "starts_with", "ends_with", "contains", "like",
    "rlike",
    "year", "month", "day", "hour", "minute", "second", "day_of_week", "day_of_year", "epoch", "date_trunc", "bit_and",
    "bit_or", "bit_xor", "bit_not", "shift_left", "shift_right", "power", "concat", "floor_divide",
))  # fmt: skip


#: Functions that may have a value although all of their arguments are NULL.
_LOOSE = frozenset(("coalesce", "and", "or", "is_null", "is_not_null"))


@dataclass(frozen=True)
class Slot:
    """A number that a run keeps: floating or integer, and its initial value (None for NULL)."""

    floating: bool
    start: float | int | str | None
    text: bool = False


@dataclass(frozen=True)
class SlotUpdate:
    """The update of a slot with a tuple: from a column, or by the program `column .. end` if it is `RUN`.

    For `FIRST`, `end` has the bits of the variables that must not have had a tuple before.
    """

    kind: int
    slot: int
    column: int
    end: int = 0


@dataclass
class Program:
    """The programs, slots and columns of the runs of a pattern."""

    #: The variables, in the order of their numbers.
    variables: tuple[str, ...]
    #: The expressions to compute for each tuple in advance, and whether they are floating or text.
    columns: list[tuple[Expr, Type]] = field(default_factory=list)
    #: For each variable, the conditions on single tuples.
    masks: list[list[Expr]] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    #: For each variable, the updates by its tuples.
    updates: list[list[SlotUpdate]] = field(default_factory=list)
    code: list[int] = field(default_factory=list)
    #: The texts that programs name.
    texts: list[str] = field(default_factory=list)
    #: For each variable, the program of its condition on the run; empty if it has none.
    guards: list[tuple[int, int]] = field(default_factory=list)
    #: The program of the condition on the complete match.
    accept: tuple[int, int] = (0, 0)
    #: The slots of the registers that are read by name.
    registers: dict[str, int] = field(default_factory=dict)

    @property
    def looks_at_runs(self) -> bool:
        """Whether a run's past decides what may follow."""
        return bool(self.slots)


def compiled(
    variables: tuple[str, ...],
    references: References,
    conditions: Mapping[str, Expr],
    guard: Expr | None,
    registers: Mapping[str, tuple[Slot, Mapping[str, Expr]]],
) -> Program:
    """The programs of resolved conditions."""
    return _Compiler(variables, references, registers).whole(conditions, guard)


def carried(
    variables: tuple[str, ...],
    references: References,
    registers: Mapping[str, tuple[Slot, Mapping[str, Expr]]],
    names: Sequence[str],
) -> Program:
    """The programs of some registers alone, to compute their values over the tuples of a finished match."""
    compiler = _Compiler(variables, references, registers)
    program = compiler.whole({}, None)
    for name in names:
        program.registers[name] = compiler.slot(Ref("register", name, None, references.registers[name]))
    return program


class _Compiler:
    def __init__(
        self,
        variables: tuple[str, ...],
        references: References,
        registers: Mapping[str, tuple[Slot, Mapping[str, Expr]]],
    ) -> None:
        self.references, self.registers = references, registers
        self.schema = references.schema
        self.program = Program(variables, updates=[[] for _ in variables])
        self.columns: dict[str, int] = {}
        self.slots: dict[str, int] = {}

    def whole(self, conditions: Mapping[str, Expr], guard: Expr | None) -> Program:
        program = self.program
        for variable in program.variables:
            parts = conjuncts(conditions[variable]) if variable in conditions else []
            alone = [not part.columns() & self.references.refs.keys() for part in parts]
            program.masks.append([part for part, own in zip(parts, alone, strict=True) if own])
            program.guards.append(self.range_of([part for part, own in zip(parts, alone, strict=True) if not own]))
        program.accept = self.range_of([] if guard is None else [guard])
        return program

    def range_of(self, conditions: list[Expr]) -> tuple[int, int]:
        """A program that is true where all conditions are true."""
        codes: list[int] = []
        for i, condition in enumerate(conditions):
            codes += self.lowered(condition.bind(self.schema)) + ([AND, 0] if i else [])
        return self.placed(codes)

    def placed(self, codes: list[int]) -> tuple[int, int]:
        begin = len(self.program.code)
        self.program.code += codes
        return begin, len(self.program.code)

    # --- expressions --------------------------------------------------------------------------------------------------

    def lowered(self, bound: Bound) -> list[int]:
        """The operations that leave the value of an expression on the stack."""
        node = bound.node
        if _has_digits(bound.type):
            return self.digits(bound)
        if isinstance(node, Literal):
            return self.constant(node, bound.type)
        used = node.columns() & self.references.refs.keys()
        if not used:
            return [COLUMN, self.column(node, bound.type)]
        if isinstance(node, Call) and any(_has_digits(arg.type) for arg in bound.args) and node.function not in _ALIKE:
            return self.remembered(bound)  # such as divide and days_between
        if isinstance(node, Column):
            return self.reference(self.references.refs[node.column])
        if isinstance(node, Call) and node.function in _STRICT:
            return self.remembered(bound)
        if isinstance(node, Call):
            return self.called(node.function, bound)
        if isinstance(node, Case):
            return self.chosen(bound)
        if isinstance(node, Cast):
            return self.cast(bound)
        raise self.refused(bound, f"{type(node).__name__} of several tuples")

    def constant(self, node: Literal, kind: Type) -> list[int]:
        program, value = self.program, node.value
        if value is None:
            return [NULL, 0]
        if isinstance(value, str):
            program.texts.append(value)
            return [TEXT, len(program.texts) - 1]
        if kind.is_floating:
            return [CONSTANT, _bits_of(float(value))]  # type: ignore[arg-type]
        return [CONSTANT, ticks(value) if isinstance(value, datetime) else int(value)]  # type: ignore[arg-type]

    def column(self, expr: Expr, kind: Type) -> int:
        """The number of the column of an expression over one tuple."""
        key = f"{expr} {kind.value}"
        if key not in self.columns:
            self.columns[key] = len(self.program.columns)
            self.program.columns.append((expr, kind))
        return self.columns[key]

    def remembered(self, bound: Bound) -> list[int]:
        """Store a function of a variable's last tuple instead of its arguments."""
        names = bound.node.columns()
        refs = [self.references.refs[name] for name in names if name in self.references.refs]
        variables = {ref.variable for ref in refs}
        if len(refs) < len(names) or len(variables) > 1 or any(ref.function != "last" or ref.offset for ref in refs):
            raise self.refused(bound, "this function of several tuples")
        if _may_be_without(bound.node):  # of no tuple at all it has a value, and a slot has none
            raise self.refused(bound, "a function of what coalesce, case and their like choose")
        return self.reference(Ref("last", variables.pop(), self.of_one_tuple(bound.node), bound.type))

    def of_one_tuple(self, expr: Expr) -> Expr:
        """An expression over references as one over the columns of the tuple that they are about."""

        def own(part: Expr) -> Expr:
            if isinstance(part, Column) and part.column in self.references.refs:
                argument = self.references.refs[part.column].argument
                assert argument is not None
                return argument
            return part

        return expr.transform(own)

    def digits(self, bound: Bound) -> list[int]:
        """A DECIMAL as its digits, and a DATE as its days: whole numbers, which are equal and less where these are."""
        node, kind = bound.node, bound.type
        if kind in _SPANS:
            raise self.refused(bound, f"with a {kind.value} of several tuples; a DATETIME or LONG it can")
        if kind.is_decimal and kind.precision > _MOST_DIGITS:
            raise self.refused(bound, f"with {kind.value}, more than {_MOST_DIGITS} digits, of several tuples")
        if isinstance(node, Literal):
            return self.constant(Literal(_digits_of(node.value, kind)), Type.LONG)
        names = node.columns()
        refs = [self.references.refs[name] for name in names if name in self.references.refs]
        if not refs:
            return [COLUMN, self.column(_digits(node, kind), Type.LONG)]
        if isinstance(node, Column) and refs[0].function in ("first", "last", "min", "max"):
            return self.reference(replace(refs[0], argument=_digits(self.of_one_tuple(node), kind), type=Type.LONG))
        if isinstance(node, Cast) and bound.args[0].type.is_decimal and bound.args[0].type.scale <= kind.scale:
            more = self.constant(Literal(10 ** (kind.scale - bound.args[0].type.scale)), Type.LONG)
            return [*self.digits(bound.args[0]), *more, MUL_I, 64]
        if isinstance(node, Case):
            same = [arg if arg.type is Type.BOOLEAN else arg.node.cast(kind).bind(self.schema) for arg in bound.args]
            return self.chosen(replace(bound, args=tuple(same)))
        if isinstance(node, Call) and node.function in (*_EXTREMES, "add", "subtract"):
            same = [arg.node.cast(kind).bind(self.schema) for arg in bound.args]
            return self.called(node.function, replace(bound, args=tuple(same)))
        if not (isinstance(node, Cast) or (isinstance(node, Call) and node.function in (*_STRICT, *_ARITHMETIC))):
            raise self.refused(bound, f"this {kind.value} of several tuples")
        return self.remembered(_digits(node, kind).bind(self.schema))

    def called(self, function: str, bound: Bound) -> list[int]:
        args = [self.lowered(arg) for arg in bound.args]
        kinds = [arg.type for arg in bound.args]
        floating = bool(kinds) and kinds[0].is_floating
        single = int(kinds[0] is Type.FLOAT) if kinds else 0
        if function in _ARITHMETIC:
            whole, real = _ARITHMETIC[function]
            return [*args[0], *args[1], *((real, single) if floating else (whole, _bits(kinds[0])))]
        if function in _PLAIN:
            return [*(code for arg in args for code in arg), *_PLAIN[function]]
        if function == "negate":
            return [*args[0], NEG_F, 0] if floating else [*self.zero(), *args[0], SUB_I, _bits(kinds[0])]
        if function == "abs":
            return [*args[0], *((ABS_F, 0) if floating else (ABS_I, _bits(kinds[0])))]
        if function in _EXTREMES:
            operation = _EXTREMES[function][floating]
            return [*args[0], *(code for arg in args[1:] for code in (*arg, operation, 0))]
        return self.compared(function, args, bound, floating=floating)

    def compared(self, function: str, args: list[list[int]], bound: Bound, *, floating: bool) -> list[int]:
        equal, less = (EQ_F, LT_F) if floating else (EQ_I, LT_I)
        if function in ("eq", "ne"):
            return [*args[0], *args[1], equal, 0, *((NOT, 0) if function == "ne" else ())]
        if function in ("lt", "ge"):
            return [*args[0], *args[1], less, 0, *((NOT, 0) if function == "ge" else ())]
        if function in ("gt", "le"):
            return [*args[1], *args[0], less, 0, *((NOT, 0) if function == "le" else ())]
        if function == "isin":
            found = self.constant(Literal(False), Type.BOOLEAN)
            for member in args[1:]:
                found += [*args[0], *member, equal, 0, OR, 0]
            return found
        raise self.refused(bound, f"{function} of several tuples")

    def zero(self) -> list[int]:
        return self.constant(Literal(0), Type.LONG)

    def chosen(self, bound: Bound) -> list[int]:
        parts = [self.lowered(arg) for arg in bound.args]
        codes = parts[-1]
        for condition, value in list(zip(parts[:-1:2], parts[1::2], strict=True))[::-1]:
            codes = [*condition, *value, *codes, SELECT, 0]
        return codes

    def cast(self, bound: Bound) -> list[int]:
        source, target = bound.args[0].type, bound.type
        if source.is_text or target.is_text or _has_digits(source):
            return self.remembered(bound)
        inner = self.lowered(bound.args[0])
        if target.is_floating:
            to = [] if source.is_floating else [TO_FLOAT, int(target is Type.FLOAT)]
            return [*inner, *to, *((TO_SINGLE, 0) if (source, target) == (Type.DOUBLE, Type.FLOAT) else ())]
        if target is Type.BOOLEAN:
            zero = self.constant(Literal(0), source)
            return [*inner, *zero, EQ_F if source.is_floating else EQ_I, 0, NOT, 0]
        if source.is_floating:
            return [*inner, TO_WHOLE, _bits(target)]
        if Type.DATETIME in (source, target):
            return inner if source is Type.DATETIME else [*inner, FITS, _DATES]
        return inner if source is Type.BOOLEAN else [*inner, FITS, _bits(target)]

    def refused(self, bound: Bound, what: str) -> PlanError:
        return PlanError(
            f"a pattern's condition cannot compute {what}",
            given=str(self.shown(bound.node)),
            allowed="arithmetic, comparisons, logic, case, coalesce, casts of numbers and times; "
            "any function of one tuple, and any function of the last tuple of one variable",
            instead="col('A.name') == col('name')",
        )

    def shown(self, expr: Expr) -> Expr:
        """An expression as people write it, without the names of references."""

        def own(part: Expr) -> Expr:
            ref = self.references.refs.get(part.column) if isinstance(part, Column) else None
            if ref is None:
                return part
            if ref.function == "last" and isinstance(ref.argument, Column) and not ref.offset:
                return Column(f"{ref.variable}.{ref.argument.column}" if ref.variable else ref.argument.column)
            return Column(f"{ref.function}({'' if ref.argument is None else ref.argument})")

        return expr.transform(own)

    # --- what runs carry along ----------------------------------------------------------------------------------------

    def reference(self, ref: Ref) -> list[int]:
        """The operations for a reference to the tuples of a run."""
        if ref.function not in _RUNNING:
            raise PlanError(
                f"a pattern's condition cannot ask for {ref.function}",
                given=str(ref.call) if ref.argument is not None else ref.function,
                allowed=", ".join(_RUNNING[:-1]),
                instead="a measure, which may be any aggregate",
            )
        if ref.function == "avg":
            assert ref.argument is not None
            wide = Ref("sum", ref.variable, ref.argument.cast(Type.DOUBLE), Type.DOUBLE)
            counted = Ref("count", ref.variable, ref.argument, Type.LONG)
            return [*self.reference(wide), *self.reference(counted), TO_FLOAT, 0, DIV_F, 0]
        whole_sum = ref.function == "sum" and not ref.type.is_floating
        return [SLOT_SUM if whole_sum else SLOT, self.slot(ref)]

    def slot(self, ref: Ref) -> int:
        key = str(ref)
        if key in self.slots:
            return self.slots[key]
        slot = self.slots[key] = len(self.program.slots)
        if ref.function == "register":
            assert ref.variable is not None
            self.register(ref.variable, slot)
            return slot
        start = 0 if ref.function == "count" else None
        self.program.slots.append(Slot(ref.type.is_floating, start, ref.type.is_text))
        kind = self.update_of(ref)
        if ref.offset:
            self.further(ref, slot)
            return slot
        if kind == SUM_I:
            self.program.slots.append(Slot(floating=False, start=0))  # the upper half of a sum of 128 bits
        column = -1
        if ref.argument is not None:
            argument = ref.argument if ref.function != "sum" else ref.argument.cast(ref.type)
            column = self.column(argument, ref.type if ref.function != "count" else ref.argument.type(self.schema))
        numbers = self.variables_of(ref)
        seen = sum(1 << number for number in numbers) if kind == FIRST else 0
        for number in numbers:
            self.program.updates[number].append(SlotUpdate(kind, slot, column, seen))
        return slot

    def variables_of(self, ref: Ref) -> list[int]:
        """The numbers of the variables of a reference."""
        return [i for i, variable in enumerate(self.program.variables) if self.references.of(ref, variable)]

    def further(self, ref: Ref, slot: int) -> None:
        """Add the updates for an offset from the first or last tuple of a variable."""
        assert ref.argument is not None
        if ref.function == "last":  # the previous value of the slot before it
            codes = [SLOT, self.slot(replace(ref, offset=ref.offset - 1))]
        else:  # the tuple that arrives after `offset` others
            counted = [SLOT, self.slot(Ref("count", ref.variable, None, Type.LONG)), CONSTANT, ref.offset, EQ_I, 0]
            codes = [*counted, COLUMN, self.column(ref.argument, ref.type), SLOT, slot, SELECT, 0]
        begin, end = self.placed(codes)
        for number in self.variables_of(ref):
            self.program.updates[number].append(SlotUpdate(RUN, slot, begin, end))

    @staticmethod
    def update_of(ref: Ref) -> int:
        if ref.function == "sum":
            return SUM_F if ref.type.is_floating else SUM_I
        if ref.function == "first":
            return FIRST
        return {"last": TAKE, "count": COUNT, "min": LEAST, "max": GREATEST}[ref.function]

    def register(self, name: str, slot: int) -> None:
        start, updates = self.registers[name]
        self.program.slots.append(start)
        for variable, expr in updates.items():
            begin, end = self.placed(self.lowered(expr.bind(self.schema)))
            number = self.program.variables.index(variable)
            self.program.updates[number].append(SlotUpdate(RUN, slot, begin, end))


def _may_be_without(expr: Expr) -> bool:
    """Whether an expression over NULL alone may be other than NULL."""
    loose = isinstance(expr, Case) or (isinstance(expr, Call) and expr.function in _LOOSE)
    return loose or any(map(_may_be_without, expr.children))


def _has_digits(kind: Type) -> bool:
    return kind.is_decimal or kind is Type.DATE or kind in _SPANS


def _digits(expr: Expr, kind: Type) -> Expr:
    """The digits of a DECIMAL, the days of a DATE since 1970, as LONG."""
    if kind is Type.DATE:
        return (expr - lit(_EPOCH)).cast(Type.LONG)
    return (expr.cast(kind) * lit(10**kind.scale)).cast(Type.LONG)


def _digits_of(value: Any, kind: Type) -> int | None:
    if value is None:
        return None
    return (value - _EPOCH).days if kind is Type.DATE else int(value.scaleb(kind.scale))


def _bits(kind: Type) -> int:
    return {Type.BYTE: 8, Type.SHORT: 16, Type.INT: 32}.get(kind, 64)


def _bits_of(number: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", number))[0])
