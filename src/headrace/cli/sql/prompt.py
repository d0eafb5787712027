"""Read statements from the keyboard: several lines, history, completion and colours."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from rich.text import Text

from headrace.cli.sql.colour import STYLE, SqlLexer
from headrace.cli.sql.complete import SqlCompleter
from headrace.cli.sql.pieces import is_complete
from headrace.cli.sql.remote import RemoteShell
from headrace.cli.sql.shell import ExitShell, Shell
from headrace.cli.sql.texts import GREETING
from headrace.display.words import counted
from headrace.errors import HeadraceError

__all__ = ["converse", "history_file", "prompt_session"]

_PROMPT, _MORE = "headrace> ", "     ...> "


def converse(shell: Shell | RemoteShell, **options: Any) -> None:
    """Read and execute until the user quits. An error or Ctrl-C ends a statement, not the shell."""
    shell.console.print(Text(GREETING, "dim"))
    session = prompt_session(shell, **options)
    while True:
        try:
            shell.execute(session.prompt())
        except HeadraceError as error:
            shell.show_error(error)
        except KeyboardInterrupt:
            shell.errors.print(Text("cancelled", "dim"))
        except (EOFError, ExitShell):
            return
        except Exception:  # noqa: BLE001 - a bug must not end the session that the user has built up
            shell.errors.print_exception()


def prompt_session(shell: Shell | RemoteShell, **options: Any) -> PromptSession[str]:
    """The reader of the keyboard; `options` are those of prompt_toolkit."""
    return PromptSession(
        _PROMPT,
        multiline=True,
        prompt_continuation=lambda *_: _MORE,
        lexer=SqlLexer(),
        style=STYLE,
        completer=SqlCompleter(shell.session.catalog),
        complete_while_typing=False,
        auto_suggest=AutoSuggestFromHistory(),
        history=_history(),
        key_bindings=_keys(),
        bottom_toolbar=lambda: _toolbar(shell),
        **options,
    )


def _toolbar(shell: Shell | RemoteShell) -> str:
    settings = shell.session.catalog.settings
    catalog = shell.session.catalog
    counts = f"{counted(len(catalog.streams), 'stream')}, {counted(len(catalog.tables), 'table')}"
    if isinstance(shell, RemoteShell):
        return f" server {shell.client.url} · {counted(len(catalog.streams), 'stream, table or view')}"
    return f" host {settings['host']} · view {settings['view']} · {counts}"


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def enter(event: KeyPressEvent) -> None:
        """Execute complete input; otherwise start another text line."""
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None
        elif not buffer.document.text_after_cursor.strip() and is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys


def history_file() -> Path:
    """The file that keeps earlier input, by the XDG convention."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "headrace" / "history"


def _history() -> History:
    file = history_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with file.open("a"):
            pass
    except OSError:  # the home directory is not writable
        return InMemoryHistory()
    return FileHistory(str(file))
