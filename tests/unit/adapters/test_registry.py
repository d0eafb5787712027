"""Sources and sinks by name: what packages offer, what their options may be, and what is said of broken ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

import headrace as hr
from headrace.adapters import installed_adapters
from headrace.adapters.registry import adapter_names, option_names
from headrace.errors import PlanError, SchemaError
from headrace_sqlite import SqliteSink, SqliteSource

COLUMNS = "item STRING, ts DATETIME, amount LONG"
GOOD = '''
    from dataclasses import dataclass
    from headrace.adapters import SinkAdapter, SourceAdapter
    from headrace.schema import Schema

    @dataclass(frozen=True)
    class Feed(SourceAdapter):
        """Rows of a feed."""
        address: str
        topics: tuple[str, ...] = ()
        also: Schema = Schema(())
        rate: float | None = None
        fast: bool = False
        options: object = ()
        @property
        def schema(self): return Schema.of("id LONG, at DATETIME, note STRING")

    @dataclass(frozen=True)
    class Upserts(SinkAdapter):
        """Rows by key."""
        encoding: str = "upsert"
        place: str = ""

    class Bare(SourceAdapter):
        pass

    @dataclass(frozen=True)
    class Taken(SourceAdapter):
        lifetime: str

    number = 3
'''


def install(folder: Path, package: str, group: str, entries: dict[str, str], code: str = "", extra: str = "") -> None:
    """A package as an installer leaves it: a module, and metadata with entry points beside it."""
    name = package.replace("-", "_")
    (folder / f"{name}.py").write_text(dedent(code))
    info = folder / f"{name}-1.2.dist-info"
    info.mkdir()
    more = f"Provides-Extra: {extra}\n" if extra else ""
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n{more}")
    (info / "entry_points.txt").write_text(
        "\n".join([f"[headrace.{group}]", *(f"{k} = {v}" for k, v in entries.items())])
    )


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("ada_")]:
        del sys.modules[name]


def test_the_sample_package_is_installed():
    (source,) = [one for one in installed_adapters("source") if one.name == "sqlite"]
    assert source.options == ("database", "tables", "columns")
    assert source.package.startswith("headrace-sqlite ")
    assert source.doc.startswith("The rows of one or several tables")
    (sink,) = [one for one in installed_adapters("sink") if one.name == "sqlite"]
    assert sink.options == ("database", "table", "encoding", "key", "ended", "time_columns"), (
        "its own first: the arguments in SQL"
    )


def test_our_own_are_there_without_metadata(site: Path):
    for kind in ("source", "sink"):
        ours = {one.name: one for one in installed_adapters(kind) if one.package == "headrace"}  # type: ignore[arg-type]
        assert list(ours) == ["delta", "kafka", "postgres"]
        assert not any(one.problem for one in ours.values())
    install(site, "ada-good", "sources", {"kafka": "ada_good:Feed"}, GOOD)
    with pytest.raises(PlanError, match=r"ada-good 1\.2 has a source of the same name"):
        hr.read_source("kafka", lifetime=hr.point("at"))


def test_a_source_by_name_reads_what_its_object_reads():
    by_name = hr.read_source("sqlite", COLUMNS, lifetime=hr.point("ts"), database="shop.db", tables="orders")
    adapter = SqliteSource("shop.db", "orders", hr.Schema.of(COLUMNS))
    assert by_name.node == hr.read_source(adapter, lifetime=hr.point("ts")).node
    other = hr.read_source("SQLite", lifetime=hr.point("ts"), database="shop.db", tables="orders", columns=COLUMNS)
    assert other.schema == by_name.schema


def test_a_schema_picks_columns_of_an_adapter():
    adapter = SqliteSource("shop.db", "orders", COLUMNS)
    picked = hr.read_source(adapter, "ts DATETIME, item STRING", lifetime=hr.point("ts"))
    assert picked.schema.names == ("ts", "item")
    with pytest.raises(SchemaError, match="sqlite orders has no column amont LONG") as caught:
        hr.read_source(adapter, "ts DATETIME, amont LONG", lifetime=hr.point("ts"))
    assert caught.value.instead == "amount LONG"
    with pytest.raises(SchemaError, match="has no column amount STRING"):
        hr.read_source(adapter, "amount STRING, ts DATETIME", lifetime=hr.point("ts"))


def test_a_sink_by_name_is_its_object():
    made = hr.sink("sqlite", database="shop.db", table="totals", encoding="upsert", key="item")
    assert made == SqliteSink("upsert", ("item",), database="shop.db", table="totals")
    assert hr.sink("sqlite", database="shop.db", table="t") == SqliteSink(database="shop.db", table="t")


def test_a_sink_may_have_an_encoding_of_its_own(site: Path):
    install(site, "ada-good", "sinks", {"rows": "ada_good:Upserts"}, GOOD)
    assert hr.sink("rows", key="a", place="x").encoding == "upsert"


def test_texts_stand_for_names_and_columns(site: Path):
    install(site, "ada-good", "sources", {"feed": "ada_good:Feed"}, GOOD)
    stream = hr.read_source("feed", lifetime=hr.point("at"), address="x", topics="a, b", also="n LONG", rate=2)
    adapter = stream.node.origin.adapter  # type: ignore[attr-defined]
    assert (adapter.topics, adapter.also, adapter.rate) == (("a", "b"), hr.Schema.of("n LONG"), 2)
    assert "columns" not in option_names(type(adapter))
    assert hr.read_source("feed", "id LONG, at DATETIME", lifetime=hr.point("at"), address="x").schema.names == (
        "id",
        "at",
    )


WRONG = [
    ({"address": 5}, "address is a text"),
    ({"address": "x", "rate": "fast"}, "rate is a number"),
    ({"address": "x", "rate": True}, "rate is a number"),
    ({"address": "x", "fast": 1}, "fast is True or False"),
    ({"adress": "x"}, "Feed has no option 'adress'"),
    ({"topics": "a"}, "Feed needs the option 'address'"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_wrong_options_are_said(site: Path, options: dict[str, object], message: str):
    install(site, "ada-good", "sources", {"feed": "ada_good:Feed"}, GOOD)
    with pytest.raises(PlanError, match=message):
        hr.read_source("feed", lifetime=hr.point("at"), **options)


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(PlanError, match="there is no sink 'sqlit' installed") as caught:
        hr.sink("sqlit")
    assert caught.value.instead == "sqlite"
    with pytest.raises(PlanError, match="options are for adapters by name"):
        hr.read_source(SqliteSource("a", "b", "x LONG, ts LONG"), lifetime=hr.point("ts"), tables="c")
    with pytest.raises(PlanError, match="this is not an adapter"):
        hr.read_source(5, lifetime=hr.point("ts"))  # type: ignore[arg-type]


BROKEN = {
    "import": ("ada_bad:X", "import ada_nowhere", "No module named 'ada_nowhere'"),
    "raises": ("ada_bad:X", "raise RuntimeError('not today')", "RuntimeError: not today"),
    "no class": ("ada_bad:X", "y = 1", "has no attribute 'X'"),
    "a number": ("ada_bad:number", GOOD, "ada_bad:number is 3, which is not derived from SourceAdapter"),
    "a sink": ("ada_bad:Upserts", GOOD, "which is not derived from SourceAdapter"),
    "no options": ("ada_bad:Bare", GOOD, "Bare is not a dataclass"),
    "taken": ("ada_bad:Taken", GOOD, "lifetime is an option of hr.read_source itself"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_package_is_named_and_takes_no_other_down(site: Path, case: str):
    value, code, why = BROKEN[case]
    install(site, "ada-bad", "sources", {"bad": value}, code)
    listed = {one.name: one for one in installed_adapters("source")}
    assert listed["sqlite"].problem == ""
    assert why in listed["bad"].problem
    assert "bad" in adapter_names("source")
    with pytest.raises(PlanError) as caught:
        hr.read_source("bad", lifetime=hr.point("ts"))
    assert why in caught.value.message
    assert caught.value.instead == "repair or remove the package ada-bad"


def test_a_missing_package_that_is_an_extra_is_said(site: Path):
    install(site, "ada-extra", "sources", {"far": "ada_extra:X"}, "import ada_client", extra="far")
    with pytest.raises(PlanError) as caught:
        hr.read_source("far", lifetime=hr.point("ts"))
    assert caught.value.instead == "pip install 'ada-extra[far]'"


def test_two_packages_with_one_name_are_refused(site: Path):
    install(site, "ada-one", "sources", {"feed": "ada_one:Feed"}, GOOD)
    install(site, "ada-two", "sources", {"feed": "ada_two:Feed"}, GOOD)
    with pytest.raises(PlanError, match="has a source of the same name"):
        hr.read_source("feed", lifetime=hr.point("at"), address="x")
