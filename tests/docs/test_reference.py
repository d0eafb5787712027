"""The reference: everything that is public is there, as its docstring says, with an example that runs."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path

import pytest

import headrace as hr
from headrace.api.grouped import Framed, Grouped, Windowed
from headrace.cli import app
from headrace.host.saved.query import SavedQuery

DOCS = Path(__file__).parents[2] / "docs"
spec = importlib.util.spec_from_file_location("make_reference", DOCS / "make_reference.py")
assert spec is not None
assert spec.loader is not None
make_reference = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_reference)

PAGES = make_reference.pages()


def sections(text: str) -> dict[str, str]:
    """What stands below the heading of each name, up to the next one."""
    pieces = make_reference._HEADING.split(text)
    return dict(zip(pieces[2::3], pieces[3::3], strict=True))


SECTIONS = [(name, part) for page in PAGES for name, part in sections(page.read_text(encoding="utf-8")).items()]
NAMES = [name for name, _ in SECTIONS]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_what_the_script_writes(page: Path):
    text = page.read_text(encoding="utf-8")
    assert text == make_reference.page(text), "run: python docs/make_reference.py"


@pytest.mark.parametrize("module", make_reference.MODULES)
def test_every_public_name_is_on_a_page_once(module: str):
    assert [name for name in make_reference.public(module) if NAMES.count(name) != 1] == []


@pytest.mark.parametrize("kind", [hr.Stream, Grouped, Windowed, Framed, hr.Run, SavedQuery])
def test_every_method_is_on_a_page(kind: type):
    methods = [name for name, value in vars(kind).items() if inspect.isfunction(value) and not name.startswith("_")]
    assert [name for name in methods if f"{kind.__name__}.{name}" not in NAMES] == []


@pytest.mark.parametrize(("name", "part"), SECTIONS, ids=NAMES)
def test_everything_has_an_example(name: str, part: str):
    assert "\n```python\n" in part.partition("<!-- example -->")[2], name


def test_every_command_is_on_its_page():
    text = (make_reference.FOLDER / "command_line.md").read_text(encoding="utf-8")
    names = [command.name for command in app.registered_commands]
    groups = [f"{group.name} {command.name}" for group in app.registered_groups
              for command in group.typer_instance.registered_commands]  # fmt: skip
    assert [name for name in [*names, *groups] if f"\n## headrace {name}\n" not in text] == []


def test_few_examples_are_not_run():
    left_out = [name for name, part in SECTIONS if "\n# not run" in part]
    needs_more_than_this_machine = {"HostError", "PatternError", "Superseded", "load_ipython_extension", "read_host"}
    assert set(left_out) == needs_more_than_this_machine | {"read_spark"}


def test_signatures_are_written_as_they_are_in_the_source():
    assert make_reference.signature(*make_reference.found("tumbling")) == (
        "hr.tumbling(size: DurationLike, origin: TimeLike | None = None, *, zone: str | None = None) -> Grid"
    )
    assert make_reference.signature(*make_reference.found("Stream.start")).startswith(
        "Stream.start(\n    *sinks: Any,\n    checkpoint: str | None = ...,\n"
    )
    assert make_reference.signature(*make_reference.found("sql")).startswith(
        "hr.sql(\n    text: str,\n    /,\n    *,\n"
    )
    assert make_reference.signature(*make_reference.found("LateEvent")) == "class LateEvent(EventError)"
