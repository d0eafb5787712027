"""Kinds of queries that join two streams, or a stream and a table (rule 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.testing.intents.kind import PLAIN, Kind, Options, written

__all__ = ["MEETINGS"]

_ON = {"text": "'k'", "number": "'i'", "float": "'x'", "two": "('k', 'i')", "renamed": "{'i': 'n'}"}
#: By join columns: the other columns of the right stream, with their names in the result.
_BESIDE = {
    "text": {"i": "i_right", "x": "x_right"},
    "number": {"k": "k_right", "x": "x_right"},
    "float": {"k": "k_right", "i": "i_right"},
    "two": {"x": "x_right"},
    "renamed": {"k": "k_right", "x": "x_right"},
    "nothing": {"k": "k_right", "i": "i_right", "x": "x_right"},
}
_CONDITIONS = ("none", "less", "unequal", "null")
_TAKEN = ("left", "right", "mixed")


def _condition(condition: str, beside: Mapping[str, str]) -> str:
    left_column, right_column = list(beside.items())[-1]
    left_column, right_column = f"hr.col({left_column!r})", f"hr.col({right_column!r})"
    return {
        "none": "",
        "less": f", where={left_column} < {right_column}",
        "unequal": f", where={left_column} != {right_column}",
        "null": f", where={right_column}.is_null() | ({left_column} == {right_column})",
    }[condition]


def _taken(taken: str, beside: Mapping[str, str]) -> str:
    """The columns of a join that its output takes."""
    if taken == "left":
        return PLAIN
    if taken == "right":
        columns = ", ".join(f"{name}=hr.col({beside.get(name, name)!r})" for name in "kix")
    else:
        columns = ", ".join(
            f"{name}=hr.col({beside[name]!r}).coalesce(hr.col({name!r}))"
            if name in beside
            else f"{name}=hr.col({name!r})"
            for name in "kix"
        )
    return f".select({columns})"


def _joined(method: str) -> Callable[[tuple[str, ...], Options], str]:
    def python(names: tuple[str, ...], options: Options) -> str:
        left, right = names
        on = options["on"]
        if on == "renamed":
            right = f"{right}.select('k', 'x', n=hr.col('i'))"
        keys = f", on={_ON[on]}" if on in _ON else ""
        taken = _taken(options["columns"], _BESIDE[on]) if "columns" in options else ""
        return f"{left}.{method}({right}{keys}{_condition(options['where'], _BESIDE[on])}){taken}"

    return python


_THETAS = {
    "less": "hr.col('i') < hr.col('i_right')",
    "text": "(hr.col('k') == hr.col('k_right')) | hr.col('k').is_null()",
    "near": "hr.col('x').between(hr.col('x_right') - 1.0, hr.col('x_right') + 1.0)",
    "equal": "hr.col('i') == hr.col('i_right')",
    "always": "hr.lit(True)",
}


def _theta(names: tuple[str, ...], options: Options) -> str:
    left, right = names
    taken = _taken(options["columns"], _BESIDE["nothing"])
    return f"{left}.join({right}, where={_THETAS[options['predicate']]}){taken}"


#: Streams derived from a stream, to join it with.
_OF_ITSELF = {
    "itself": "{a}",
    "shifted": "{a}.shift(2)",
    "filtered": "{a}.where(hr.col('i') > 0)",
    "counted": "{a}.group_by('k').window(hr.tumbling(4)).aggregate(i=hr.count(), x=hr.max('x'))",
    "ends": "{a}.point_at_end()",
}
_SELF_ON = ("text", "number", "two")


def _self_join(names: tuple[str, ...], options: Options) -> str:
    other = _OF_ITSELF[options["other"]].format(a=names[0])
    taken = ".select('k', 'i', x=hr.col('x_right'))" if options["method"] in ("join", "left_join") else ""
    return f"{names[0]}.{options['method']}({other}, on={_ON[options['on']]}){taken}"


_TABLES = {
    "text": "TEXTS, on='k', how={how}).select('k', i=hr.col('number'), x=hr.col('x'))",
    "number": "NUMBERS, on='i', how={how}).select('k', 'i', x=hr.col('factor'))",
    "renamed": "TEXTS, on={{'i': 'number'}}, how={how}).select(k=hr.col('name'), i=hr.col('i'), x=hr.col('x'))",
}


def _table_join(names: tuple[str, ...], options: Options) -> str:
    return f"{names[0]}.join_table({_TABLES[options['table']].format(how=repr(options['how']))}"


MEETINGS = (
    Kind(
        "equi_join",
        2,
        {"on": tuple(_ON), "where": _CONDITIONS, "columns": _TAKEN},
        _joined("join"),
        small={"on": ("number", "two", "renamed")},
    ),
    Kind("theta_join", 2, {"predicate": tuple(_THETAS), "columns": _TAKEN}, _theta, small={"predicate": ("equal",)}),
    Kind(
        "left_join",
        2,
        {"on": (*_ON, "nothing"), "where": _CONDITIONS, "columns": _TAKEN},
        _joined("left_join"),
        small={"on": ("number", "two", "renamed")},
    ),
    Kind("anti_join", 2, {"on": (*_ON, "nothing"), "where": _CONDITIONS}, _joined("anti_join")),
    Kind(
        "self_join",
        1,
        {"method": ("join", "left_join", "anti_join", "clip"), "other": tuple(_OF_ITSELF), "on": _SELF_ON},
        _self_join,
        small={"on": _SELF_ON[1:]},
    ),
    written(
        "clip",
        2,
        "{a}.clip({by}{on})",
        by={"starts": "{b}", "ends": "{b}.point_at_end()"},
        on={"nothing": "", "text": ", on='k'", "number": ", on='i'", "two": ", on=('k', 'i')"},
    ),
    Kind("table_join", 1, {"table": tuple(_TABLES), "how": ("inner", "left")}, _table_join),
)
