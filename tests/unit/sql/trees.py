"""Any tree of a script, as strategies of Hypothesis.

What makes a tree is a function with a name, never a lambda: to describe a lambda that uses a module, Hypothesis imports
the module, and cannot import `headrace.sql.syntax` so, because `headrace.sql` is a function.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from headrace.sql import syntax as s
from headrace.sql.tables import tables

characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
texts = st.text(characters, max_size=6)
keywords = [*sorted(tables().lexemes.words), "datetime", "cast", "try_cast", "s", "first", "this", "x"]
keywords += ["match_recognize", "permute", "final", "running"]
names = st.builds(
    s.Name, st.one_of(st.sampled_from(keywords).map(str.lower), st.text(characters, min_size=1, max_size=4))
)
counts = st.integers(0, 10**9)
amounts = st.one_of(counts, st.floats(0, 1e9, allow_subnormal=False))
units = st.sampled_from(["s", "ms", "us", "µs", "min", "m", "hours", "Days", "weeks", "tick", "sec"])
some_durations = st.lists(st.tuples(amounts, units), min_size=1, max_size=3).map(tuple).map(s.Duration)
durations = st.one_of(some_durations, st.just(s.Duration(())))
numbers = st.builds(s.Number, st.one_of(st.integers(0, 10**30), st.floats(0, allow_infinity=False)))
columns = st.builds(s.Column, names, st.none() | names)
stars = st.builds(s.Star, st.none() | names)
leaves = st.one_of(
    numbers,
    texts.map(s.Text),
    st.sampled_from([True, False, None]).map(s.Value),
    texts.map(s.DateTime),
    st.builds(s.TypedText, st.sampled_from(["DATE", "DECIMAL"]), texts),
    some_durations,
    columns,
)  # an INTERVAL is read as a duration, and written as one


def array(values: Any) -> s.Call:
    return s.Call((s.Name("array"),), values)


def repeated(part: Any, often: Any, greedy: bool) -> s.ShapeRepeat:
    return s.ShapeRepeat(part, *often, greedy)


def in_a_condition(test: Any) -> s.Binary:
    return s.Binary("AND", s.Unary("NOT", test), s.Binary("OR", test, s.Value(value=True)))


def upper(name: s.Name) -> s.Name:
    return s.Name(name.text.upper())


def rows_of(n: int) -> st.SearchStrategy[Any]:
    return several(st.builds(s.ValuesRow, st.tuples(*[small] * n)), 1)


def unordered(select: Any) -> Any:
    return replace(select, order=(), limit=None)


def no_list(query: s.Query) -> s.Query:
    """Anything but a list of rows: to insert such a list is written as, and read as, `InsertValues`."""
    return replace(query, emit="final") if query == s.Query(query.body) and isinstance(query.body, s.Values) else query


def with_queries(query: Any, more: Any, loop: bool) -> Any:
    return replace(query, named=more, recursive=loop)


def aggregate(name: Any, parameters: Any, gives: Any, **more: Any) -> s.CreateAggregate:
    return s.CreateAggregate(name, parameters, **gives, **more)


def schema(name: Any, shape: Any, extends: Any) -> s.CreateSchema:
    return s.CreateSchema(name, **shape, extends=extends if shape else s.Name("p"))


def stream(name: Any, shape: Any, **clauses: Any) -> s.CreateStream:
    return s.CreateStream(name, **shape, **clauses)


def several(parts: st.SearchStrategy[Any], least: int = 0) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(parts, min_size=least, max_size=least + 2).map(tuple)


def maybe(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | parts


OPERATORS = ["+", "-", "*", "/", "%", "||", "=", "<>", "<", "<=", ">", ">=", "AND", "OR", "&", "|", "^", "<<", ">>"]


def over(partition: Any, frame: Any, slide: Any, active: bool, order: Any, base: Any) -> s.Over:
    return s.Over(partition, *frame[:2], slide, active, order, frame[2], base)


def overs(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[s.Over]:
    bounds = st.builds(s.FrameBound, st.sampled_from(["preceding", "following"]), maybe(some_durations | numbers))
    between = st.tuples(*(bounds | st.just(s.FrameBound("current")),) * 2)
    frames = st.one_of(
        st.just(("unbounded", None, ())),
        st.tuples(st.just("rows"), counts.map(s.Number), st.just(())),
        st.tuples(st.just("range"), some_durations | numbers, st.just(())),
        st.tuples(st.sampled_from(["rows", "range"]), st.none(), between),
    )
    return st.builds(
        over,
        several(parts), frames, maybe(some_durations | numbers), st.booleans(),
        several(st.builds(s.OrderKey, parts, st.booleans())), maybe(names),
    )  # fmt: skip


def nameds(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[s.Named]:
    return st.builds(s.Named, names, parts)


def calls(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[s.Call]:
    plain = st.builds(
        s.Call, several(names, 1), several(parts | stars), several(nameds(parts)),
        over=maybe(overs(parts)), filter=maybe(parts),
    )  # fmt: skip
    order = several(st.builds(s.OrderKey, parts, st.booleans()))
    return plain | st.builds(s.Call, several(names, 1), several(parts, 1), distinct=st.booleans(), order=order)


json_steps = st.one_of(
    st.builds(s.Text, st.sampled_from(["a", "it's"])),
    st.builds(s.Number, st.integers(0, 9)),
    st.builds(s.Unary, st.just("-"), st.builds(s.Number, st.integers(0, 9))),
)


def larger(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[s.Expression]:
    pairs = st.builds(s.Row, st.tuples(parts, parts))
    return st.one_of(
        st.builds(s.Unary, st.sampled_from(["-", "+", "NOT", "~"]), parts),
        st.builds(s.Binary, st.sampled_from(OPERATORS), parts, parts),
        st.builds(s.Between, parts, parts, parts, st.booleans()),
        st.builds(s.In, parts, several(parts, 1), st.booleans()),
        st.builds(s.In, pairs, several(pairs, 1), st.booleans()),
        st.builds(s.IsNull, parts, st.booleans(), st.sampled_from(["NULL", "TRUE", "FALSE", "UNKNOWN"])),
        st.builds(s.IsDistinct, parts, parts, st.booleans()),
        st.builds(s.Element, parts, parts),
        several(parts, 1).map(array),
        st.builds(s.IsJson, parts, st.sampled_from(["value", "object", "array", "scalar"]), st.booleans()),
        st.builds(s.Binary, st.sampled_from(["->", "->>"]), parts, json_steps),
        st.builds(s.Like, parts, parts, st.sampled_from(["LIKE", "ILIKE", "REGEXP"]), st.booleans()),
        st.builds(s.Case, several(st.tuples(parts, parts), 1), maybe(parts), maybe(parts)),
        st.builds(s.Cast, parts, names | st.sampled_from([s.Name("DECIMAL(15,2)"), s.Name("ARRAY<INT>")])),
        calls(parts),
        st.builds(s.Member, calls(parts), names),
        st.builds(s.Extent, st.sampled_from(["final", "running"]), navigations(parts)),
    )


def navigations(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[s.Call]:
    known = st.sampled_from(["first", "LAST", "prev", "classifier", "count", "sum"]).map(s.Name)
    return st.builds(s.Call, st.tuples(known), several(parts | stars))


def local_selects(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[s.LocalSelect]:
    entries = several(st.builds(s.Entry, parts, maybe(names)) | st.builds(s.Entry, stars), 1)
    more: dict[str, Any] = {
        "where": maybe(parts),
        "order": several(st.builds(s.OrderKey, parts, st.booleans())),
        "limit": maybe(counts),
    }
    return st.builds(s.LocalSelect, entries, **more) | st.builds(s.LocalSelect, entries, names, maybe(names), **more)


expressions = st.recursive(leaves, larger, max_leaves=8)
small = st.recursive(leaves, larger, max_leaves=3)
measures = st.one_of(
    counts.map(s.Tuples), durations.map(s.Arrival), st.builds(s.Application, durations | numbers, columns)
)
policies = st.builds(
    s.WindowPolicies,
    maybe(st.sampled_from(["left", "right", "full", "none"])),
    maybe(st.sampled_from(["align", "unchanged", "clip", "time_bound"])),
)
window = {"partition": several(columns), "where": maybe(small), "policies": policies}
signed = st.one_of(durations, st.builds(s.Unary, st.just("-"), durations))
brackets = st.one_of(
    st.builds(
        s.SizeWindow, size=measures, every=maybe(measures), starting=st.none() | st.just("first") | small, **window
    ),
    st.builds(s.GridWindow, size=durations, every=maybe(durations), starting=maybe(small), on=maybe(columns), **window),
    st.builds(s.SnapshotWindow, **window),
    st.builds(s.CountWindow, edge=st.sampled_from(["start", "end"]), count=counts, **window),
    st.builds(s.SessionWindow, gap=durations, on=maybe(columns), **window),
    st.builds(s.DeltaWindow, delta=small, threshold=small, **window),
    st.builds(s.LandmarkWindow, start=small, every=measures, **window),
    st.builds(s.FixedWindow, start=small, end=small, **window),
    st.builds(s.Lifespan, st.just("range"), durations),
    st.builds(s.Lifespan, st.just("chop"), durations, maybe(small)),
    st.builds(s.Lifespan, st.sampled_from(["now", "point_at_start", "point_at_end", "coalesce"])),
    st.builds(s.Lifespan, st.sampled_from(["shift", "extend", "cap"]), signed),
    st.builds(s.Module, calls(small)),
)
entries = st.builds(s.Entry, small, maybe(names)) | st.builds(s.Entry, stars)
order_keys = st.builds(s.OrderKey, small, st.booleans())


def shapes_of(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[s.Shape]:
    times = st.tuples(st.integers(0, 9), st.none() | st.integers(0, 9))
    return st.one_of(
        several(parts, 2).map(s.ShapeChain),
        several(parts, 2).map(s.ShapeChoice),
        several(parts, 1).map(s.ShapePermute),
        parts.map(s.ShapeAbsent),
        st.builds(repeated, parts, times, st.booleans()),
    )


pattern_shapes = st.recursive(names.map(s.ShapeVariable), shapes_of, max_leaves=5)
definitions = st.builds(s.Definition, names, small)
starts = numbers | texts.map(s.Text) | st.builds(s.Unary, st.just("-"), numbers)
patterns = st.builds(
    s.MatchRecognize,
    pattern_shapes,
    several(st.builds(s.Entry, small, maybe(names))),
    several(order_keys),
    several(st.builds(s.Entry, small, names)),
    maybe(st.sampled_from(["one", "all"])),
    maybe(
        st.sampled_from(["past", "next"]).map(s.AfterMatch)
        | st.builds(s.AfterMatch, st.sampled_from(["first", "last"]), names)
    ),
    maybe(st.sampled_from(["all", "partial"])),
    maybe(durations | numbers),
    several(st.builds(s.Register, names, starts, several(definitions, 1))),
    several(st.builds(s.Subset, names, several(names, 1))),
    st.booleans(),
    several(definitions),
    maybe(small),
)


inner_queries = st.builds(
    s.Query, st.builds(s.Select, several(entries, 1), st.builds(s.FromItem, names), st.just(()), maybe(small))
)
tests_of_queries = st.one_of(
    inner_queries.map(s.Exists),
    inner_queries.map(s.ScalarQuery),
    st.builds(s.InQuery, small, inner_queries, st.booleans()),
    st.builds(s.Quantified, st.sampled_from(["<", ">="]), small, inner_queries, st.booleans()),
).map(in_a_condition)


def selects(streams: st.SearchStrategy[Any]) -> st.SearchStrategy[s.Select]:
    items = st.one_of(
        st.builds(s.FromItem, streams, several(brackets | patterns), maybe(names)),
        st.builds(s.FromItem, streams, several(brackets | patterns), names, several(names, 1)),
    )
    kinds = st.sampled_from(["inner", "left", "right", "full", "semi", "anti", "clip"])
    joins = st.one_of(
        st.builds(s.Join, st.just("cross"), items),
        st.builds(s.Join, kinds, items, maybe(small)),
        st.builds(s.Join, kinds, items, using=several(names, 1)),
        st.builds(s.Join, st.sampled_from(["inner", "left", "right", "full"]), items, natural=st.just(True)),
    )
    return st.builds(
        s.Select,
        several(entries, 1),
        items,
        several(joins),
        maybe(small | tests_of_queries),
        several(st.builds(s.Entry, small, maybe(names))),
        maybe(small),
        several(order_keys),
        maybe(st.builds(s.Limit, counts, several(small), counts)),
        st.booleans(),
        several(st.builds(s.NamedWindow, names, overs(small))),
        maybe(small),
    )


kinds = names.map(upper)
places: dict[str, Any] = {"arguments": several(small), "named": several(nameds(small))}
targets = names | st.builds(s.Into, kinds | st.just(s.Name("CONSOLE")), **places)


equal_rows = st.integers(1, 2).flatmap(rows_of)
values_bodies = st.builds(s.Values, equal_rows)


def queries(streams: st.SearchStrategy[Any]) -> st.SearchStrategy[s.Query]:
    one = selects(streams)
    # An operand without ORDER BY and LIMIT comes first: a parenthesis there would be one of the statement.
    plain = one.map(unordered) | values_bodies
    words = st.sampled_from(["union", "except", "intersect"])
    both = st.builds(s.SetOperation, st.just("union"), plain, plain, st.booleans())
    body = st.one_of(one, plain, st.builds(s.SetOperation, words, plain, one | both, st.booleans()))
    emit = maybe(st.sampled_from(["speculative", "final"]))
    asked = st.builds(s.Query, body, maybe(targets), emit, maybe(st.sampled_from(["tuple", "time", "batch"])))
    return asked | st.builds(s.Query, body, tick=st.just("batch"), tick_by=columns)


def with_named(some: st.SearchStrategy[s.Query]) -> st.SearchStrategy[s.Query]:
    progress = maybe(st.sampled_from(["hwm", "probing", "hybrid"]))
    rounds = maybe(st.integers(1, 10**9))
    named = st.builds(s.NamedQuery, names, some, several(names), st.booleans(), progress, rounds)
    several_named = several(named, 1)
    return st.builds(with_queries, some, several_named, st.booleans())


plain_queries = queries(names | st.builds(s.Subquery, queries(names), st.booleans()))
some_queries = plain_queries | with_named(queries(names))
typed = several(st.builds(s.TypedColumn, names, names), 1)
shapes = st.one_of(
    st.fixed_dictionaries({"columns": typed}), st.fixed_dictionaries({"like": names}), st.fixed_dictionaries({})
)
lifetimes = st.one_of(
    st.builds(s.PointLifetime, small),
    st.builds(s.IntervalLifetime, small, small),
    st.builds(s.EdgeLifetime, small, several(names), maybe(small)),
    st.builds(
        s.ChangesLifetime, maybe(small), several(names), maybe(names), maybe(st.text("a'b", max_size=3)), maybe(small)
    ),
    st.just(s.PhysicalLifetime()),
)
lengths = durations | numbers
progresses = st.one_of(
    st.builds(s.Progress, st.just("advance"), lengths, maybe(lengths), maybe(lengths), idle=maybe(durations)),
    st.builds(s.Progress, st.sampled_from(["ordered", "explicit"]), idle=maybe(durations)),
    st.builds(s.Progress, st.just("heartbeat"), lengths, delay=maybe(lengths)),
)
sources = st.builds(s.SourceClause, kinds, **places)
merges = several(names, 2)
values_rows = several(st.builds(s.ValuesRow, several(small, 1)), 1)
body_statements = st.one_of(
    st.builds(s.InsertRows, names, values_rows),
    st.builds(s.InsertSelected, names, local_selects(small)),
    st.builds(s.UpdateRows, names, several(st.builds(s.Assignment, names, small), 1), maybe(small)),
    st.builds(s.DeleteRows, names, maybe(small)),
)
stages = st.builds(
    s.Stage,
    several(st.sampled_from(["initialize", "iterate", "terminate", "expire"]), 1),
    several(body_statements),
)
aggregates = st.builds(
    aggregate,
    names,
    typed,
    st.fixed_dictionaries({"returns": names}) | st.fixed_dictionaries({"columns": typed}),
    algebraic=st.booleans(),
    tables=several(st.builds(s.LocalTable, names, typed, several(names), st.just(()) | values_rows)),
    stages=several(stages, 1),
    window=st.booleans(),
)
late = maybe(st.sampled_from(["raise", "drop", "adjust", "divert"]) | names)
table_columns = st.builds(s.TypedColumn, names, names) | st.builds(
    s.TableColumn, names, names, not_null=st.just(value=True), key=st.booleans(), default=maybe(small)
)
other_items = st.builds(s.FromItem, names | some_queries.map(s.Subquery), alias=maybe(names))
other_joins = several(st.builds(s.Join, st.just("cross"), other_items))
assigned = several(st.builds(s.Assignment, names, small), 1)
table_changes = st.one_of(
    st.builds(s.InsertValues, names, maybe(small), several(names), equal_rows),
    st.builds(s.InsertSelect, names, small, several(names), some_queries.map(no_list)),
    st.builds(s.UpdateTable, names, maybe(small), assigned, maybe(small)),
    st.builds(s.UpdateTable, names, maybe(small), assigned, maybe(small), other_items, other_joins),
    st.builds(s.DeleteFrom, names, maybe(small), maybe(small)),
    st.builds(s.DeleteFrom, names, maybe(small), maybe(small), other_items, other_joins),
    st.builds(s.Truncate, names, maybe(small)),
)
DROPPED = ["stream", "schema", "table", "aggregate", "view", "materialized view", "query"]
SHOWN = [
    "views", "streams", "sources", "sinks", "schemas", "tables",
    "aggregates", "modules", "functions", "queries", "settings",
]  # fmt: skip
statements = st.one_of(
    st.builds(
        schema,
        names, shapes, maybe(names),
    ),
    st.builds(
        stream,
        names,
        shapes,
        lifetime=maybe(lifetimes),
        source=maybe(sources),
        derived=maybe(names | some_queries | merges.map(s.Merge) | names.map(s.DivertedFrom)),
        progress=maybe(progresses),
        policy=st.builds(s.Policy, late, maybe(st.sampled_from(["raise", "divert"]))),
    ),
    st.builds(s.CreateTable, names, st.just(()) | typed, maybe(sources)),
    st.builds(s.CreateTable, names, several(table_columns, 1), key=several(names)),
    table_changes,
    aggregates,
    st.builds(s.Insert, targets, names | some_queries),
    st.builds(s.Merge, merges, maybe(targets)),
    st.builds(s.Split, names, several(st.builds(s.SplitBranch, names, several(entries, 1), maybe(small)), 1)),
    st.builds(s.Drop, st.sampled_from(DROPPED), names, st.booleans(), st.booleans()),
    st.builds(s.CreateView, names, some_queries, materialized=st.booleans(), if_not_exists=st.booleans()),
    st.builds(s.CreateView, names, some_queries, replace=st.just(value=True)),
    st.builds(s.ShowCreate, names),
    st.sampled_from(SHOWN).map(s.Show),
    st.builds(s.Describe, names | some_queries),
    st.builds(s.Explain, names | some_queries, st.booleans()),
    st.builds(s.Verify, names | some_queries, maybe(counts), maybe(texts)),
    st.builds(s.Set, names, small),
    st.builds(s.Ask, some_queries, maybe(names)),
)  # fmt: skip
