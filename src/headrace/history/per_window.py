"""Computations per window, as SQL over its content: a GROUP BY, a ranking, or a call of a user's module."""

# ruff: noqa: S608 - SQL is what is made here, and every name in it is the plan's own, quoted

from __future__ import annotations

from collections.abc import Sequence

from headrace.expr import AggregateCall, Expr
from headrace.history import ordered
from headrace.history.functions import list_function, module_function, operator_function
from headrace.history.translation import Translation
from headrace.history.windows import content
from headrace.modules import Module, ModuleCall
from headrace.plan.nodes import Aggregate, Contents, Operate, Over, PerWindow
from headrace.plan.ordered import Ordered
from headrace.schema import Field, Schema, Type

__all__ = ["aggregate", "call_sql", "contents", "keyed", "operate", "over", "window_columns"]


def keyed(t: Translation, node: PerWindow) -> tuple[list[str], str]:
    """The names of the keys, and the common table expressions up to `content`."""
    below = t.of(node)
    keys = [f"__k{i}" for i in range(len(node.keys))]
    exprs = "".join(f", {t.over(expr, below)} AS {key}" for key, (_, expr) in zip(keys, node.keys, strict=True))
    high = t.highs[node.input.fingerprint]
    keyed = f"keyed AS (\n  SELECT {t.all(below)}{exprs} FROM {below.name}\n)"
    windows = ordered.content(t, node, keys, high) if isinstance(node.window, Ordered) else content(t, node, keys, high)
    return keys, f"{keyed}, {windows}"


def window_columns(keys: Sequence[str], node: PerWindow) -> list[str]:
    """The columns that identify a window."""
    return [*keys, *(["__wid"] if isinstance(node.window, Ordered) else []), "__wle", "__wre"]


def aggregate(t: Translation, node: Aggregate) -> None:
    """One row for each window, from the engine's own aggregates and from Python functions."""
    answers, values = _answers(t, node)
    t.give(node, f"WITH {answers}\nSELECT __wle AS le, __wre AS re, {t.named(values, node.schema)} FROM answers")


def over(t: Translation, node: Over) -> None:
    """Each tuple beside the answers for its preceding tuples."""
    answers, values = _answers(t, node.aggregate)
    keys = [f"__k{i}" for i in range(len(node.keys))]
    same = "".join(f"e.{key} IS NOT DISTINCT FROM w.{key} AND " for key in keys)
    below = t.of(node)
    columns = {name: f"e.{t.quote(column)}" for name, column in below.columns.items()}
    columns |= {name: f"e.{key}" for key, (name, _) in zip(keys, node.keys, strict=True) if name not in below.schema}
    own = {name: f"__o{i}" for i, (name, _) in enumerate(node.outputs)}
    named = ", ".join(f"{values[name]} AS {new}" for name, new in own.items())
    result = t.named(columns | {name: f"w.{new}" for name, new in own.items()}, node.schema)
    by = "".join(f"{key}, " for key in keys)
    t.give(
        node,
        f"""WITH {answers}, results AS (
  SELECT {by}__wid, {named} FROM answers
)
SELECT e.le, e.re, {result} FROM placed e JOIN results w ON {same}e.__pos = w.__wid""",
    )


def _answers(t: Translation, node: Aggregate) -> tuple[str, dict[str, str]]:
    """Common table expressions up to `answers`, and the outputs as expressions over it."""
    keys, windows = keyed(t, node)
    by = ", ".join(window_columns(keys, node))
    calls, outputs = node.split
    folded, read, conditions = [], [], []
    for name, call in calls.items():
        if isinstance(call, ModuleCall):
            mapping = [call.mapping[field] for field in call.module.fields.names]
            function = t.function(lambda f, call=call: module_function(f, call.module, node))  # type: ignore[misc]
            folded.append(f"{_gathered(t, node, call.module, mapping)} AS {t.quote(name)}")
            read.append(f"{function}({t.quote(name)}, __wle, __wre) AS {t.quote(name)}")
            conditions.append(f"{t.quote(name)}.given")
        else:
            folded.append(f"{call_sql(t, node, call)} AS {t.quote(name)}")
            read.append(t.quote(name))
    below = node.input.schema
    schema = Schema(tuple(Field(name, call.type(below)) for name, call in calls.items()))
    plain = {name: name for name in calls}
    quoted = {name: t.quote(name) for name in calls}
    given = [f"{quoted[n]}.value AS {quoted[n]}" if isinstance(c, ModuleCall) else quoted[n] for n, c in calls.items()]
    values = {name: t.expr(expr, schema, plain) for name, expr in outputs.items()}
    values |= {name: key for key, (name, _) in zip(keys, node.keys, strict=True)}
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    text = f"""{windows}, folded AS (
  SELECT {by}, {", ".join(folded)} FROM content GROUP BY {by}
), answered AS (
  SELECT {by}, {", ".join(read)} FROM folded
), answers AS (
  SELECT {by}, {", ".join(given)} FROM answered{where}
)"""
    return text, values


