"""Names of other libraries: unknown as before, and the error says what to write."""

from __future__ import annotations

import copy
import pickle
import re
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import headrace as hr
from headrace import col, elsewhere, errors

FRAME = pd.DataFrame({"k": ["a", "b"], "x": [1, 2], "at": pd.to_datetime(["2024-05-01", "2024-05-02"])})


def stream() -> hr.Stream:
    return hr.from_pandas(FRAME, lifetime=hr.point("at"))


OTHER = stream().set_duration("1 h")
OWNERS: dict[str, tuple[Callable[[], Any], Mapping[str, str]]] = {
    "stream": (stream, elsewhere.STREAM),
    "grouped": (lambda: stream().group_by("k"), elsewhere.GROUPED),
    "windowed": (lambda: stream().window(hr.tumbling("10 s")), elsewhere.WINDOWED),
    "framed": (lambda: stream().over(rows=9), elsewhere.FRAMED),
    "memory": (hr.memory, elsewhere.MEMORY),
    "expression": (lambda: col("x"), elsewhere.EXPRESSION),
    "package": (lambda: hr, elsewhere.PACKAGE),
}


def unknown(owner: Any, name: str) -> errors.UnknownMethod:
    with pytest.raises(errors.UnknownMethod) as raised:
        getattr(owner, name)
    assert not hasattr(owner, name)
    return raised.value


def shown(build: Callable[[], Any], kind: type[errors.HeadraceError]) -> str:
    with pytest.raises(kind) as raised:
        build()
    return raised.value.instead


@pytest.mark.parametrize("owner", OWNERS)
def test_every_hint_can_be_written(owner: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hr.Stream, "start", lambda *_: None)
    build, hints = OWNERS[owner]
    known = {"it": build(), "hr": hr, "col": col, "stream": stream(), "other": OTHER, "table": FRAME}
    for hint in set(hints.values()):
        code = re.split(r", wh|, without| in aggregate| where the stream", hint)[0].removeprefix("progress=")
        eval(f"it{code}" if code[0] == "." else code, known)  # noqa: S307 - the hints are the project's own


@pytest.mark.parametrize("owner", OWNERS)
def test_names_of_other_libraries_stay_unknown(owner: str):
    build, hints = OWNERS[owner]
    found = build()
    for name in set(hints) - set(dir(found)):
        assert unknown(found, name).instead == hints[name]


def test_the_text_of_the_error():
    assert str(unknown(stream().over(rows=3), "with_columns")) == (
        "[UNKNOWN_METHOD] there is no 'with_columns' here\n"
        "  given:   'Framed.with_columns'\n"
        "  allowed: aggregate, operate\n"
        "  instead: .aggregate(n=hr.count()), which keeps the columns"
    )
    assert unknown(hr.memory(), "to_pandas").allowed == "cht, events, rows"


@pytest.mark.parametrize(
    ("name", "instead"),
    [("wher", ".where"), ("aggregat", ".aggregate"), ("with_colums", ".with_columns"), ("nothing_like_it", "")],
)
def test_a_spelling_is_proposed_only_if_it_is_near(name: str, instead: str):
    assert unknown(stream(), name).instead == instead


def test_the_methods_of_an_expression_are_those_for_users():
    error = unknown(col("x"), "mean")
    assert error.instead == "hr.avg('x') in aggregate(...)"
    allowed = error.allowed.split(", ")
    assert {"alias", "cast", "is_null", "upper"} <= {*allowed}
    assert not {"bind", "with_children", "children", "on_window", "side", "type"} & {*allowed}


@pytest.mark.parametrize("build", [lambda: col("x").mean, lambda: stream().wher, lambda: hr.countt])
def test_python_adds_no_guess_of_its_own(build: Callable[[], Any]):
    with pytest.raises(errors.UnknownMethod) as raised:
        build()
    assert "Did you mean" not in "".join(traceback.format_exception(raised.value))


def test_copies_pickles_and_notebooks_see_an_ordinary_object():
    found = stream()
    assert copy.copy(found).node is found.node
    assert copy.deepcopy(found).cht().equals(found.cht())
    assert pickle.loads(pickle.dumps(found)).cht().equals(found.cht())  # noqa: S301 - its own bytes
    owners = (found, found.group_by("k"), hr.memory(), hr)
    for name in ("_ipython_display_", "__array__", "__wrapped__"):
        assert not any(hasattr(owner, name) for owner in owners)
    assert [hasattr(owner, "_repr_mimebundle_") for owner in owners] == [True, False, False, False]
    error = unknown(found, "filter")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301 - its own bytes


