"""Modules as their authors define them and queries use them: what is wrong is said before anything runs."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

import headrace as hr
from headrace import col
from headrace.errors import ExpressionError, HeadraceError, ModuleError, PlanError, SchemaError, UnknownColumn

STREAM = hr.events("""
    kind   | le | re | k | x   | n | at         | flag
    insert | 1  | 4  | a | 1.0 | 1 | 2024-05-01 | true
    insert | 3  | 9  | b | 4.0 | 2 | 2024-05-02 | false
""")
WINDOWED = STREAM.window(hr.tumbling(10))


def made(base: type = hr.Aggregate, **body: Any) -> Any:
    """A class with everything a module needs, changed as told; None leaves something out."""
    whole = {"input": "v DOUBLE", "output": "DOUBLE", "compute": lambda _, _values: 1.0} | body
    return type("Made", (base,), {name: value for name, value in whole.items() if value is not None})


class Scaled(hr.Aggregate):
    """The sum, scaled."""

    input = "v DOUBLE"
    output = "DOUBLE"

    def __init__(self, factor: float, offset: int = 0, *, name: str = "scaled", exact: bool = True) -> None:
        self.factor, self.offset, self.named, self.exact = factor, offset, name, exact

    def compute(self, values: list[float]) -> float:
        return self.factor * sum(values) + self.offset


class Pairs(hr.Aggregate):
    """Several fields: items are named tuples."""

    input = "price DOUBLE, quantity LONG"
    output = "DOUBLE"

    def compute(self, rows: list[Any]) -> float:
        return sum(row.price * row.quantity for row in rows)


class Each(hr.Operator):
    input = "v DOUBLE"
    output = "o DOUBLE"

    def compute(self, values: list[float]) -> list[float]:
        return values


class Spans(hr.Operator):
    input = "v DOUBLE"
    output = "o DOUBLE, place LONG"
    time_sensitive = True

    def compute(self, events: list[Any], window: Any) -> list[Any]:
        return [self.event(max(e.le, window.le), e.re, o=e.v, place=i) for i, e in enumerate(events)]


def rows(stream: hr.Stream, **options: Any) -> list[tuple]:
    return [tuple(row.values()) for row in stream.cht(**options).to_pylist()]


def refused(kind: type[HeadraceError], build: Callable[[], Any], *words: str) -> None:
    with pytest.raises(kind) as caught:
        build()
    for word in words:
        assert word in str(caught.value), f"{word!r} is not in: {caught.value}"


# --- defining -------------------------------------------------------------------------------------------------------


def without(**body: Any) -> Callable[[], Any]:
    return made(**body)


INCREMENTAL = {"base": hr.IncrementalAggregate, "initial": lambda _: 0, "add": lambda *_: 0}


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (without(input=None), ["Made has no input fields", 'instead: input = "value DOUBLE"']),
        (without(output=None), ["Made has no output type", 'instead: output = "DOUBLE"']),
        (without(compute=None), ["Made has no method compute"]),
        (without(base=hr.Operator, compute=None), ["Made has no method compute"]),
        (without(**INCREMENTAL | {"initial": None}), ["Made has no method initial"]),
        (without(**INCREMENTAL | {"add": None}), ["Made has no method add"]),
        (without(**INCREMENTAL | {"compute": None}), ["Made has no method compute"]),
        (without(deterministic=False), ["not deterministic", "a field or a parameter"]),
        (hr.Aggregate, ["Aggregate has no input fields"]),
        (hr.IncrementalOperator, ["IncrementalOperator has no input fields"]),
        (Scaled, ["missing a required argument: 'factor'", "allowed: Scaled(factor: "]),
        (lambda: Scaled(1.0, size=3), ["unexpected keyword argument 'size'"]),
        (lambda: Scaled(1.0, 2, 3), ["too many positional arguments"]),
        (lambda: Scaled("much"), ["Scaled's parameter factor must be float", "given:   'much'"]),
        (lambda: Scaled(True), ["factor must be float"]),
        (lambda: Scaled(1.0, 0.5), ["offset must be int"]),
        (lambda: Scaled(1.0, name=5), ["name must be str"]),
        (lambda: Scaled(1.0, exact=1), ["exact must be bool"]),
        (without(time_sensitive=True), ["cannot be called with items and window", "def compute(self, items, window)"]),
        (without(compute=lambda _: 1.0), ["cannot be called with items", "instead: def compute(self, items)"]),
        (without(compute=lambda _, _values, window: window.le), ["cannot be called", "time_sensitive = True"]),
    ],
)
def test_a_module_that_is_not_whole_cannot_be_made(build: Callable[[], Any], words: list[str]):
    refused(ModuleError, build, *words)


def test_a_module_knows_its_parameters_its_name_and_its_documentation():
    module = Scaled(2, name="twice")
    assert str(module) == "Scaled(factor=2, offset=0, name='twice', exact=True)"
    assert (module.name, module.doc) == ("Scaled", "The sum, scaled.")
    assert module.fields == hr.Schema.of("v DOUBLE")


def pickled(module: Any) -> Any:
    return pickle.loads(pickle.dumps(module))  # noqa: S301 - our own


@pytest.mark.parametrize("copied", [pickled, copy.copy, copy.deepcopy])
def test_a_module_travels_with_its_parameters(copied: Callable[[Any], Any]):
    module = Scaled(2.0, 3, name="twice")
    again = copied(module)
    assert str(again) == str(module)
    assert again.compute([1.0, 4.0]) == module.compute([1.0, 4.0]) == 13.0
    assert again.mark == module.mark


def test_the_mark_of_a_module_changes_with_its_code():
    one, other = made(compute=lambda _, _values: 1.0), made(compute=lambda _, values: 2.0 * len(values))
    assert one().mark == one().mark
    assert one().mark != other().mark


def test_what_is_written_decides_the_properties():
    def remove(_self: Any, state: Any, _items: Any) -> Any:
        return state

    plain, whole = made(**INCREMENTAL)(), made(**INCREMENTAL | {"remove": remove, "merge": remove})()
    assert (plain.invertible, plain.algebraic) == (False, False)
    assert (whole.invertible, whole.algebraic) == (True, True)
    assert made(**INCREMENTAL | {"remove": remove, "order_sensitive": True})().invertible is False
    assert made()().invertible is False


# --- schemas --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "build", "words"),
    [
        (SchemaError, lambda: made(input="v")().of("x"), ["'v' is not a column"]),
        (SchemaError, lambda: made(input="v DUBLE")().of("x"), ["unknown type 'DUBLE'", "instead: DOUBLE"]),
        (SchemaError, lambda: made(input="v DOUBLE, v LONG")().of("x"), ["appears twice"]),
        (ModuleError, lambda: made(input="le DOUBLE")().of("x"), ["may not be named 'le'", "instead: le_value"]),
        (ModuleError, lambda: made(input="class LONG, b LONG")().of("n", "n"), ["may not be named 'class'"]),
        (ModuleError, lambda: made(input="_a LONG, b LONG")().of("n", "n"), ["may not be named '_a'"]),
        (SchemaError, lambda: WINDOWED.aggregate(a=made(output="DUBLE")().of("x")), ["unknown type 'DUBLE'"]),
        (SchemaError, lambda: WINDOWED.aggregate(a=made(output="o DOUBLE")().of("x")), ["unknown type 'o DOUBLE'"]),
        (ModuleError, lambda: WINDOWED.operate(made(hr.Operator)(), "x"), ["must name its output columns"]),
        (SchemaError, lambda: WINDOWED.operate(made(hr.Operator, output="o DUBLE")(), "x"), ["unknown type"]),
        (SchemaError, lambda: WINDOWED.operate(made(hr.Operator, output="re DOUBLE")(), "x"), ["'re'"]),
        (
            SchemaError,
            lambda: STREAM.group_by("k").window(hr.tumbling(10)).operate(made(hr.Operator, output="k LONG")(), "x"),
            ["column 'k' appears twice"],
        ),
    ],
)
def test_schemas_are_checked_when_the_query_is_built(kind: Any, build: Callable[[], Any], words: list[str]):
    refused(kind, build, *words)


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        ("LONG", 3),
        (hr.Type.LONG, 3),
        ("BOOLEAN", True),
        ("STRING", "three"),
        ("ARRAY<DOUBLE>", [1.0, 2.0]),
        ("INT", None),
    ],
)
def test_answers_of_every_kind(output: Any, answer: Any):
    module = made(output=output, compute=lambda _, _values: answer)()
    assert rows(WINDOWED.aggregate(a=module.of("x"))) == [(0, 10, answer)]


# --- columns --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "build", "words"),
    [
        (UnknownColumn, lambda: WINDOWED.aggregate(a=Scaled(1.0).of("y")), ["there is no column 'y'"]),
        (UnknownColumn, lambda: WINDOWED.aggregate(a=Scaled(1.0)), ["there is no column 'v'"]),
        (UnknownColumn, lambda: WINDOWED.operate(Each()), ["there is no column 'v'"]),
        (ModuleError, lambda: WINDOWED.aggregate(a=Scaled(1.0).of("k")), ["takes v as DOUBLE", "k of type STRING"]),
        (ModuleError, lambda: WINDOWED.operate(Each(), v="k"), ["takes v as DOUBLE", "instead: k.cast('DOUBLE')"]),
        (ModuleError, lambda: WINDOWED.aggregate(a=made(input="v LONG")().of("x")), ["takes v as LONG", "DOUBLE"]),
        (ModuleError, lambda: WINDOWED.aggregate(a=made(input="v LONG")().of("flag")), ["takes v as LONG"]),
        (ModuleError, lambda: WINDOWED.aggregate(a=made(input="v STRING")().of("at")), ["takes v as STRING"]),
        (ModuleError, lambda: Scaled(1.0).of("x", "n"), ["cannot take these columns", "allowed: v DOUBLE"]),
        (ModuleError, lambda: Scaled(1.0).of(w="x"), ["cannot take these columns", "instead: of(v='v')"]),
        (ModuleError, lambda: Pairs().of("x", price="x"), ["gets price twice"]),
        (ModuleError, lambda: WINDOWED.operate(Each(), "x", "n"), ["cannot take these columns"]),
        (ExpressionError, lambda: WINDOWED.aggregate(a=hr.sum(Scaled(1.0).of("x"))), ["cannot stand inside another"]),
        (ExpressionError, lambda: Scaled(1.0).of(hr.sum("x")), ["cannot stand inside another"]),
        (ExpressionError, lambda: Scaled(1.0).of(Scaled(1.0).of("x") + 1), ["cannot stand inside another"]),
        (ExpressionError, lambda: WINDOWED.aggregate(a=Scaled), ["instead: aggregate(a=Scaled(...).of('column'))"]),
        (SchemaError, lambda: WINDOWED.aggregate(Scaled(1.0).of("x"), Scaled(2.0).of("x")), ["appears twice"]),
        (PlanError, lambda: WINDOWED.aggregate(a=Scaled(1.0).of("x") + col("n")), ["n outside an aggregate"]),
    ],
)
def test_columns_are_checked_when_the_query_is_built(kind: Any, build: Callable[[], Any], words: list[str]):
    refused(kind, build, *words)


@pytest.mark.parametrize(
    "call",
    [
        Pairs().of("x", "n"),
        Pairs().of("x", quantity="n"),
        Pairs().of(quantity=col("n"), price=col("x") * 1.0),
    ],
)
def test_columns_are_given_in_order_by_name_or_as_expressions(call: Any):
    assert rows(WINDOWED.aggregate(a=call)) == [(0, 10, 9.0)]


def test_a_field_that_is_not_given_is_the_column_of_its_name():
    named = STREAM.select(price=col("x"), quantity=col("n")).window(hr.tumbling(10))
    assert rows(named.aggregate(Pairs())) == [(0, 10, 9.0)]
    assert rows(named.aggregate(a=Pairs())) == [(0, 10, 9.0)]
    assert rows(STREAM.select(v=col("x")).window(hr.tumbling(10)).operate(Each())) == [(0, 10, 1.0), (0, 10, 4.0)]


def test_numbers_widen():
    assert rows(WINDOWED.aggregate(a=Scaled(1.0).of("n"))) == [(0, 10, 3.0)]


def test_modules_stand_in_expressions_beside_built_ins():
    answers = WINDOWED.aggregate(a=Scaled(2.0).of("x") / hr.count() + 1, n=hr.count(), b=Scaled(3.0, 1).of("n"))
    assert rows(answers) == [(0, 10, 6.0, 2, 10.0)]


# --- windows and policies -------------------------------------------------------------------------------------------


def window(**policy: Any) -> Any:
    return STREAM.window(hr.tumbling(10), **policy)


@pytest.mark.parametrize(
    ("kind", "build", "words"),
    [
        (PlanError, lambda: window(clipping="rigth"), ["there is no clipping 'rigth'", "none, left, right, full"]),
        (PlanError, lambda: window(timestamping="window"), ["there is no timestamping 'window'", "time_bound"]),
        (PlanError, lambda: window(on_error="ignore"), ["there is no on_error 'ignore'", "fail, skip"]),
        (PlanError, lambda: window(time_limit=0), ["a time limit must be positive", "instead: time_limit=5.0"]),
        (PlanError, lambda: window(time_limit=-1.0), ["a time limit must be positive"]),
        (PlanError, lambda: window(time_limit="5 s"), ["a time limit must be positive, in seconds"]),
        (PlanError, lambda: window(verify="yes"), ["verify is true or false"]),
        (PlanError, lambda: window(clipping="right").aggregate(a=Scaled(1.0).of("x")), ["time_sensitive = True"]),
        (PlanError, lambda: window(clipping="left").operate(Each(), "x"), ["clipping is for time-sensitive modules"]),
        (PlanError, lambda: window(clipping="full").aggregate(n=hr.count()), ["clipping is for time-sensitive"]),
        (PlanError, lambda: window(clipping="full").top(1, by="x"), ["clipping is for time-sensitive"]),
        (
            PlanError,
            lambda: window(timestamping="clip").aggregate(a=Scaled(1.0).of("x")),
            ["allowed: timestamping='align'"],
        ),
        (
            PlanError,
            lambda: window(timestamping="unchanged").aggregate(a=hr.time_weighted_avg("x")),
            ["only a time-sensitive operator may choose lifetimes"],
        ),
        (PlanError, lambda: window(timestamping="time_bound").operate(Each(), "x"), ["only a time-sensitive operator"]),
        (ModuleError, lambda: window().operate(Scaled(1.0), "x"), ["operate takes an operator", "aggregate(name="]),
        (ModuleError, lambda: window().operate(Each, "x"), ["operate takes an operator"]),
        (ModuleError, lambda: window().operate(3), ["operate takes an operator"]),
        (ExpressionError, lambda: window().aggregate(a=Each()), ["this is an operator", "operate(Each(), 'column')"]),
    ],
)
def test_policies_are_checked_when_the_query_is_built(kind: Any, build: Callable[[], Any], words: list[str]):
    refused(kind, build, *words)


def test_every_timestamping_and_clipping_of_a_time_sensitive_operator():
    """Two events, [1, 4) and [3, 9), seen from tumbling windows of 5."""
    both = STREAM.window(hr.tumbling(5)).operate(Spans(), "x")
    assert rows(both) == [(1, 4, 1.0, 0), (3, 9, 4.0, 1), (5, 9, 4.0, 0)]

    def under(**policy: Any) -> list[tuple]:
        return rows(STREAM.window(hr.tumbling(5), **policy).operate(Spans(), "x"))

    assert under(timestamping="align") == [(0, 5, 1.0, 0), (0, 5, 4.0, 1), (5, 10, 4.0, 0)]
    assert under(timestamping="clip") == [(1, 4, 1.0, 0), (3, 5, 4.0, 1), (5, 9, 4.0, 0)]
    assert under(clipping="right") == [(1, 4, 1.0, 0), (3, 5, 4.0, 1), (5, 9, 4.0, 0)]
    assert under(clipping="full", timestamping="align") == under(timestamping="align")


def test_a_time_insensitive_module_does_not_see_the_window():
    peeks = made(compute=lambda _, _values, window=None: float(window.le))()
    refused(ModuleError, lambda: WINDOWED.aggregate(a=peeks.of("x")).run(), "write time_sensitive = True")


@pytest.mark.parametrize("kind", ["list", "dicts", "tuples", "generator", "none"])
def test_an_operator_may_give_its_outputs_in_any_form(kind: str):
    forms = {
        "list": lambda _, values: values,
        "dicts": lambda _, values: [{"o": v} for v in values],
        "tuples": lambda _, values: ((v,) for v in values),
        "generator": lambda _, values: (v for v in values),
        "none": lambda _, _values: None,
    }
    module = made(hr.Operator, output="o DOUBLE", compute=forms[kind])()
    expected = [] if kind == "none" else [(0, 10, 1.0), (0, 10, 4.0)]
    assert rows(WINDOWED.operate(module, "x")) == expected


def test_explain_names_module_parameters_columns_and_policies():
    text = window(clipping="right", on_error="skip").operate(Spans(), v=col("x") + 1).explain()
    assert "Operate Spans()[v: x + 1] over tumbling(10 ticks) (clipping=right, on_error=skip)" in text
    assert "Scaled(factor=2.0" in WINDOWED.aggregate(a=Scaled(2.0).of("x")).explain()


# --- states ---------------------------------------------------------------------------------------------------------

COMING_AND_GOING = """
    kind    | le | re | re_new | k | x
    insert  | 1  | 2  |        | a | 1.0
    insert  | 12 | 13 |        | a | 5.0
    insert  | 3  | 4  |        | a | 7.0
    retract | 3  | 4  | 3      | a | 7.0
    insert  | 4  | 5  |        | a | 2.0
