"""Modules by name: what `hr.modules()` lists and `hr.module(name)` gives, also when packages are broken."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from textwrap import dedent

import pytest

import headrace as hr
from headrace.errors import ModuleError
from headrace.modules.builtin import TimeWeightedAverage


def install(folder: Path, package: str, entries: dict[str, str], code: str | None) -> None:
    """A package as an installer leaves it: a module, and metadata with entry points beside it."""
    name = package.replace("-", "_")
    if code is not None:
        (folder / f"{name}.py").write_text(dedent(code))
    info = folder / f"{name}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    lines = ["[headrace.modules]", *(f"{key} = {value}" for key, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))


GOOD = '''
    import headrace as hr

    class Spread(hr.Aggregate):
        """Highest less lowest.

        In the unit of the values.
        """
        input = "value DOUBLE"
        output = "DOUBLE"
        filter_through = ("symbol",)
        def __init__(self, scale: float = 1.0): self.scale = scale
        def compute(self, values): return self.scale * (max(values) - min(values))

    class Half(hr.Operator):
        input = "value DOUBLE"

    @hr.udf
    def double(value: float) -> float:
        """Twice the value."""
        return 2 * value

    number = 3
'''


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("reg_"):
            del sys.modules[name]


def test_what_is_installed_is_listed_with_all_that_is_known_of_it(site: Path):
    install(site, "reg-good", {"good.spread": "reg_good:Spread", "good.double": "reg_good:double"}, GOOD)
    found = hr.modules()["good.spread"]
    assert (found.kind, found.parameters, found.input, found.output) == (
        "aggregate", "scale: float = 1.0", "value DOUBLE", "DOUBLE",
    )  # fmt: skip
    assert found.summary == "Highest less lowest."
    assert "In the unit of the values." in found.doc
    assert found.package == "reg-good 1.2"
    assert found.properties == ("filter_through(symbol)",)
    assert found.problem == ""
    function = hr.modules()["good.double"]
    assert (function.kind, function.input, function.output, function.summary) == (
        "function", "value DOUBLE", "DOUBLE", "Twice the value.",
    )  # fmt: skip


def test_built_ins_are_listed_too():
    assert hr.modules()["time_weighted_avg"].package == "headrace"
    assert isinstance(hr.module("time_weighted_avg"), TimeWeightedAverage)


def test_the_sample_package_is_installed():
    names = [name for name in hr.modules().names if name.startswith("finance.")]
    assert names == ["finance.ema", "finance.head_and_shoulders", "finance.twap", "finance.vwap", "finance.w_pattern"]
    assert hr.modules()["finance.vwap"].properties == ("invertible", "algebraic")
    assert hr.modules()["finance.ema"].properties == ("order_sensitive",)
    assert hr.modules()["finance.vwap"].package == f"headrace-finance {metadata.version('headrace-finance')}"


def test_the_list_is_a_sequence_a_table_and_a_notebook_table(site: Path):
    install(site, "reg-good", {"good.spread": "reg_good:Spread"}, GOOD.replace("Highest", "<b>Highest</b>"))
    found = hr.modules()
    assert len(found) == len(list(found)) == len(found.names)
    assert found[0].name == found.names[0]
    assert len(found[:2]) == 2
    lines = str(found).splitlines()
    assert lines[0].split() == ["name", "kind", "parameters", "input", "output", "properties", "summary"]
    assert [line.split()[0] for line in lines[2:]] == list(found.names)
    html = found._repr_html_()
    assert html.count("<tr") == len(found) + 1
    assert "&lt;b&gt;Highest&lt;/b&gt; less lowest." in html


def test_a_module_is_had_by_name_with_parameters(site: Path):
    install(site, "reg-good", {"good.spread": "reg_good:Spread", "good.double": "reg_good:double"}, GOOD)
    spread = hr.module("good.spread", scale=2.0)
    assert str(spread) == "Spread(scale=2.0)"
    stream = hr.events("le | x \n 1 | 4.0 \n 2 | 7.5")
    answers = stream.select(x=hr.module("good.double")("x")).window(hr.tumbling(10)).aggregate(s=spread.of("x"))
    assert answers.cht()["s"].to_pylist() == [14.0]
    with pytest.raises(ModuleError, match="unexpected keyword argument 'size'"):
        hr.module("good.spread", size=2.0)
    with pytest.raises(ModuleError, match="scale must be float"):
        hr.module("good.spread", scale="wide")
    with pytest.raises(ModuleError, match=r"instead: hr\.module\('good\.double'\)\('value'\)"):
        hr.module("good.double", scale=2.0)


@pytest.mark.parametrize(("asked", "meant"), [("finance.vwpa", "finance.vwap"), ("vwap", "finance.vwap")])
def test_an_unknown_name_is_answered_with_the_nearest(asked: str, meant: str):
    with pytest.raises(ModuleError) as caught:
        hr.module(asked)
    assert caught.value.instead == f"hr.module({meant!r})"
    with pytest.raises(ModuleError, match=f"there is no module '{asked}' installed"):
        hr.modules()[asked]


BROKEN = {
    "import": ({"bad.x": "reg_bad:X"}, "import reg_nowhere", "No module named 'reg_nowhere'"),
    "raises": ({"bad.x": "reg_bad:X"}, "raise RuntimeError('not today')", "RuntimeError: not today"),
    "no file": ({"bad.x": "reg_bad:X"}, None, "No module named 'reg_bad'"),
    "no class": ({"bad.x": "reg_bad:X"}, "y = 1", "has no attribute 'X'"),
    "no module": ({"bad.x": "reg_bad:number"}, GOOD, "reg_bad:number is 3, which is no module"),
    "not whole": ({"bad.x": "reg_bad:Half"}, GOOD, "Half has no output type"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_package_is_named_and_takes_no_other_down(site: Path, case: str):
    entries, code, why = BROKEN[case]
    install(site, "reg-good", {"good.spread": "reg_good:Spread"}, GOOD)
    install(site, "reg-bad", entries, code)
    listed = hr.modules()
    assert listed["good.spread"].problem == ""
    assert listed["bad.x"].kind == "broken"
    assert "reg-bad 1.2" in listed["bad.x"].problem
    assert why in listed["bad.x"].problem
    assert "bad.x" in str(listed)
    with pytest.raises(ModuleError, match=r"reg-bad 1\.2 has a module 'bad\.x' that cannot be used") as caught:
        hr.module("bad.x")
    assert why in str(caught.value)
    assert str(hr.module("good.spread")) == "Spread(scale=1.0)"


def test_a_name_that_two_packages_claim_is_nobodys(site: Path):
    install(site, "reg-good", {"good.spread": "reg_good:Spread"}, GOOD)
    install(site, "reg-other", {"good.spread": "reg_other:Spread", "time_weighted_avg": "reg_other:Spread"}, GOOD)
    with pytest.raises(ModuleError, match=r"reg-other 1\.2 has a module of the same name"):
        hr.module("good.spread")
    assert isinstance(hr.module("time_weighted_avg"), TimeWeightedAverage), "a built-in cannot be taken over"
    assert [one.kind for one in hr.modules() if one.name == "time_weighted_avg"] == ["aggregate", "broken"]


def test_nothing_is_imported_before_it_is_asked_for(site: Path):
    install(site, "reg-good", {"good.spread": "reg_good:Spread"}, GOOD)
    install(site, "reg-lazy", {"lazy.x": "reg_lazy:X"}, "raise RuntimeError('imported')")
    hr.module("good.spread")
    assert "reg_lazy" not in sys.modules