def _order(node: PerWindow) -> str:
    """The order of a window's events: by their positions in the group, for windows of tuples."""
    return "__pos" if isinstance(node.window, Ordered) and not node.sensitive else "le"


def _gathered(t: Translation, node: PerWindow, module: Module, mapping: Sequence[Expr]) -> str:
    """The events of a window as a list of the module's items."""
    below = t.of(node)
    start = _order(node)
    fields = {"le": start, "re": "re" if start == "le" else f"{start} + 1"}
    for number, (expr, field) in enumerate(zip(mapping, module.fields, strict=True)):
        fields[f"f{number}"] = f"CAST({t.over(expr, below)} AS {t.dialect.type(field.type.arrow)})"
    return f"{t.dialect.gather}({t.dialect.struct(fields)})"


def call_sql(t: Translation, node: Aggregate, call: AggregateCall) -> str:
    """A built-in aggregate: the engine's own where it is exact, else of the list of values."""
    below = t.of(node)
    if call.argument is None:
        return "count(*)"
    value, kind = t.over(call.argument, below), call.argument.type(below.schema)
    plain = {
        "count": f"count({value})",
        "min": f"min({value})",
        "max": f"max({value})",
        "distinct_count": f"count(DISTINCT {value})",
    }
    if call.function in plain:
        return plain[call.function]
    if call.function == "approx_distinct" and not node.input.properties.insert_only:
        return plain["distinct_count"]  # a sketch cannot forget: where events are taken back, all values are kept
    total = f"sum(CAST({value} AS {t.dialect.wide}))"
    if call.function == "sum" and kind.is_integer:
        return f"TRY_CAST({total} AS BIGINT)"
    if call.function == "avg" and kind.is_integer:  # through text, which both engines read exactly
        return f"CAST(CAST({total} AS STRING) AS DOUBLE) / count({value})"
    if kind.is_decimal and call.function in ("sum", "avg"):
        exact = f"sum(CAST({value} AS DECIMAL(38, {kind.scale})))"
        return exact if call.function == "sum" else f"CAST(CAST({exact} AS STRING) AS DOUBLE) / count({value})"
    takes = Type.DOUBLE if kind is Type.FLOAT and call.function in ("sum", "avg") else kind
    gives = call.type(below.schema)
    parameters = (takes.arrow,) if call.function == "approx_distinct" else call.parameters
    function = t.function(lambda f: list_function(f, call.function, parameters, takes, gives))
    item = t.dialect.struct({"le": _order(node), "value": f"CAST({value} AS {t.dialect.type(takes.arrow)})"})
    return f"{function}({t.dialect.gather}({item}))"


def contents(t: Translation, node: Contents) -> None:
    """The events of each window, and its start."""
    keys, windows = keyed(t, node)
    below = t.of(node)
    values = {name: t.quote(column) for name, column in below.columns.items()}
    values |= {name: key for key, (name, _) in zip(keys, node.keys, strict=True) if name not in below.schema}
    values |= {} if node.start is None else {node.start: "__wle"}
    t.give(node, f"WITH {windows}\nSELECT __wle AS le, __wre AS re, {t.named(values, node.schema)} FROM content")


def operate(t: Translation, node: Operate) -> None:
    """The outputs of a user's operator for each window's events."""
    keys, windows = keyed(t, node)
    by = ", ".join(window_columns(keys, node))
    function = t.function(lambda f: operator_function(f, node))
    values = {field.name: f"__output.f{i}" for i, field in enumerate(node.module.gives)}
    values |= {name: key for key, (name, _) in zip(keys, node.keys, strict=True)}
    mapping = [dict(node.mapping)[field] for field in node.module.fields.names]
    t.give(
        node,
        f"""WITH {windows}, gathered AS (
  SELECT {by}, {_gathered(t, node, node.module, mapping)} AS __events FROM content GROUP BY {by}
), computed AS (
  SELECT *, {function}(__events, __wle, __wre) AS __outputs FROM gathered
), outputs AS (
  SELECT {by}, {t.dialect.explode}(__outputs) AS __output FROM computed
)
SELECT __output.le AS le, __output.re AS re, {t.named(values, node.schema)} FROM outputs""",
    )
