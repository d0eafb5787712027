"""The state of a run as expressions: the columns of a run that goes round a loop.

The native operator keeps the numbers of a run in slots (`program.py`). Where runs are rows of a stream, each slot is a
column with an initial value and an expression that updates it with a tuple, over the previous run, the columns of the
tuple, and the variable of the tuple. Conditions are evaluated over the updated columns.

Sums of integers have two columns, halves of 32 bits that cannot overflow, and are combined where they are read: as in
the native operator, they are NULL only if the sum itself does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from headrace.errors import PlanError
from headrace.expr import Column, Expr, call, col, greatest, if_else, least, lit
from headrace.patterns.pattern import Register
from headrace.patterns.references import Ref, References
from headrace.schema import Type

__all__ = ["ASKED", "BY", "STATE", "Carried", "RunColumn"]

#: The column of a step with the variable of its tuple, and the column of a run with its state.
BY, STATE = "by", "state"
#: The functions that a run in a loop supports.
ASKED = ("first", "last", "count", "sum", "avg", "min", "max", "concat", "classifier", "state")
_HALF, _MASK = 32, 2**32 - 1


@dataclass(frozen=True)
class RunColumn:
    """A column of a run: its initial value, and its update with a tuple."""

    name: str
    type: Type
    start: Expr
    update: Expr


class Carried:
    """The slots that the expressions of a pattern need, and these expressions over slots.

    `over` resolves expressions with a current tuple, `behind` those over a run alone. `tuples` has the names of the
    columns of tuples; the slots fill up as expressions are resolved.
    """

    def __init__(
        self, references: References, registers: Mapping[str, Register], updates: Mapping[tuple[str, str], Expr]
    ) -> None:
        self.references, self.registers, self.updates = references, registers, updates
        self.tuples: dict[str, str] = {}
        self._slots: dict[str, str] = {}
        self._made: dict[str, RunColumn] = {}

    @property
    def slots(self) -> list[RunColumn]:
        """All slots, in the order of their first use."""
        return [self._made[name] for name in self._slots.values()]

    def over(self, expr: Expr) -> Expr:
        """A resolved expression over slots and the current tuple."""
        return self._changed(expr, self._tuple, exact=False)

    def behind(self, expr: Expr) -> Expr:
        """A resolved expression over slots alone; columns of the current tuple are those of the run's last tuple."""
        kinds = self.references.of_tuples
        return self._changed(expr, lambda name: self.value(Ref("last", None, col(name), kinds[name].type)), exact=True)

    def _changed(self, expr: Expr, of_tuple: Callable[[str], Expr], *, exact: bool) -> Expr:
        refs = self.references.refs

        def change(part: Expr) -> Expr:
            if not isinstance(part, Column):
                return part
            name = part.column
            return self.value(refs[name], exact=exact) if name in refs else of_tuple(name)

        return expr.transform(change)

    def _tuple(self, name: str) -> Expr:
        return col(self.tuples.setdefault(name, f"t{len(self.tuples)}"))

    # --- what is asked ------------------------------------------------------------------------------------------------

    def value(self, ref: Ref, *, exact: bool = False) -> Expr:
        """A reference to the tuples of a run, over its slots; in measures averages use `exact` sums."""
        if ref.function not in (*ASKED, "register"):
            raise PlanError(
                f"a run that goes round a loop cannot carry {ref.function} along",
                given=str(ref.call) if ref.argument is not None else ref.function,
                allowed=f"measures of {', '.join(ASKED)}",
                instead="match(...) without transitions=, which has every aggregate",
            )
        if ref.function == "state":
            return col(STATE)
        if ref.function == "sum":
            return self._sum(ref)
        if ref.function == "avg":
            assert ref.argument is not None
            kind = ref.argument.type(self.references.of_tuples)
            whole = exact and not kind.is_floating
            total = self._halves(ref) if whole else self._added(replace(ref, type=Type.DOUBLE))
            return _if_any(self._counted(ref), total / self._counted(ref))
        return col(self._slot(replace(ref, final=False)))

    def _sum(self, ref: Ref) -> Expr:
        if ref.type.is_floating:
            return _if_any(self._counted(ref), self._added(ref))
        low, high = self._parts(ref)
        whole = (high + low.shift_right(_HALF)) * lit(2**_HALF) + low.bit_and(_MASK)
        return _if_any(self._counted(ref), whole)

    def _halves(self, ref: Ref) -> Expr:
        """The sum of integers as a floating number, rounded once."""
        low, high = self._parts(ref)
        upper = (high + low.shift_right(_HALF)).cast(Type.DOUBLE)
        return upper * lit(float(2**_HALF)) + low.bit_and(_MASK).cast(Type.DOUBLE)

    def _parts(self, ref: Ref) -> tuple[Expr, Expr]:
        plain = replace(ref, final=False, type=Type.LONG)
        return col(self._slot(replace(plain, function="low"))), col(self._slot(replace(plain, function="high")))

    def _added(self, ref: Ref) -> Expr:
        return col(self._slot(replace(ref, function="added", final=False)))

    def _counted(self, ref: Ref) -> Expr:
        return col(self._slot(replace(ref, function="count", final=False, type=Type.LONG)))

    # --- slots --------------------------------------------------------------------------------------------------------

    def _slot(self, ref: Ref) -> str:
        key = str(ref)
        if key not in self._slots:
            name = self._slots[key] = f"s{len(self._slots)}"
            start, update = self._register(ref, name) if ref.function == "register" else self._slot_update(ref, name)
            self._made[name] = RunColumn(name, ref.type, start.cast(ref.type), update.cast(ref.type))
        return self._slots[key]

    def _register(self, ref: Ref, name: str) -> tuple[Expr, Expr]:
        register = self.registers[str(ref.variable)]
        update: Expr = col(name)
        for variable, _ in register.updates:
            became = self.over(self.updates[register.name, variable])
            update = if_else(col(BY) == variable, became, update)
        return register.start, update

    def _slot_update(self, ref: Ref, name: str) -> tuple[Expr, Expr]:
        """The initial value and the update of a slot."""
        old = col(name)
        if ref.function == "classifier":
            return lit(None), col(BY)
        if ref.argument is None:
            return lit(0), self._if_mapped(ref, old + 1, old)
        new = self.over(ref.argument)
        if ref.function in ("first", "last"):
            return lit(None), self._placed(ref, old, new)
        start, became = {
            "count": (lit(0), old + 1),
            "low": (lit(0), old + new.cast(Type.LONG).bit_and(_MASK)),
            "high": (lit(0), old + new.cast(Type.LONG).shift_right(_HALF)),
            "added": (lit(0.0), old + new.cast(ref.type)),
            "min": (lit(None), least(old, new)),
            "max": (lit(None), greatest(old, new)),
            "concat": (lit(None), if_else(old.is_null(), new, call("concat", old, *ref.parameters, new))),
        }[ref.function]
        return start, self._if_mapped(ref, became, old, new.is_not_null())

    def _placed(self, ref: Ref, old: Expr, new: Expr) -> Expr:
        if ref.function == "last":
            # The last but one is the previous value of the last one.
            return self._if_mapped(
                ref, col(self._slot(replace(ref, offset=ref.offset - 1))) if ref.offset else new, old
            )
        counted = col(self._slot(Ref("count", ref.variable, None, Type.LONG)))
        return self._if_mapped(ref, new, old, counted == ref.offset)

    def _if_mapped(self, ref: Ref, value: Expr, old: Expr, *conditions: Expr) -> Expr:
        """The new value for tuples of these variables, if conditions hold; else the old one."""
        variable_condition = () if ref.variable is None else (_one_of(self.references.members[ref.variable]),)
        all_conditions = (*variable_condition, *conditions)
        return if_else(reduce(lambda a, b: a & b, all_conditions), value, old) if all_conditions else value


def _one_of(variables: Sequence[str]) -> Expr:
    return col(BY) == variables[0] if len(variables) == 1 else col(BY).isin(*variables)


def _if_any(counted: Expr, value: Expr) -> Expr:
    return if_else(counted > 0, value)
