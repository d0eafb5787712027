"""Kinds of queries per window and group: aggregates, rankings, a user's modules and functions (rules 5 and 6)."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.testing.intents.kind import PLAIN, Kind, Options

__all__ = ["PER_WINDOW"]

_SIZES = ("1", "small", "large")
_WINDOWS: Mapping[str, tuple[str, str, str]] = {
    "tumbling": ("hr.tumbling(1)", "hr.tumbling(4)", "hr.tumbling(12)"),
    "hopping": ("hr.hopping(2, every=1)", "hr.hopping(5, every=2)", "hr.hopping(12, every=5)"),
    "jumping": ("hr.hopping(1, every=3)", "hr.hopping(3, every=5)", "hr.hopping(7, every=12)"),
    "hopping_with_origin": (
        "hr.hopping(1, every=2, origin=1)",
        "hr.hopping(4, every=3, origin=-2)",
        "hr.hopping(10, every=4, origin=7)",
    ),
    "snapshot": ("hr.snapshot()", "hr.snapshot()", "hr.snapshot()"),
    "count_by_start": ("hr.count_by_start(1)", "hr.count_by_start(2)", "hr.count_by_start(4)"),
    "count_by_end": ("hr.count_by_end(1)", "hr.count_by_end(2)", "hr.count_by_end(4)"),
    "session": ("hr.session(1)", "hr.session(4)", "hr.session(9)"),
}
_GROUPS = {
    "none": "",
    "one": ".group_by('k')",
    "two": ".group_by('k', 'i')",
    "float": ".group_by('x')",
    "computed": ".group_by(k=hr.when(hr.col('i') > 0).then(hr.lit('a')).otherwise('k'))",
    # Under the name of a column that is aggregated as well.
    "renewed": ".group_by(i=(hr.col('i') > 0).cast('LONG'))",
}
_WINDOWED = {"window": tuple(_WINDOWS), "size": _SIZES, "keys": tuple(_GROUPS)}
#: Modules give the column of floats, so that it cannot be their key.
_FOR_MODULES = _WINDOWED | {"keys": tuple(name for name in _GROUPS if name != "float")}


def _window(options: Options) -> str:
    return _WINDOWS[options["window"]][_SIZES.index(options["size"])]


def _policy(options: Options) -> str:
    """The policies of a window clause, as its further arguments."""
    parts = [f", clipping={options['clipping']!r}"] if options["clipping"] != "none" else []
    parts += [f", timestamping={options['timestamping']!r}"] if options["timestamping"] != "default" else []
    return "".join([*parts, ", verify=True" if options["verify"] == "yes" else ""])


def _grouped_by(keys: str) -> str:
    """The columns that a group's keys give."""
    return {"none": "", "one": "k", "two": "ki", "float": "x", "computed": "k", "renewed": "i"}[keys]


#: Keys come first among the columns that a window gives.
_OUT_OF_ORDER = ("float", "renewed")


#: What an aggregate gives as k, i and x, as far as these are not keys already.
_FUNCTIONS: Mapping[str, tuple[str, str, str]] = {
    "count": ("hr.max('k')", "hr.count()", "hr.count('x').cast('DOUBLE')"),
    "sum": ("hr.max('k')", "hr.sum('i')", "hr.sum('x')"),
    "avg": ("hr.max('k')", "hr.sum('i')", "hr.avg('x')"),
    "min": ("hr.min('k')", "hr.min('i')", "hr.min('x')"),
    "max": ("hr.max('k')", "hr.max('i')", "hr.max('x')"),
    "var": ("hr.min('k')", "hr.count()", "hr.var('x')"),
    "stddev": ("hr.min('k')", "hr.count('i')", "hr.stddev('i')"),
    "first": ("hr.first('k')", "hr.first('i')", "hr.first('x')"),
    "last": ("hr.last('k')", "hr.last('i')", "hr.last('x')"),
    "median": ("hr.last('k')", "hr.sum('i')", "hr.median('x')"),
    "quantile": ("hr.max('k')", "hr.last('i')", "hr.quantile('x', 0.3)"),
    "collect": (
        "foremost(hr.collect('k'), hr.max('k'))",
        "hr.distinct_count('x')",
        "sequence(hr.collect('x'))",
    ),
    "distinct_count": ("hr.max('k')", "hr.distinct_count('x')", "hr.distinct_count('k').cast('DOUBLE')"),
    "approx_distinct": ("hr.max('k')", "hr.approx_distinct('i')", "hr.approx_distinct('x').cast('DOUBLE')"),
    "top_frequent": (
        "foremost(hr.top_frequent('k', 2), hr.first('k'))",
        "size(hr.top_frequent('x', 3))",
        "sequence(hr.top_frequent('x', 2))",
    ),
    "geometric_mean": ("hr.first('k')", "hr.sum('i')", "hr.geometric_mean('x')"),
    "concat": ("hr.concat('k', '-')", "hr.count('k')", "hr.concat('k', '-').length().cast('DOUBLE')"),
    "both_orders": ("hr.first('k')", "hr.distinct_count('k')", "hr.last('x') + hr.distinct_count('x')"),
    "several": (
        "hr.concat('k', '')",
        "hr.max('i') - hr.min('i')",
        "hr.sum(hr.col('x') + hr.col('i')) / hr.count('x') + hr.median('i')",
    ),
}


