"""`headrace module`: list the installed modules, here or on a server, check one, and install wheels on a server."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import re
import tempfile
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from headrace.cli.loading import load_file
from headrace.errors import ModuleError, SourceError, nearest

if TYPE_CHECKING:
    from headrace.modules.base import Module
    from headrace.testing.module_check.report import Finding

__all__ = ["app", "check", "find_module", "install", "listing", "remove"]

app = typer.Typer(
    help="List the installed modules, check that one keeps its contract, install them on a server.",
    no_args_is_help=True,
)
_Server = Annotated[str, typer.Option(metavar="URL", help="The address of the server.")]
_Token = Annotated[str | None, typer.Option(envvar="HEADRACE_TOKEN", help="A token of the server.")]
_FILE = re.compile(r"(?P<file>.+\.py):(?P<name>\w+)")
_PACKAGE = re.compile(r"(?P<package>[\w.-]+):(?P<name>\w+)")
_COLOURS = {"ok": "green", "failed": "red", "note": "cyan", "skipped": "dim"}


@app.command("list")
def listing(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the modules as JSON.")] = False,
    server: Annotated[
        str | None, typer.Option(metavar="URL", help="List those of a server, with versions and checksums.")
    ] = None,
    token: _Token = None,
) -> None:
    """List the modules that are installed, with their parameters and schemas."""
    from headrace.modules.registry import modules

    if server is not None:
        _list_of_server(server, token, as_json=as_json)
        return
    installed = modules()
    if as_json:
        typer.echo(json.dumps([module.as_dict() for module in installed], indent=2, ensure_ascii=False))
        return
    console = Console(highlight=False, soft_wrap=True)
    for module in installed:
        console.print(Text.assemble((module.name, "bold"), f"({module.parameters})" if module.parameters else ""))
        facts = [
            ", ".join([module.kind, *module.properties]),
            f"{module.input} -> {module.output}" if module.input else "",
            module.package,
        ]
        console.print(Text(f"    {module.summary}", style="red" if module.problem else ""))
        console.print(Text(f"    {' · '.join(filter(None, facts))}", style="dim"))


def _list_of_server(server: str, token: str | None, *, as_json: bool) -> None:
    from headrace.server.client import connect

    with connect(server, token) as client:
        rows = client.sql("SHOW MODULES").to_pylist()
    if as_json:
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    for row in rows:
        facts = [row["kind"], f"{row['package']} {row['version']}".strip(), row["checksum"][:16], row["state"]]
        typer.echo(f"{row['module']}\n    {' · '.join(filter(None, facts))}")
        if row["used_by"]:
            typer.echo(f"    used by {row['used_by']}")


@app.command("install")
def install(
    wheel: Annotated[Path, typer.Argument(help="A wheel of plain Python.")], *, server: _Server, token: _Token = None
) -> None:
    """Install the modules of a wheel on a server: for administrators.

    It becomes the current version of its package. Queries that run keep the version that they began with.
    """
    from headrace.server.client import connect

    with connect(server, token) as client:
        typer.echo(client.install_modules(wheel))


@app.command("remove")
def remove(
    package: Annotated[str, typer.Argument(help="The name of a package, such as headrace-finance.")],
    *,
    server: _Server,
    token: _Token = None,
) -> None:
    """Remove a package of modules from a server, if nothing uses it: for administrators."""
    from headrace.server.client import connect

    with connect(server, token) as client:
        typer.echo(client.remove_modules(package))


@app.command("check")
def check(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="PACKAGE:CLASS, FILE.py:CLASS, or a name of `headrace module list`.")
    ],
    *,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="NAME=VALUE", help="A parameter of the module; may be repeated."),
    ] = None,
    sample: Annotated[
        Path | None, typer.Option(help="A drawn table of events that the module finds something in.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="CHECK", help="Run this check alone; may be repeated.")
    ] = None,
    examples: Annotated[int, typer.Option(min=1, help="How many examples each check draws.")] = 100,
    seed: Annotated[int | None, typer.Option(help="Repeat a run: the seed that it printed.")] = None,
    nulls: Annotated[bool, typer.Option(help="Whether the input may have nulls.")] = True,
    odd: Annotated[bool, typer.Option(help="Whether the input may have NaN, infinities and extremes.")] = True,
) -> None:
    """Check a module on random windows and streams. A failure shows the smallest example; the exit status is then 1.

    The checks: the module is deterministic, does not modify its input, reaches the same state however items are added
    and removed, and gives the same answer after corrections as over the history.
    """
    try:
        from hypothesis.configuration import set_hypothesis_home_dir

        from headrace.testing.module_check import module_check
    except ModuleNotFoundError as error:
        if error.name != "hypothesis":
            raise
        raise ModuleError("checking modules needs hypothesis", instead="pip install 'headrace[test]'") from None
    module = find_module(target, parameters(param or []))
    stream = _read(sample) if sample is not None else None
    console = Console(highlight=False, soft_wrap=True)
    console.print(Text(f"{module}: {module.fields} -> {module.output}", style="bold"))
    with tempfile.TemporaryDirectory() as home, console.status("answers") as status:
        set_hypothesis_home_dir(home)  # not a folder in the current directory

        def show(finding: Finding) -> None:
            console.print(Text(str(finding), style=_COLOURS[finding.verdict]))
            status.update(f"after {finding.check}")

        try:
            report = module_check(
                module, stream, examples=examples, seed=seed, nulls=nulls, odd=odd, only=only or (), tell=show
            )
        finally:
            set_hypothesis_home_dir(None)
    verdict = f"failed: {', '.join(report.failed)}" if report.failed else "all checks passed"
    console.print(Text(f"{verdict}; --seed {report.seed} repeats this", style="red" if report.failed else "green"))
    raise typer.Exit(0 if report.ok else 1)


def find_module(target: str, arguments: dict[str, Any]) -> Module:
    """The module that the target names, created with these parameters."""
    from headrace.expr import Udf
    from headrace.modules.registry import registered_module

    kind: type[Module] | Udf
    file, package = _FILE.fullmatch(target), _PACKAGE.fullmatch(target)
    if file is not None:
        kind = _class_in(load_file(Path(file["file"])), file["name"], target)
    elif package is not None:
        kind = _class_in(_imported(package["package"]), package["name"], target)
    else:
        kind = registered_module(target)
        if isinstance(kind, Udf):
            raise ModuleError(
                f"{target} is a function, not a module over windows",
                given=target,
                allowed="aggregates and operators",
                instead="verify=True in hr.udf(...) to have it called twice",
            )
    return kind(**arguments)


def _class_in(source: ModuleType, name: str, target: str) -> type[Module]:
    from headrace.modules.base import Module

    found = {n: c for n, c in vars(source).items() if isinstance(c, type) and issubclass(c, Module) and c is not Module}
    own = {n: c for n, c in found.items() if not c.__module__.startswith("headrace.modules.base")}
    if name in own:
        return own[name]
    close = nearest(name, own)
    raise ModuleError(
        f"there is no module {name!r} in {source.__name__}",
        given=target,
        allowed=", ".join(sorted(own)) or "(no modules)",
        instead=f"{target.rpartition(':')[0]}:{close}" if close else "a class derived from hr.Aggregate or hr.Operator",
    )


def _imported(package: str) -> ModuleType:
    name = package.replace("-", "_")  # packages are installed as headrace-finance and imported as headrace_finance
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ModuleError(
            f"{package!r} cannot be imported: {error}",
            given=package,
            allowed="an installed package",
            instead=f"pip install {package}, or FILE.py:CLASS",
        ) from error


def parameters(pairs: list[str]) -> dict[str, Any]:
    """Parse `alpha=0.5`: values are Python literals; anything else is text."""
    found = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.isidentifier():
            raise ModuleError("this is not a parameter", given=pair, allowed="NAME=VALUE", instead="--param alpha=0.5")
        try:
            found[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            found[name] = text
    return found


def _read(file: Path) -> str:
    if not file.is_file():
        raise SourceError(f"there is no file {str(file)!r}", given=str(file))
    return file.read_text(encoding="utf-8")
