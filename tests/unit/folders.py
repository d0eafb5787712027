"""The folders of the package, in the order in which they may import each other: the table of `docs/architecture.md`.

Each folder may import the folders above it, and none below. `python -m tests.unit.folders` writes the table into
the page; `test_repository.py` checks the imports, and that the page has this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["CALLS_UPWARD", "FOLDERS", "PAGE", "page_with_table", "table"]

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
_BEGIN, _END = "<!-- folders: made by tests/unit/folders.py -->", "<!-- folders end -->"


@dataclass(frozen=True)
class Folder:
    """Modules or packages directly under `headrace`: what they hold, and which folders above they do not import."""

    names: tuple[str, ...]
    holds: str
    ignores: tuple[str, ...] = ()


FOLDERS = (
    Folder(("version",), "the version of Headrace"),
    Folder(("literals",), "values as SQL writes them"),
    Folder(("errors",), "the exception tree: what was given, what is allowed, what to write instead"),
    Folder(("elsewhere",), "what other libraries call things, for the hints of errors"),
    Folder(("time",), "ticks, durations, infinity"),
    Folder(("types",), "the types of columns, in Arrow and in SQL"),
    Folder(("schema",), "columns: names and types"),
    Folder(("compiled", "coding", "hashing"), "loops compiled to machine code; codes and hashes of columns"),
    Folder(("columnar", "pieces"), "helpers for Arrow and NumPy columns; writing bytes without a copy"),
    Folder(("border",), "times as users see them, and back to ticks"),
    Folder(
        ("deep", "cache", "entry_points", "failpoints", "meter"),
        "recursion without Python's stack; the cache folder; what installed packages offer; steps that tests disturb; "
        "progress bars",
    ),
    Folder(("expr",), "immutable expression nodes, evaluation on Arrow, printing as Spark SQL and DuckDB SQL"),
    Folder(("patterns",), "shapes of patterns, their automata; conditions as numeric programs"),
    Folder(("progress",), "the progress of a stream"),
    Folder(("changes",), "the columnar batch of changes"),
    Folder(("drawn", "frames", "events"), "reading drawn tables; data frames as tables; physical events, the CHT"),
    Folder(("segments", "trace"), "the one state structure: runs of immutable segments"),
    Folder(("store",), "segments in files, epochs, plans and commits; directories and object stores"),
    Folder(("modules",), "base classes of users' aggregates and operators, and the list of installed modules"),
    Folder(
        ("plan",),
        "operators as frozen nodes, each of which declares its columns, its liveliness and its reach; windows and "
        "input policies",
        ignores=("events", "changes", "segments", "trace", "store"),
    ),
    Folder(("io",), "sources, ingress, sinks and their encodings, the generator", ignores=("segments", "trace")),
    Folder(
        ("metrics",),
        "the metrics of queries as text for Prometheus, and the HTTP server that shows them; alarms; spans of "
        "OpenTelemetry",
        ignores=("segments", "trace", "store", "changes"),
    ),
    Folder(
        ("adapters",),
        "the base classes of adapters for users; Delta tables, Kafka and PostgreSQL",
        ignores=("segments", "trace", "store", "changes"),
    ),
    Folder(
        ("operators",),
        "kernels, one file or folder per family; `registry.py` chooses the kernel of a node and describes how it "
        "runs (`choice.py`); `reference/` holds their slow twins",
        ignores=("store",),
    ),
    Folder(("optimizer",), "one file and one function for each rule; their order in one tuple", ignores=("operators",)),
    Folder(
        ("history",),
        "a plan as batch SQL, for DuckDB and Spark",
        ignores=("changes", "segments", "trace", "store", "operators", "optimizer"),
    ),
    Folder(("stages",), "cutting a plan into stages, running them on messages, egress", ignores=("store", "history")),
    Folder(("explain",), "descriptions of a query: its plan, its liveliness, its Spark job"),
    Folder(
        ("display",),
        "how streams and answers look: timelines, HTML, texts",
        ignores=("store", "segments", "trace", "adapters", "operators", "optimizer", "history", "stages", "explain"),
    ),
    Folder(
        ("host",),
        "`driving`: the loop that plans, runs, commits and publishes batches; `local`, `spark`: where its tasks run; "
        "`saved`: tools for checkpoints without their query",
        ignores=("explain",),
    ),
    Folder(
        ("tracing",),
        "traced runs: every change of every operator, as tables",
        ignores=("store", "adapters", "history", "explain"),
    ),
    Folder(("api",), "the fluent surface; builds plan nodes, holds no logic", ignores=("store", "operators", "trace")),
    Folder(
        ("sql",),
        "the dialect: grammar, trees, printer; `bind/` turns trees into plans; sessions and scripts",
        ignores=("store", "operators", "optimizer", "stages"),
    ),
    Folder(("dashboard",), "the page for browsers (built from `ui/`), and its data as plain values"),
    Folder(
        ("stdlib", "notebook"),
        "the library of aggregates, written in SQL (`sql/shipped/`); the cell magic and the widgets of notebooks",
    ),
    Folder(("testing",), "intents, generators, checks, shrinking: the kit for users' tests, and `stream.verify`"),
    Folder(("server",), "`headrace serve`: the catalog that lasts, published streams, subscriptions, and the ways in"),
    Folder(("cli", "__main__"), "the command line, one file or folder per command"),
)

#: Calls that go against the order: the import stands inside a function, so nothing is loaded before the call is made.
CALLS_UPWARD = {
    ("api/conditions.py", "sql"): "conditions on changes may be texts of SQL",
    ("display/rich.py", "notebook"): "a stream shows itself as a widget, when a notebook asks",
    ("api/pattern.py", "sql"): "`match` takes a pattern as text, and its clauses are SQL",
    ("api/stream.py", "testing"): "`stream.verify()` is the entry to the kit",
}


def table() -> str:
    """The folders as a table of Markdown."""
    lines = ["| folder | holds | does not import, of the folders above it |", "|---|---|---|"]
    for folder in FOLDERS:
        names = ", ".join(f"`{name}`" for name in folder.names)
        ignored = ", ".join(f"`{name}`" for name in folder.ignores)
        lines.append(f"| {names} | {folder.holds} | {ignored} |")
    calls = [f"- `{path}` calls `{name}`: {why}." for (path, name), why in CALLS_UPWARD.items()]
    return "\n".join([*lines, "", "Four functions import a folder below theirs, when they are called:", "", *calls])


def page_with_table() -> str:
    """The page with the current table."""
    text = PAGE.read_text()
    before, rest = text.split(_BEGIN)
    return f"{before}{_BEGIN}\n\n{table()}\n\n{_END}{rest.split(_END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(page_with_table())