def _given(outputs: tuple[str, ...], keys: str) -> str:
    """The outputs that are not keys, as arguments."""
    return ", ".join(
        f"{name}={text}" for name, text in zip("kix", outputs, strict=True) if name not in _grouped_by(keys)
    )


#: Which answers are kept, by a number that some keys give and otherwise the aggregate.
_HAVING = {"all": "", "some": ".where(hr.col('i') > 0)"}


def _aggregate(names: tuple[str, ...], options: Options) -> str:
    outputs = _given(_FUNCTIONS[options["function"]], options["keys"])
    aggregate = f".aggregate({outputs}){_HAVING[options['having']]}{_plain(options)}"
    return f"{names[0]}{_GROUPS[options['keys']]}.window({_window(options)}){aggregate}"


def _plain(options: Options) -> str:
    """What brings the columns back to their order, if it is another."""
    return PLAIN if options["keys"] in _OUT_OF_ORDER else ""


#: Groups of groups: by more keys, then by fewer, or by the same in another order. Rows are together by what came first.
_LEVELS = {
    "one": (".group_by('k')", "i=hr.sum('i'), x=hr.sum('x')"),
    "two": (".group_by('k', 'i')", "x=hr.sum('x')"),
    "swapped": (".group_by('i', 'k')", "x=hr.max('x')"),
    "none": ("", "k=hr.max('k'), i=hr.count(), x=hr.sum('x')"),
}
_LEVEL_WINDOWS = {
    "tumbling": "hr.tumbling(3)",
    "hopping": "hr.hopping(6, every=2)",
    "snapshot": "hr.snapshot()",
    "session": "hr.session(5)",
}


def _rollup(names: tuple[str, ...], options: Options) -> str:
    text = names[0]
    for level, window in (("finer", "window"), ("coarser", "again")):
        keys, outputs = _LEVELS[options[level]]
        if level == "finer" and options["by"] == "module":
            outputs = f"x={_MODULE_AGGREGATES['merging']}"
        text += f"{keys}.window({_LEVEL_WINDOWS[options[window]]}).aggregate({outputs})"
    return text + PLAIN


_ORDERS = {
    "number": "'i'",
    "float": "'x'",
    "text": "'k'",
    "several": "['i', 'x']",
    "computed": "hr.col('x') * -1.0",
}
#: Of a ranking, the key must have a name of its own where it is computed.
_TOP_GROUPS = {name: text for name, text in _GROUPS.items() if name != "renewed"} | {
    "computed": ".group_by(up=hr.col('i') > 0)"
}


def _top(names: tuple[str, ...], options: Options) -> str:
    window = f".window({_window(options)})"
    descending = "" if options["order"] == "descending" else ", descending=False"
    plain = PLAIN if options["keys"] == "computed" else ""
    skip = "" if options["skip"] == "none" else ", skip=1"
    top = f".top({options['k']}, by={_ORDERS[options['by']]}{descending}{skip})"
    return f"{names[0]}{_TOP_GROUPS[options['keys']]}{window}{top}{plain}"


# --- a user's modules -------------------------------------------------------------------------------------------------

_CLIPPINGS = ("none", "left", "right", "full")
_MODULE_AGGREGATES = {
    "plain": "Seen().of('i', 'x')",
    "timed": "SeenInTime().of('i', 'x')",
    "time_weighted": "hr.time_weighted_avg('x')",
    "incremental": "PayloadChecksum().of('i', 'x')",
    "growing": "Grown().of('i', 'x')",
    "merging": "Merged().of('i', 'x')",
    "two_merging": "Merged().of('i', 'x') - Merged().of('i', hr.col('x') + 1.0)",
    "in_order": "InOrder().of('i', 'x')",
}
_OPERATORS = {
    "plain": "Each()",
    "choosy": "Largest()",
    "incremental": "TallyEach()",
    "timed": "Later()",
    "onwards": "Onwards()",
}
_SEES_TIMES = {"timed", "time_weighted", "in_order", "onwards"}


def _clips(options: Options) -> bool:
    """Only a module that sees lifetimes can be shown parts of them."""
    return options.get("clipping", "none") == "none" or options.get("module", "timed") in _SEES_TIMES


