"""Links the terms of the glossary where pages use them first: `python docs/link_terms.py`.

A test checks that nothing is left to link. A term is *used* where one of its forms stands in prose: not in code, in a
heading or in the text of another link. Links that are there already stay; so a use that was linked and is no longer
the first needs the link at the new first use only.
"""
# ruff: noqa: INP001 - a script, not a package

from __future__ import annotations

import re
from collections.abc import Iterator
from os.path import relpath
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parent
GLOSSARY = DOCS / "glossary.md"
#: Pages that are generated as a whole.
GENERATED = {DOCS / "sql" / name for name in ("grammar.md", "papers.md", "features.md")}
PAGES = [DOCS.parent / "README.md", *sorted(set(DOCS.rglob("*.md")) - {GLOSSARY} - GENERATED)]

#: Terms that are also ordinary words: the forms in which they are terms. A group is the part that becomes the link,
#: where words before it matter; the link's bracket may stand there already.
FORMS = {
    "batch": r"batch(?:es)?(?! (?:SQL|quer|frame))",
    "change": r"a \*\[?(change)(?=\*|\])|change batch(?:es)?|(?:of|takes|turn) \[?(changes)",
    "diverted": r"divert(?:s|ed)?",
    "oracle": r"oracles?(?! CEP)",
    "point": r"point events?|of \[?(instants)",
    "promise": r"promise[sd]?",
    "tick": r"(?:in|of) \[?(ticks)",
    "tuple": r"windows of \[?(tuples)",
}
_ENTRY = re.compile(r'^<a id="(?P<id>[\w-]+)"></a>\n(?P<names>\*\*[^:]+?\*\*):', re.MULTILINE)
_NOT_PROSE = re.compile(
    r"^```.*?^```|^#[^\n]*|<!--.*?-->|<[^>\n]*>|!\[[^\]]*\]\([^)]*\)|`[^`\n]*`", re.MULTILINE | re.DOTALL
)
_LINK = re.compile(r"\[(?P<text>[^\[\]]*)\]\((?P<target>[^()\s]*)\)")


class Term(NamedTuple):
    """An entry of the glossary, and the forms in which pages use it."""

    id: str
    form: re.Pattern[str]


def terms(glossary: str) -> list[Term]:
    """The entries of the glossary."""
    found = []
    for entry in _ENTRY.finditer(glossary):
        names = re.findall(r"\*\*(.+?)\*\*", entry["names"])
        form = FORMS.get(entry["id"], "|".join(map(_with_plural, names)))
        flags = re.NOFLAG if names[0].isupper() else re.IGNORECASE
        found.append(Term(entry["id"], re.compile(rf"\b(?:{form})\b", flags)))
    return found


def _with_plural(name: str) -> str:
    words = re.escape(name).replace(r"\ ", r"\s+")
    return f"{words[:-1]}(?:y|ies)" if name.endswith("y") else f"{words}s?"


def prose(page: str) -> str:
    """A page in which all that is not prose is blank; every character keeps its place."""
    return _NOT_PROSE.sub(lambda part: re.sub(r"[^\n]", " ", part[0]), page)


def unlinked(page: str, every: list[Term]) -> Iterator[tuple[Term, int, int]]:
    """The terms that a page uses first without a link, and where these uses start and end."""
    text = prose(page)
    links = list(_LINK.finditer(text))
    for term in every:
        for use in term.form.finditer(text):
            start, end = use.span(use.lastindex or 0)
            link = next((one for one in links if one.start() <= start < one.end()), None)
            if link is None:
                yield term, start, end
                break
            if link["target"].endswith(f"glossary.md#{term.id}") and end <= link.end("text"):
                break


def linked(page: str, every: list[Term], glossary: str) -> str:
    """A page with a link at the first use of every term; `glossary` is the way there."""
    while found := list(unlinked(page, every)):
        # The longest of those that start first: a shorter term inside it, "event" in "late event", is then no use.
        term, start, end = min(found, key=lambda use: (use[1], -use[2]))
        page = f"{page[:start]}[{page[start:end]}]({glossary}#{term.id}){page[end:]}"
    return page


def main() -> None:
    """Link what is not linked yet."""
    every = terms(GLOSSARY.read_text(encoding="utf-8"))
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        page.write_text(linked(text, every, relpath(GLOSSARY, page.parent)), encoding="utf-8")


if __name__ == "__main__":
    main()
