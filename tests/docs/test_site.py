"""The site of the documentation: what becomes a page, where links lead, and what ends the build."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"
CONFIG = """\
site_name: A
docs_dir: build/pages
site_dir: build/site
use_directory_urls: false
theme: {name: material, font: false}
plugins: [search]
nav:
  - index.md
  - contributing.md
  - changelog.md
  - security.md
  - a.md
"""


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_of_docs", DOCS / "site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, in a small project of its own."""
    site = load()
    for folder in ("docs/pictures", "examples"):
        (tmp_path / folder).mkdir(parents=True)
    for name in site.PAGES:
        (tmp_path / name).write_text("# Title\n\nText. [A](docs/a.md#part), [more](examples)\n")
    (tmp_path / "docs" / "a.md").write_text(
        "# A\n\n## Part\n\n[code](../examples/one.py)\n\n```csv title=x.csv\nx\n```\n"
    )
    (tmp_path / "examples" / "one.py").write_text("print('](docs/a.md)')\n")
    (tmp_path / "mkdocs.yml").write_text(CONFIG)
    monkeypatch.setattr(site, "ROOT", tmp_path)
    monkeypatch.setattr(site, "CONFIG", tmp_path / "mkdocs.yml")
    monkeypatch.setattr(site, "GATHERED", tmp_path / "build" / "pages")
    monkeypatch.setattr(site, "SITE", tmp_path / "build" / "site")
    return site


def problems(site: ModuleType, text: str) -> list[str]:
    """What is wrong when `text` is added to a page."""
    page = site.ROOT / "docs" / "a.md"
    page.write_text(page.read_text() + text)
    return [*site.gather(), *site.build()]


def test_every_file_that_a_page_leads_to_is_a_page(project: ModuleType):
    assert problems(project, "") == []
    pages = {path.relative_to(project.SITE).as_posix() for path in project.SITE.rglob("*.html")}
    assert {"index.html", "a.html", "files/examples/index.html", "files/examples/one.py.html"} <= pages


def test_links_follow_and_code_stays(project: ModuleType):
    assert "[A](a.md#part), [more](files/examples/index.md)" in project.page("README.md")
    assert '[code](files/examples/one.py.md)\n\n```csv title="x.csv"' in project.page("docs/a.md")
    assert "print('](docs/a.md)')" in project.page("examples/one.py")
    assert project.page("examples") == "# examples\n\n- [one.py](one.py.md)\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("\n[x](missing.md)\n", "zensical: exit code"),
        ("\n[x](../missing.py)\n", "docs/a.md: there is no ../missing.py"),
        ("\n[x](a.md#missing)\n", "zensical: exit code"),
        ("\nThese:\n- one\n", "a list needs an empty line"),
        ("\n![x](https://example.org/x.png)\n", "a.html: loads <img"),
        ("\n<script src='//example.org/x.js'></script>\n", "a.html: loads <script"),
    ],
)
def test_what_ends_the_build(project: ModuleType, text: str, problem: str):
    assert any(problem in one for one in problems(project, text))


def test_a_page_that_no_menu_has_ends_the_build(project: ModuleType):
    (project.ROOT / "docs" / "b.md").write_text("# B\n")
    assert problems(project, "") == ["docs/b.md: no menu of mkdocs.yml has this page"]


def test_the_pages_of_the_project_have_no_problems():
    site = load()
    assert [problem for path in site.paths() for problem in site.problems_of(path)] == []
