"""WITH and WITH RECURSIVE: the plans that Python makes, the way back, and what is refused where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from tests.unit.operators.recurse.loops import closure, edges, reached, seeds

import headrace as hr
from headrace import Stream, col
from headrace.errors import Diverged, PlanError, SqlError
from headrace.sql.parse import parse
from headrace.sql.printer import to_sql
from headrace.sql.unbind import unbind
from headrace.testing.verify.differential import differential_reference

FEW = settings(max_examples=max(5, settings().max_examples // 10))
NODES = hr.events("le | re | node\n0 | ∞ | 1\n", "node LONG")
LINKS = hr.events("le | re | src | dst\n0 | ∞ | 1 | 2\n0 | 9 | 2 | 1\n", "src LONG, dst LONG")
ROADS = hr.events("le | re | src | dst | cost\n0 | ∞ | 1 | 2 | 5\n", "src LONG, dst LONG, cost LONG")
STREAMS = {"nodes": NODES, "links": LINKS, "roads": ROADS}
REACHED = "reached AS (SELECT node FROM nodes UNION SELECT dst FROM reached JOIN links ON node = src)"
STEP = "SELECT one.src, other.dst FROM paths AS one JOIN links AS other ON one.dst = other.src"


def next_node(found: Stream) -> Stream:
    return found.join(LINKS, on={"node": "src"}).select(node=col("dst"))


def longer(found: Stream) -> Stream:
    return found.join(LINKS, on={"dst": "src"}).select("src", dst=col("dst_right"))


def in_turns(a: Stream, b: Stream) -> Mapping[str, Stream]:
    return {
        "a": b.join(LINKS, on={"m": "src"}).select(n=col("dst")),
        "b": a.join(LINKS, on={"n": "src"}).select(m=col("dst")),
    }


def plans() -> dict[str, Stream]:
    """What Python says, by what SQL says."""
    seed = NODES.select(n=col("node"))
    mutual = hr.recurse({"a": seed, "b": NODES.select(m=col("node"))}, in_turns)
    return {
        f"WITH RECURSIVE {REACHED} SELECT * FROM reached": hr.recurse(NODES, next_node),
        f"WITH RECURSIVE {REACHED} PROGRESS HWM MAX ROUNDS 7 SELECT * FROM reached": hr.recurse(
            NODES, next_node, progress="hwm", max_rounds=7
        ),
        f"with recursive {REACHED} max rounds 7 progress probing select * from Reached where node > 1": hr.recurse(
            NODES, next_node, progress="probing", max_rounds=7
        ).where(col("node") > 1),
        f"WITH RECURSIVE paths AS (SELECT * FROM links UNION ALL {STEP}) SELECT * FROM paths": hr.recurse(
            LINKS, longer, distinct=False
        ),
        f"WITH RECURSIVE paths AS (SELECT * FROM links UNION ALL {STEP}) DISTINCT SELECT * FROM paths": hr.recurse(
            LINKS, longer
        ),
        f"WITH RECURSIVE paths AS ({STEP} UNION SELECT * FROM links) SELECT * FROM paths": hr.recurse(LINKS, longer),
        "WITH RECURSIVE paths AS (SELECT * FROM links UNION "
        "SELECT one.src, other.dst FROM paths AS one JOIN paths AS other ON one.dst = other.src) "
        "SELECT * FROM paths": closure(LINKS),
        # Several of each: those that do not name it are the seed.
        "WITH RECURSIVE r AS (SELECT node FROM nodes UNION SELECT dst AS node FROM r JOIN links ON node = src UNION "
        "SELECT src AS node FROM links UNION SELECT src AS node FROM r JOIN links ON node = dst) SELECT * FROM r": (
            hr.recurse(
                NODES.union(LINKS.select(node=col("src"))),
                lambda r: next_node(r).union(r.join(LINKS, on={"node": "dst"}).select(node=col("src"))),
            )
        ),
        "WITH RECURSIVE r AS (SELECT node FROM nodes UNION SELECT node FROM (SELECT dst AS node FROM r JOIN links "
        "ON node = src)) SELECT * FROM r": hr.recurse(NODES, next_node),
        # Names and types are the seed's, as wide as what the loop makes of them.
        "WITH RECURSIVE ways (place, cost) AS (SELECT node, 0 FROM nodes UNION ALL "
        "SELECT dst, ways.cost + roads.cost FROM ways JOIN roads ON place = src) MAX ROUNDS 5 SELECT * FROM ways": (
            hr.recurse(
                NODES.select(place=col("node"), cost=hr.lit(0).cast("LONG")),
                lambda ways: ways.join(ROADS, on={"place": "src"}).select(
                    place=col("dst"), cost=col("cost") + col("cost_right")
                ),
                distinct=False,
                max_rounds=5,
            )
        ),
        "WITH RECURSIVE a AS (SELECT node AS n FROM nodes UNION SELECT dst FROM b JOIN links ON m = src), "
        "b (m) AS (SELECT node FROM nodes UNION SELECT dst FROM a JOIN links ON n = src) SELECT * FROM b": mutual["b"],
        # A loop over a loop, a plain query before and behind.
        "WITH RECURSIVE more AS (SELECT * FROM far WHERE node > 1), far AS (SELECT * FROM reached UNION "
        f"SELECT dst FROM far JOIN links ON node = src), {REACHED} SELECT * FROM more": hr.recurse(
            hr.recurse(NODES, next_node), next_node
        ).where(col("node") > 1),
        "WITH big AS (SELECT * FROM links WHERE dst > 1), named (a, b) AS (SELECT * FROM big) "
        "SELECT a FROM named WHERE b > 2": LINKS.where(col("dst") > 1)
        .select(a=col("src"), b=col("dst"))
        .where(col("b") > 2)
        .select("a"),
        "WITH links AS (SELECT * FROM links WHERE dst > 1) SELECT * FROM links": LINKS.where(col("dst") > 1),
        "SELECT * FROM (WITH x AS (SELECT src FROM links) SELECT * FROM x) EMIT FINAL": LINKS.select("src").final(),
    }


def test_sql_and_python_build_equal_plans():
    different = []
    for text, wanted in plans().items():
        found = hr.sql(text, **STREAMS)
        if found.node != wanted.node:
            different.append(f"{text}\n--- SQL\n{found.explain()}\n--- Python\n{wanted.explain()}")
    assert not different, "\n\n".join(different)


def test_plans_said_in_sql_are_the_same_plans():
    names = {stream.node: name for name, stream in STREAMS.items()}
    for text, wanted in plans().items():
        spoken = unbind(wanted.node, names)
        assert hr.sql(spoken.text, **STREAMS).node == wanted.node, f"{text}\n{spoken.text}"


def test_texts_are_read_as_they_are_written():
    for text in plans():
        tree = parse(text)
        assert parse(to_sql(tree)) == tree


@pytest.mark.slow
@FEW
@given(seeds(), edges(8))
def test_differential_random_loops_said_in_sql(seed: Stream, links: Stream):
    text = f"WITH RECURSIVE {REACHED} SELECT * FROM reached"
    assert hr.history_diff(hr.sql(text, nodes=seed, links=links).cht(), reached(seed, links).cht()) == ""
    both = (
        "WITH RECURSIVE paths AS (SELECT * FROM links UNION " + STEP.replace("links", "paths") + ") SELECT * FROM paths"
    )
    assert hr.history_diff(hr.sql(both, links=links).cht(), closure(links).cht()) == ""


def test_loops_inside_loops():
    inner = "x AS (SELECT node FROM outside UNION SELECT dst FROM x JOIN links ON node = src) SELECT * FROM x"
    body = f"SELECT node FROM nodes UNION SELECT node FROM (WITH RECURSIVE {inner})"
    text = f"WITH RECURSIVE outside AS ({body}) SELECT * FROM outside"
    wanted = hr.recurse(NODES, lambda found: hr.recurse(found, next_node))
    assert hr.sql(text, **STREAMS).node == wanted.node
    spoken = unbind(wanted.node, {stream.node: name for name, stream in STREAMS.items()})
    assert hr.sql(spoken.text, **STREAMS).node == wanted.node


def test_a_loop_may_read_another():
    """Found by trying: the loop inside took the names of its inputs for those of a loop around another."""
    text = f"WITH RECURSIVE paths AS (SELECT * FROM links UNION {STEP}), x AS (SELECT node FROM nodes UNION "
    text += "SELECT dst FROM x JOIN paths ON node = src) SELECT * FROM x"
    found = hr.sql(text, **STREAMS)
    paths = hr.recurse(LINKS, longer)
    wanted = hr.recurse(NODES, lambda x: x.join(paths, on={"node": "src"}).select(node=col("dst")))
    assert found.node == wanted.node
    assert sorted((row["le"], row["re"], row["node"]) for row in found.cht().to_pylist()) == [
        (0, hr.INFINITY, 1),
        (0, hr.INFINITY, 2),
    ]
    assert hr.history_diff(found.cht(), found.history(engine="duckdb").cht()) == ""
    differential_reference(found.node, buckets=2)


def test_a_query_without_a_seed_is_a_view_over_the_loop():
    text = (
        "WITH RECURSIVE twice AS (SELECT dst AS node FROM once JOIN links ON node = src), "
        "once AS (SELECT node FROM nodes UNION SELECT dst FROM twice JOIN links ON node = src) SELECT * FROM {}"
    )
    wanted = hr.recurse(NODES, lambda found: next_node(next_node(found)))
    assert hr.sql(text.format("once"), **STREAMS).node == wanted.node
    assert hr.sql(text.format("twice"), **STREAMS).node == next_node(wanted).node


def test_names_of_with_are_gone_behind_it():
    with pytest.raises(SqlError, match="no stream 'x'"):
        hr.script("WITH x AS (SELECT * FROM nodes) SELECT * FROM x; SELECT * FROM x", **STREAMS)


def test_streams_may_be_made_of_loops():
    text = f"CREATE STREAM far AS WITH RECURSIVE {REACHED} SELECT * FROM reached; SELECT node FROM far WHERE node = 2"
    assert hr.sql(text, **STREAMS).cht().num_rows == 1


def test_its_words_are_still_names():
    stream = hr.events([{"le": 1, "re": 3, "recursive": 1, "rounds": 2}], "recursive LONG, rounds LONG")
    text = 'WITH "recursive" AS (SELECT * FROM max), rounds AS (SELECT rounds FROM recursive) SELECT rounds FROM rounds'
    assert hr.sql(text, max=stream).cht()["rounds"].to_pylist() == [2]


def test_a_loop_that_never_rests_is_stopped():
    text = "WITH RECURSIVE n AS (SELECT node FROM nodes UNION SELECT node + 1 FROM n) MAX ROUNDS 30 SELECT * FROM n"
    with pytest.raises(Diverged, match="after 30 rounds"):
        hr.sql(text, **STREAMS).cht()


# --- what is refused -------------------------------------------------------------------------------------------------

SEED = "SELECT node FROM nodes"
#: A WITH, what the error says, and the words of the text it points at.
REFUSED: list[tuple[str, str, str | None]] = [
    ("x AS (SELECT node FROM nodes UNION SELECT dst FROM x JOIN links ON node = src)", "not RECURSIVE", "x"),
    ("RECURSIVE x AS (SELECT * FROM x)", "has no seed", "x"),
    ("RECURSIVE x AS (SELECT * FROM y), y AS (SELECT * FROM x)", "has no seed", "x"),
    ("x AS (SELECT * FROM nodes), X AS (SELECT * FROM nodes)", "two queries of WITH are named 'X'", "X"),
    ("x AS (SELECT * FROM nodes) MAX ROUNDS 3", "not a loop", "x"),
    ("RECURSIVE x AS (SELECT * FROM nodes) DISTINCT", "not a loop", "x"),
    ("x (a, b) AS (SELECT * FROM nodes)", "x has 1 columns", "a"),
    ("x (a, a) AS (SELECT * FROM links)", "two columns have the name 'a'", "a"),
    ("x AS (SELECT * FROM nodes INTO y)", "INTO stands behind the whole query", "y"),
    ("x AS (SELECT * FROM node)", "no stream 'node'", "node"),
    ("RECURSIVE x AS (SELECT node FROM nodes UNION SELECT node, 1 AS b FROM x)", "as many columns", None),
    ("RECURSIVE x AS (SELECT node FROM nodes UNION SELECT 'a' AS node FROM x)", "cannot be one column", None),
    ("RECURSIVE x AS (SELECT node FROM nodes UNION SELECT nod FROM x)", "no column 'nod'", "nod"),
    (
        "RECURSIVE x AS (SELECT node FROM nodes UNION ALL SELECT node FROM x UNION SELECT node FROM x)",
        "either distinct rows or all rows",
        None,
    ),
    ("RECURSIVE x AS (SELECT node FROM nodes UNION SELECT node FROM x EMIT FINAL)", "must be outside of x", None),
    (
        "RECURSIVE x AS (WITH y AS (SELECT * FROM nodes) SELECT * FROM y UNION SELECT node FROM x)",
        "must be outside of x",
        "y AS (SELECT * FROM nodes)",
    ),
    (
        "RECURSIVE x AS (SELECT node FROM nodes UNION SELECT count(*) AS node FROM x [TUMBLING 5 s])",
        "this uses more",
        "SELECT count(*) AS node FROM x [TUMBLING 5 s]",
    ),
    (
        "RECURSIVE x AS (SELECT node FROM nodes UNION SELECT node FROM x ORDER BY node LIMIT 3)",
        "is a UNION of SELECTs",
        None,
    ),
    (
        f"RECURSIVE x AS ({SEED} UNION ALL SELECT * FROM y), y AS ({SEED} UNION SELECT * FROM x)",
        "one loop, and have different options",
        "y",
    ),
    (
        f"RECURSIVE x AS ({SEED} UNION SELECT * FROM y) MAX ROUNDS 3, y AS ({SEED} UNION SELECT * FROM x) MAX ROUNDS 4",
        "one loop, and have different options",
        "y",
    ),
    (
        "RECURSIVE x AS (SELECT node FROM nodes UNION SELECT * FROM x) MAX ROUNDS 0",
        "at least once",
        "MAX ROUNDS 0",
    ),
    ("RECURSIVE x AS (SELECT node FROM nodes UNION SELECT * FROM x) PROGRESS FAST", "cannot stand here", "FAST"),
    ("RECURSIVE x AS (SELECT node FROM nodes UNION SELECT * FROM x) MAX ROUNDS 3 MAX ROUNDS 4", "said already", None),
    ("RECURSIVE AS (SELECT * FROM nodes)", "cannot stand here", "AS"),
]


@pytest.mark.parametrize(("named", "message", "place"), REFUSED)
def test_what_is_refused_and_where(named: str, message: str, place: str | None):
    text = f"WITH {named} SELECT * FROM x"
    with pytest.raises(SqlError, match=message) as caught:
        hr.sql(text, **STREAMS)
    assert place is None or text[slice(*caught.value.at)] == place
    assert "recurse(" not in str(caught.value)


def test_what_has_no_words():
    per_node: Any = LINKS.group_by("src").apply(lambda group: hr.recurse(group.select("dst"), lambda found: found))
    with pytest.raises(PlanError, match="no words"):
        unbind(per_node.node, {LINKS.node: "links"})
