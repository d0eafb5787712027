"""Options by name: what signatures show is what hosts take."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_type_hints

import pytest

import headrace as hr
from headrace.api.checks import options_of
from headrace.api.grouped import Grouped
from headrace.api.options import (
    GeneratorOptions,
    OverOptions,
    RunOptions,
    StartOptions,
    StreamRunOptions,
    StreamStartOptions,
)
from headrace.host.driving.bounded import run_driven
from headrace.host.local import run_local, start_local
from headrace.host.spark.launch import start_query
from headrace.io.generator import Auctions, Ticks
from headrace.sql.scripts import Script
from headrace.testing import check_deterministic


def test_options_are_those_that_the_hosts_take():
    assert set(StartOptions.__annotations__) == set(options_of(start_local, start_query))
    taken = options_of(run_local, run_driven, start_local, start_query)
    assert set(RunOptions.__annotations__) == set(taken) - {"sinks"}, "sinks are an argument of run"


def test_options_of_generated_rows_are_those_of_the_generators():
    known = {field.name for config in (Ticks, Auctions) for field in fields(config)}
    assert set(GeneratorOptions.__annotations__) == known - {"rows", "seed", "revisions"}


@pytest.mark.parametrize(
    ("function", "first"),
    [
        (hr.run, ["streams", "host", "consistency", "sinks", *RunOptions.__annotations__]),
        (hr.start_all, ["pairs", "host", "consistency", *StartOptions.__annotations__]),
        (hr.Stream.run, ["self", *StreamRunOptions.__annotations__]),
        (hr.Stream.cht, ["self", "time_columns", *StreamRunOptions.__annotations__]),
        (hr.Stream.start, ["self", "sinks", *StreamStartOptions.__annotations__]),
        (Script.run, ["self", *StreamRunOptions.__annotations__]),
        (Script.start, ["self", "sink", *StreamStartOptions.__annotations__]),
        (
            hr.Stream.over,
            ["self", "by", "descending", "rows", "range", "slide", "peers", "active", *OverOptions.__annotations__],
        ),
        (check_deterministic, ["stream", "runs", *StreamRunOptions.__annotations__]),
    ],
)
def test_signatures_show_every_option(function: Callable[..., Any], first: list[str]):
    assert list(inspect.signature(function).parameters) == first


@pytest.mark.parametrize("name", ["window", "over"])
def test_streams_and_groups_divide_with_the_same_options(name: str):
    of_stream, of_groups = (set(inspect.signature(getattr(kind, name)).parameters) for kind in (hr.Stream, Grouped))
    assert of_stream == of_groups


def test_no_public_function_hides_its_options():
    """`**named: Expr` are columns; options have names."""
    hidden = [
        f"{name}.{method}"
        for name in hr.__all__
        if isinstance(getattr(hr, name), type)
        for method, function in inspect.getmembers(getattr(hr, name), inspect.isfunction)
        if not method.startswith("_") and "options" in inspect.signature(function).parameters
        and inspect.signature(function).parameters["options"].kind is inspect.Parameter.VAR_KEYWORD
    ]  # fmt: skip
    assert hidden == []


def test_the_types_of_options_can_be_read():
    assert get_type_hints(StreamRunOptions).keys() == StreamRunOptions.__annotations__.keys()