@pytest.mark.parametrize(
    ("how", "instead"),
    [
        ("outer", "full"), ("full_outer", "full"), ("fullouter", "full"), ("left_outer", "left"), ("LEFT", "left"),
        ("right_outer", "right"), ("left_semi", "semi"), ("leftsemi", "semi"), ("left_anti", "anti"),
        ("leftanti", "anti"), ("cross", "inner"), ("iner", "inner"),
    ],
)  # fmt: skip
def test_kinds_of_joins(how: Any, instead: str):
    assert shown(lambda: stream().join(stream(), on="k", how=how), errors.PlanError) == f"how={instead!r}"


def test_kinds_of_joins_with_tables():
    def joined(how: Any) -> hr.Stream:
        return stream().join_table(FRAME[["k"]], on="k", how=how)

    assert shown(lambda: joined("left_outer"), errors.PlanError) == "how='left'"
    assert shown(lambda: joined("outer"), errors.PlanError) == "how='left'"


@pytest.mark.parametrize(
    "read",
    [
        lambda progress: hr.from_pandas(FRAME, lifetime=hr.point("at"), progress=progress),
        lambda progress: hr.events("le | k\n1 | a", progress=progress),
        lambda progress: hr.generated("trades", progress=progress),
    ],
)
def test_a_progress_is_a_policy(read: Callable[[Any], Any]):
    assert shown(lambda: read("1 h"), errors.PlanError) == "progress=hr.advance('1 h')"
    assert shown(lambda: read(0), errors.PlanError) == "progress=hr.advance('10 s')"


@pytest.mark.parametrize(
    ("build", "kind", "instead"),
    [
        (lambda: stream().join(FRAME, on="k"), errors.PlanError, "join_table(frame, on='key')"),  # type: ignore[arg-type]
        (lambda: stream().with_columns(kind=hr.lit("x")), errors.SchemaError, "another name, such as kind_"),
        (
            lambda: stream().select(y=col("k") + "_x"),
            errors.ExpressionError,
            "col('a').concat('b') for texts, or (...).cast('DOUBLE') for numbers in a text",
        ),
        (lambda: hr.count("*"), errors.ExpressionError, "hr.count()"),
        (lambda: stream().set_duration(col("x") / 10), errors.ExpressionError, "duration=(...).cast('LONG')"),
        (
            lambda: hr.from_pandas(FRAME.assign(at="2024-05-01"), lifetime=hr.point("at")),
            errors.PlanError,
            "schema='k STRING, x LONG, at DATETIME'",
        ),
        (
            lambda: hr.from_pandas(FRAME.assign(at=1.5), lifetime=hr.point("at")),
            errors.PlanError,
            "unit='s' in the lifetime, if these are seconds",
        ),
        (
            lambda: hr.from_pandas(FRAME[::-1], lifetime=hr.point("at"), progress=hr.ordered("raise")).run(),
            errors.LateEvent,
            "late='divert' or 'drop' in the input's progress, or a longer delay",
        ),
    ],
)
def test_what_to_write_instead(build: Callable[[], Any], kind: type[errors.HeadraceError], instead: str):
    assert shown(build, kind) == instead


def test_a_file_whose_times_are_texts_is_named(tmp_path: Path):
    path = tmp_path / "a.json"
    path.write_text('{"at": "May 1st", "x": 1}\n')
    with pytest.raises(errors.PlanError, match=r"a\.json: at cannot be a time") as raised:
        hr.read_json(str(path), lifetime=hr.point("at"))
    assert raised.value.instead == "schema='at DATETIME, x LONG'"


def test_what_memories_and_frames_show():
    assert repr(hr.memory()) == "memory of 0 changes in 0 batches, events: .cht() has the answer"
    assert "__" not in repr(stream().over(rows=3))
    with pytest.raises(errors.PlanError) as raised:
        stream().over(rows=3).aggregate(x=hr.count())
    assert raised.value.allowed == "names but k, x, at"
