"""Builds the site of the documentation into `build/site`: `python docs/site.py`, or `make docs`.

Pages are written so that GitHub shows them as they stand. So their links may lead out of `docs/`: to the README, to
examples, to tests. The script gathers the pages in `build/pages`: every file that some page links to becomes a page of
the site, and the links follow. Then Zensical builds the site from `mkdocs.yml`.

Problems end the build: whatever Zensical warns of (a link or an anchor that is not there), a page that no menu has, a
list that only GitHub would show as one, and anything that a reader's browser would load from the network.
"""
# ruff: noqa: INP001 - a script, not a package

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from os.path import normpath, relpath
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONFIG, GATHERED, SITE = ROOT / "mkdocs.yml", ROOT / "build" / "pages", ROOT / "build" / "site"
#: Pages of the project's root, and where they are in the site.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
LANGUAGES = {".py": "python", ".sql": "sql", ".sh": "sh", ".toml": "toml"}

_CODE = re.compile(r"^( *)(```+|~~~+).*?^\1\2$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()(?P<path>[^()\s#:]+)(?P<anchor>#[^()\s]*)?(?=\))")
_TITLE = re.compile(r"^(```\w+) title=([^\s\"]+)$", re.MULTILINE)
_LIST = re.compile(r"^(?![-*+|#>]|\d+\. |\s*$|\s{2,}|<)[^\n]+\n(?:[-*+]|\d+\.) \S", re.MULTILINE)
_LOADED = re.compile(
    r"""<(?:script|img|iframe|link[^>]* rel=["']?(?:stylesheet|preload))[^>]* (?:src|href)=["']?(?:https?:)?//[^>"']*"""
)


def place_of(path: str) -> str:
    """Where a file of the project is in the site, both relative to their root."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if (ROOT / path).is_dir():
        return f"files/{path}/index.md"
    return f"files/{path}" if path.endswith(".md") else f"files/{path}.md"


def links_of(path: str, text: str) -> dict[str, str]:
    """What a page links to in the project: what stands in the link, and the file's path from the root."""
    folder = path if (ROOT / path).is_dir() else str(Path(path).parent)
    found = {link["path"] for link in _LINK.finditer(_CODE.sub("", text))}
    return {link: normpath(f"{folder}/{link}") for link in sorted(found)}


def text_of(path: str) -> str:
    """A file of the project as a page."""
    file = ROOT / path
    if file.is_dir():
        inside = sorted(one.name for one in file.iterdir() if one.is_file() and not one.name.startswith("_"))
        return f"# {path}\n\n" + "".join(f"- [{name}]({name})\n" for name in inside)
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        return text
    return f"# {path}\n\n``````{LANGUAGES.get(file.suffix, 'text')}\n{text}\n``````\n"


def paths() -> list[str]:
    """Every file that is a page: those of `docs/`, and all that they lead to, directly or by others."""
    found = [*PAGES, *(page.relative_to(ROOT).as_posix() for page in sorted((ROOT / "docs").rglob("*.md")))]
    for path in found:  # grows meanwhile
        if path.endswith(".md") or (ROOT / path).is_dir():
            linked = set(links_of(path, text_of(path)).values()) - set(found)
            found += sorted(one for one in linked if (ROOT / one).exists() and not one.startswith("docs/"))
    return found


def page(path: str) -> str:
    """A page as the site has it: links lead to pages of the site, and titles of blocks stand in quotes."""
    text, place = text_of(path), place_of(path)
    links = links_of(path, text)

    def moved(link: re.Match[str]) -> str:
        return relpath(place_of(links[link["path"]]), Path(place).parent) + (link["anchor"] or "")

    pieces, end = [], 0
    for code in _CODE.finditer(text):
        pieces += [_LINK.sub(moved, text[end : code.start()]), code[0]]
        end = code.end()
    return _TITLE.sub(r'\1 title="\2"', "".join([*pieces, _LINK.sub(moved, text[end:])]))


def problems_of(path: str) -> Iterator[str]:
    """What is wrong with the text of a page, that Zensical would not say."""
    if path.endswith(".md"):
        for found in _LIST.finditer(_CODE.sub("", text_of(path))):
            yield f"{path}: a list needs an empty line before it: {found[0]!r}"
        for link, target in links_of(path, text_of(path)).items():
            if not (ROOT / target).exists():
                yield f"{path}: there is no {link}"
    menus = CONFIG.read_text(encoding="utf-8")
    if not place_of(path).startswith("files/") and f" {place_of(path)}\n" not in menus:
        yield f"{path}: no menu of {CONFIG.name} has this page"


def loads(html: str) -> list[str]:
    """What a browser would load from the network for a page."""
    return _LOADED.findall(html)


def gather() -> list[str]:
    """Write the pages to where Zensical reads them; the problems that were found."""
    shutil.rmtree(GATHERED, ignore_errors=True)
    found = []
    for path in paths():
        place = GATHERED / place_of(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(page(path), encoding="utf-8")
        found += problems_of(path)
    for folder in (ROOT / "docs" / "pictures", ROOT / "docs" / "grafana"):
        if folder.is_dir():
            shutil.copytree(folder, GATHERED / folder.name)
    return found


def build() -> list[str]:
    """Build the site; the problems that were found."""
    shutil.rmtree(SITE, ignore_errors=True)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "--config-file", str(CONFIG)]
    done = subprocess.run(command, cwd=ROOT, check=False)  # noqa: S603 - our own command
    found = [f"zensical: exit code {done.returncode}"] if done.returncode else []
    for one in sorted(SITE.rglob("*.html")):
        found += [f"{one.relative_to(SITE)}: loads {what}" for what in loads(one.read_text(encoding="utf-8"))]
    return found


def main() -> None:
    """Build the site, or say what is wrong."""
    if found := gather() + build():
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
