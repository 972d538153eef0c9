"""Lines from a keyboard, with history and completion; or from a file.

The standard library's readline is enough for that: every Python on Linux and macOS has it, and a shell that needs
another package would be missing on the machines where it is needed. Where there is no readline, lines are plain.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

try:
    import readline
except ImportError:  # Windows
    readline = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Callable

    Complete = Callable[[str, str, str], list[str]]
    """From what is before the word, the word, and what is behind it, to what the word may become."""

_KEPT = 2000
_DELIMITERS = " \t\n,()=<>;'\"+*/|"


class Lines(Protocol):
    """Where lines come from."""

    is_keyboard: bool

    def next(self, prompt: str) -> str:
        """Return the next line; raise EOFError behind the last one."""

    def remember(self, statement: str) -> None:
        """Keep a statement for later sessions."""


class FileLines:
    """The lines of standard input that is no keyboard."""

    is_keyboard = False

    def next(self, prompt: str) -> str:
        """Return the next line."""
        del prompt
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")

    def remember(self, statement: str) -> None:
        """Do nothing; the file is there."""


class Keyboard:
    """A keyboard.

    Parameters
    ----------
    complete
        Finds what a word may become.
    history
        The file of earlier statements.
    """

    is_keyboard = True

    def __init__(self, complete: Complete, history: Path) -> None:
        self._complete = complete
        self._history = history
        self._found: list[str] = []
        if readline is None:
            return
        readline.set_auto_history(False)
        readline.set_history_length(_KEPT)
        with suppress(OSError):
            readline.read_history_file(history)
        readline.set_completer_delims(_DELIMITERS)
        readline.set_completer(self._completion)
        is_editline = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if is_editline else "tab: complete")
        if not is_editline:
            readline.parse_and_bind("set enable-bracketed-paste off")  # a paste of several lines runs line by line

    def next(self, prompt: str) -> str:
        """Return the next line."""
        return input(prompt)

    def remember(self, statement: str) -> None:
        """Keep a statement, in one line."""
        if readline is None:
            return
        line = " ".join(statement.split())
        count = readline.get_current_history_length()
        if not count or readline.get_history_item(count) != line:
            readline.add_history(line)
        with suppress(OSError):  # a home that cannot be written to costs the history only
            self._history.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(self._history)
            self._history.chmod(0o600)  # statements may hold what is nobody's business

    def _completion(self, word: str, state: int) -> str | None:
        if state == 0:
            line, start, end = readline.get_line_buffer(), readline.get_begidx(), readline.get_endidx()
            try:
                self._found = self._complete(line[:start], word, line[end:])
            except Exception:  # noqa: BLE001 - a table that cannot be looked at must not end the line
                self._found = []
        return self._found[state] if state < len(self._found) else None


def history_file() -> Path:
    """Return where the statements of earlier sessions are (`XDG_STATE_HOME`)."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "penstock" / "history"
