"""Input lines from a keyboard, with history and completion, or from standard input.

The module uses readline of the standard library, which every Python on Linux and macOS has, so the shell needs no other
package. Without readline, there is no history and no completion.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

try:
    import readline
except ImportError:  # Windows
    readline = None  # type: ignore[assignment]

if TYPE_CHECKING:
    Completer = Callable[[str, str, str], list[str]]
    """A function from the text before a word, the word, and the text after it to the completions of the word."""

_HISTORY_SIZE = 2000
_DELIMITERS = " \t\n,()=<>;'\"+*/|"  # of completed words


class StandardInputLines:
    """The lines of standard input if it is not a terminal, but a file or a pipe."""

    is_keyboard = False

    def next(self, prompt: str) -> str:
        """Return the next line."""
        del prompt
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")

    def remember(self, statement: str) -> None:
        """Do nothing, as only a keyboard has a history."""


class Keyboard:
    """The lines that are typed on a keyboard; `history` is the file with earlier statements."""

    is_keyboard = True

    def __init__(self, complete: Completer, history: Path) -> None:
        self._complete = complete
        self._history = history
        self._candidates: list[str] = []
        if readline is None:
            return
        readline.set_auto_history(False)
        readline.set_history_length(_HISTORY_SIZE)
        with suppress(OSError):
            readline.read_history_file(history)
        readline.set_completer_delims(_DELIMITERS)
        readline.set_completer(self._completion)
        is_editline = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if is_editline else "tab: complete")
        if not is_editline:
            readline.parse_and_bind("set enable-bracketed-paste off")  # a paste of several lines then runs line by line

    def next(self, prompt: str) -> str:
        """Return the next line."""
        return input(prompt)

    def remember(self, statement: str) -> None:
        """Add a statement to the history, as a single line, unless it repeats the last line."""
        if readline is None:
            return
        line = " ".join(statement.split())
        count = readline.get_current_history_length()
        if not count or readline.get_history_item(count) != line:
            readline.add_history(line)
        with suppress(OSError):  # an unwritable home folder only disables the history
            self._history.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(self._history)
            self._history.chmod(0o600)  # statements may contain confidential values

    def _completion(self, word: str, index: int) -> str | None:
        """Return a completion of a word; readline calls this with the indexes 0, 1, ... until it returns None."""
        if index == 0:
            line, start, end = readline.get_line_buffer(), readline.get_begidx(), readline.get_endidx()
            try:
                self._candidates = self._complete(line[:start], word, line[end:])
            except Exception:  # noqa: BLE001 - an unreadable table must not abort the input
                self._candidates = []
        return self._candidates[index] if index < len(self._candidates) else None


Lines = StandardInputLines | Keyboard
"""A source of input lines, whose `next` raises EOFError at the end."""


def history_file() -> Path:
    """Return the path of the history file, in the folder of ``XDG_STATE_HOME``, by default ``~/.local/state``."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "penstock" / "history"