def _operates(options: Options) -> bool:
    """Only a module that sees lifetimes gives any; only one that looks at nothing later can be bound in time."""
    module, timestamping = options.get("module", "onwards"), options.get("timestamping", "default")
    if module not in _SEES_TIMES and timestamping not in ("default", "align"):
        return False
    if timestamping == "time_bound":
        # A window that counts is complete only with its last time: too late for its first events.
        counts = options.get("window", "snapshot").startswith("count")
        return module == "onwards" and not counts and _clips(options)
    return _clips(options)


def _module_aggregate(names: tuple[str, ...], options: Options) -> str:
    module = _MODULE_AGGREGATES[options["module"]]
    outputs, plain = _given(("hr.max('k')", "hr.count()", module), options["keys"]), _plain(options)
    if options["beside"] == "nothing":
        outputs, plain = f"x={module}", f".select({_constants(_grouped_by(options['keys']) + 'x')})"
    window = f".window({_window(options)}{_policy(options)})"
    return f"{names[0]}{_GROUPS[options['keys']]}{window}.aggregate({outputs}){plain}"


def _constants(known: str) -> str:
    """The columns that all streams have: those that are known, and constants."""
    others = {"k": "hr.lit('a')", "i": "hr.lit(1).cast('LONG')"}
    return ", ".join(f"{name}=hr.col({name!r})" if name in known else f"{name}={others[name]}" for name in "kix")


def _operate(names: tuple[str, ...], options: Options) -> str:
    given = {"k": "hr.col('label')", "i": "hr.col('n')", "x": "hr.col('value')"}
    kept = _grouped_by(options["keys"])
    columns = ", ".join(f"{name}=hr.col({name!r})" if name in kept else f"{name}={given[name]}" for name in "kix")
    window = f".window({_window(options)}{_policy(options)})"
    operate = f".operate({_OPERATORS[options['module']]}, 'i', 'x')"
    return f"{names[0]}{_GROUPS[options['keys']]}{window}{operate}.select({columns})"


_UDFS = {"plain": "halved", "sees_nulls": "known", "vectorised": "capped", "errors_are_null": "reciprocal"}
_PLACES = {
    "where": "{a}.where({function}('x') > 0.3)",
    "select": "{a}.select('k', 'i', x={function}('x'))",
    "key": "{a}.group_by(x={function}('x')).window(hr.tumbling(4)).aggregate(k=hr.max('k'), i=hr.count())" + PLAIN,
    "inside_aggregate": "{a}.group_by('k').window(hr.snapshot()).aggregate(i=hr.count(), x=hr.sum({function}('x')))",
    "over_aggregate": "{a}.group_by('k').window(hr.tumbling(5)).aggregate(i=hr.count(), x={function}(hr.avg('x')))",
    "join": "{a}.join({a}, on=('k', 'i'), where={function}('x') < {function}('x_right')).select('k', 'i', 'x')",
}


def _udf(names: tuple[str, ...], options: Options) -> str:
    return _PLACES[options["place"]].format(a=names[0], function=_UDFS[options["function"]])


PER_WINDOW = (
    Kind("aggregate", 1, _WINDOWED | {"function": tuple(_FUNCTIONS), "having": tuple(_HAVING)}, _aggregate),
    Kind(
        "rollup",
        1,
        {
            "finer": ("two", "swapped"),
            "coarser": tuple(_LEVELS),
            "window": ("tumbling", "hopping", "snapshot"),
            "again": ("tumbling", "snapshot", "session"),
            "by": ("function", "module"),
        },
        _rollup,
    ),
    Kind(
        "top",
        1,
        _WINDOWED
        | {
            "keys": tuple(_TOP_GROUPS),
            "k": ("1", "2", "5"),
            "skip": ("none", "one"),
            "by": tuple(_ORDERS),
            "order": ("descending", "ascending"),
        },
        _top,
    ),
    Kind(
        "operate",
        1,
        _FOR_MODULES
        | {
            "module": tuple(_OPERATORS),
            "clipping": _CLIPPINGS,
            "timestamping": ("default", "align", "unchanged", "clip", "time_bound"),
            "verify": ("no", "yes"),
        },
        _operate,
        _operates,
    ),
    Kind(
        "module_aggregate",
        1,
        _FOR_MODULES
        | {
            "module": tuple(_MODULE_AGGREGATES),
            "beside": ("others", "nothing"),
            "clipping": _CLIPPINGS,
            "timestamping": ("default", "align"),
            "verify": ("no", "yes"),
        },
        _module_aggregate,
        _clips,
    ),
    Kind("udf", 1, {"place": tuple(_PLACES), "function": tuple(_UDFS)}, _udf, small={"place": tuple(_PLACES)[:-1]}),
)