"""


class Kept(hr.IncrementalAggregate):
    """Writes down what it is asked."""

    input = "v DOUBLE"
    output = "DOUBLE"
    asked: ClassVar[list[tuple[str, list[float]]]] = []

    def initial(self) -> list[float]:
        return []

    def add(self, state: list[float], items: list[float]) -> None:
        self.asked.append(("add", list(items)))
        state.extend(items)

    def compute(self, state: list[float]) -> float:
        return sum(state)


class Movable(Kept):
    asked: ClassVar[list[tuple[str, list[float]]]] = []

    def remove(self, state: list[float], items: list[float]) -> None:
        self.asked.append(("remove", list(items)))
        for item in items:
            state.remove(item)


class InOrder(Movable):
    asked: ClassVar[list[tuple[str, list[float]]]] = []
    order_sensitive = True


def asked_of(module: Any) -> list[tuple[str, list[float]]]:
    module.asked.clear()
    stream = hr.events(COMING_AND_GOING, batches=[1] * 5).window(hr.tumbling(10)).aggregate(v=module.of("x"))
    assert stream.run().cht()["v"].to_pylist() == [3.0, 5.0]
    return module.asked


def test_a_state_is_given_what_came_and_went():
    assert asked_of(Movable()) == [("add", [1.0]), ("add", [5.0]), ("add", [7.0]), ("remove", [7.0]), ("add", [2.0])]


def test_a_state_without_remove_is_made_anew_from_what_is_left():
    assert asked_of(Kept()) == [("add", [1.0]), ("add", [5.0]), ("add", [7.0]), ("add", [1.0]), ("add", [2.0])]


def test_a_state_that_depends_on_order_is_always_made_anew_from_everything_in_order():
    asked = asked_of(InOrder())
    assert ("add", [1.0, 7.0]) in asked
    assert ("add", [1.0, 2.0]) in asked
    assert not [one for one in asked if one[0] == "remove" or one[1] in ([7.0], [2.0])]
