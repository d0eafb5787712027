"""The law book: every rule that is cited exists, has one anchor, and shows an example; links into the page hit.

Citations are "rule 3.5", "rules 8.2 and 8.3", "rules 7.3 to 7.6", "rules 7.5, 8.2 and 8.3", "rule 4" for a whole
section, and the name of a test such as `test_5_3_…`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from tests.docs.test_readme import PAGES, ROOT

SEMANTICS = ROOT / "docs" / "semantics.md"
FOLDERS = ("src", "tests", "docs", "packages", "examples", "benchmarks", "scripts")
ENDINGS = {".py", ".md", ".sql", ".lark", ".sh", ".toml"}
FILES = [
    ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "pyproject.toml",
    *(path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))
      if path.suffix in ENDINGS and path != Path(__file__)),
]  # fmt: skip

_NUMBER = r"\d+(?:\.\d+)?"
_AND = r"(?:\s*,\s*(?:and\s+)?|\s+(?:and|or|to)\s+|\s*[-–]\s*)"
_CITED = re.compile(rf"\b[Rr]ules?\s+({_NUMBER}(?:{_AND}{_NUMBER})*)")
_TEST = re.compile(r"\bdef test_(\d+_\d+)_")
_ANCHOR = re.compile(r'<a id="rule-(\d+(?:-\d+)?)"></a>')
_HEADING = re.compile(r"^#{2,3} (\d+(?:\.\d+)?)\.? ", re.MULTILINE)
_LINK = re.compile(r"\]\((?P<page>[^()\s#]*)#(?P<anchor>[^()\s]+)\)")
_ID = re.compile(r'<a id="([^"]+)"></a>')


def cited(text: str) -> Iterator[str]:
    """The numbers of the rules that a text cites, those within a range included."""
    text = re.sub(r"\n\s*(?:#:?|--|//)?\s*", " ", text)  # a citation may go on in the next line
    for found in _CITED.finditer(text):
        yield from _numbers(found[1])
    yield from (name.replace("_", ".") for name in _TEST.findall(text))


def _numbers(listed: str) -> Iterator[str]:
    numbers = re.findall(_NUMBER, listed)
    yield from numbers
    between = re.split(_NUMBER, listed)[1:-1]
    for (first, last), word in zip(pairwise(numbers), between, strict=True):
        if re.search(r"to|[-–]", word):
            section, low = map(int, first.split("."))
            same, high = map(int, last.split("."))
            assert section == same, f"a range of rules stays in its section: {listed}"
            yield from (f"{section}.{rule}" for rule in range(low, high + 1))


def rules(page: str) -> list[str]:
    """The numbers of the rules and sections that have an anchor, in their order."""
    return [anchor.replace("-", ".") for anchor in _ANCHOR.findall(page)]


def problems(page: str) -> list[str]:
    """What is wrong with anchors and headings of rules."""
    anchors, headings = rules(page), _HEADING.findall(page)
    found = [f"{rule}: two anchors" for rule in sorted(set(anchors)) if anchors.count(rule) > 1]
    found += [f"{rule}: two headings" for rule in sorted(set(headings)) if headings.count(rule) > 1]
    found += [f"{rule}: a heading without an anchor" for rule in headings if rule not in anchors]
    found += [f"{rule}: an anchor without a heading" for rule in anchors if rule not in headings]
    return found + [f"{b} comes after {a}" for a, b in pairwise(anchors) if _place(a) >= _place(b)]


def _place(rule: str) -> list[int]:
    return [int(part) for part in rule.split(".")]


def shown(page: str) -> dict[str, str]:
    """The text of each rule that is no section, without its heading."""
    parts = re.split(r"^### (\d+\.\d+) .*$", page, flags=re.MULTILINE)
    return {number: text.split("\n## ")[0] for number, text in zip(parts[1::2], parts[2::2], strict=True)}


def anchors_of(page: Path) -> set[str]:
    """The ids on a page, and the slugs that GitHub and mkdocs make of its headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {
        *_ID.findall(text),
        *(re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings),
    }


def test_every_rule_that_is_cited_exists():
    known = set(rules(SEMANTICS.read_text()))
    missing = {
        (path.relative_to(ROOT).as_posix(), rule)
        for path in FILES
        for rule in cited(path.read_text(encoding="utf-8"))
        if rule not in known
    }
    assert missing == set()


def test_every_rule_has_one_anchor_and_one_heading():
    assert problems(SEMANTICS.read_text()) == []


def test_numbers_have_no_gaps():
    numbers = [_place(rule) for rule in rules(SEMANTICS.read_text())]
    by_section = {section: [n[1] for n in numbers if n[0] == section and len(n) == 2] for section in range(1, 11)}
    assert [n[0] for n in numbers if len(n) == 1] == list(range(1, 11))
    assert all(found == list(range(1, len(found) + 1)) != [] for found in by_section.values())


@pytest.mark.parametrize(("number", "text"), shown(SEMANTICS.read_text()).items(), ids=shown(SEMANTICS.read_text()))
def test_every_rule_shows_an_example_or_a_picture(number: str, text: str):
    tables = "\n|---" in text
    assert "```" in text or "![" in text or tables or number == "4.7", "4.7 refers to the examples around it"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_to_anchors_hit(page: Path):
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for link in _LINK.finditer(prose):
        if "://" not in link["page"]:
            target = page if not link["page"] else (page.parent / link["page"]).resolve()
            assert link["anchor"] in anchors_of(target), link[0]


def test_citations_are_found_in_all_their_forms():
    assert list(cited("see rule 3.5, and Rule 4.")) == ["3.5", "4"]
    assert list(cited("(rules 1.2, 3)")) == ["1.2", "3"]
    assert list(cited("rules 7.5, 8.2 and 8.3")) == ["7.5", "8.2", "8.3"]
    assert set(cited("rules 5.1 to 5.4 and 6.4")) == {"5.1", "5.2", "5.3", "5.4", "6.4"}
    assert list(cited("# as rule\n    # 2.4 says")) == ["2.4"]
    assert list(cited("def test_5_3_windows(): ...")) == ["5.3"]
    assert list(cited("rules of thumb, version 3.11, (3.11, 3.12)")) == []
    assert sum(len(list(cited(path.read_text(encoding="utf-8")))) for path in FILES) > 250


def test_broken_pages_are_found():
    whole = (
        '<a id="rule-1"></a>\n\n## 1. A\n\n<a id="rule-1-1"></a>\n\n### 1.1 B\n\n<a id="rule-1-2"></a>\n\n### 1.2 C\n'
    )
    assert problems(whole) == []
    assert problems(whole.replace('<a id="rule-1-2"></a>', "")) == ["1.2: a heading without an anchor"]
    assert problems(whole.replace("### 1.2 C", "")) == ["1.2: an anchor without a heading"]
    twice = problems(whole + '<a id="rule-1-1"></a>\n')
    assert twice == ["1.1: two anchors", "1.1 comes after 1.2"]
    assert "9.9" in set(cited("rule 9.9")) - set(rules(whole))
