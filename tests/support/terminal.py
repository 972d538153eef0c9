"""A program on a pseudo-terminal, and the screen that a user sees: lines that later output may overwrite."""

from __future__ import annotations

import codecs
import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from typing import Any

_SEGMENT = re.compile(
    r"\x1b\[([?\d;]*)([A-Za-z])|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.|(\r|\n|\x08|\x07)|([^\x1b\r\n\x08\x07]+)"
)
_INCOMPLETE_CODE = re.compile(r"\x1b(?:\[[?\d;]*|[\]PX^_][^\x07\x1b]*)?$")

_RUN_IN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Program that makes its terminal the controlling terminal, so that Ctrl-C reaches it, and runs a command."""


class Screen:
    """The lines of a terminal, with support for the control sequences of rich and readline."""

    def __init__(self, width: int = 120) -> None:
        self._width = width
        self._lines = [""]
        self._row = self._column = 0
        self._incomplete_code = ""

    @property
    def lines(self) -> list[str]:
        """The visible lines without empty lines."""
        return [line.rstrip() for line in self._lines if line.strip()]

    def feed(self, text: str) -> None:
        """Process output of a program; control sequences may be split over several calls."""
        text, self._incomplete_code = _split_incomplete_code(self._incomplete_code + text)
        for segment in _SEGMENT.finditer(text):
            if segment[4]:
                for letter in segment[4]:
                    self._put(letter)
            elif segment[3]:
                self._control(segment[3])
            elif segment[2]:
                self._code(segment[2], segment[1])

    def _put(self, letter: str) -> None:
        if self._column == self._width:
            self._column = 0
            self._go_to(self._row + 1)
        line = self._lines[self._row].ljust(self._column)
        self._lines[self._row] = line[: self._column] + letter + line[self._column + 1 :]
        self._column += 1

    def _control(self, letter: str) -> None:
        if letter == "\r":
            self._column = 0
        elif letter == "\n":
            self._go_to(self._row + 1)
        elif letter == "\x08":
            self._column = max(0, self._column - 1)

    def _code(self, letter: str, argument: str) -> None:
        count = int(argument) if argument.isdecimal() else 1
        line = self._lines[self._row]
        match letter:
            case "A":
                self._go_to(max(0, self._row - count))
            case "B":
                self._go_to(self._row + count)
            case "C":
                self._column += count
            case "D":
                self._column = max(0, self._column - count)
            case "K":
                self._lines[self._row] = "" if argument == "2" else line[: self._column]
            case "J":
                self._lines[self._row] = line[: self._column]
                del self._lines[self._row + 1 :]
            case "P":
                self._lines[self._row] = line[: self._column] + line[self._column + count :]

    def _go_to(self, row: int) -> None:
        self._row = row
        self._lines += [""] * (row + 1 - len(self._lines))


def _split_incomplete_code(text: str) -> tuple[str, str]:
    """Split a text into complete output and an incomplete control sequence at its end, which may be empty."""
    match = _INCOMPLETE_CODE.search(text)
    return (text, "") if match is None else (text[: match.start()], match[0])


class Terminal:
    """A program on a new pseudo-terminal; `screens` contains the visible lines after each change."""

    def __init__(self, command: Sequence[str], width: int = 120, folder: str | None = None, **environ: str) -> None:
        self._master, terminal = os.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
        size = {"COLUMNS": "", "LINES": ""}
        variables = {key: value for key, value in (os.environ | environ).items() if key not in size}
        self._program = subprocess.Popen(
            [sys.executable, "-c", _RUN_IN_TERMINAL, *command],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            close_fds=True,
            cwd=folder,
            env=variables | {"TERM": "xterm"},
            start_new_session=True,
        )
        os.close(terminal)
        self._screen = Screen(width)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._unseen = ""
        self.screens: list[list[str]] = []

    @property
    def lines(self) -> list[str]:
        """The visible lines."""
        return self._screen.lines

    @property
    def text(self) -> str:
        """The visible lines as a text."""
        return "\n".join(self.lines)

    def type(self, text: str) -> None:
        """Type a text; Ctrl-C is ``\\x03``, Ctrl-D ``\\x04``."""
        os.write(self._master, text.encode())

    def wait_for(self, text: str, seconds: float = 120) -> None:
        """Wait for a text in the output after the previously awaited text."""
        deadline = time.monotonic() + seconds
        while text not in self._unseen:
            assert self._read(deadline - time.monotonic()), f"{text!r} is missing, the screen is:\n{self.text}"
        self._unseen = self._unseen.partition(text)[2]

    def wait_for_exit(self, seconds: float = 60) -> int:
        """Wait for the end of the program; return its exit code."""
        deadline = time.monotonic() + seconds
        while self._read(deadline - time.monotonic()):
            pass
        return self._program.wait(max(0.1, deadline - time.monotonic()))

    def _read(self, seconds: float) -> bool:
        """Wait for output of the program; return whether there was any."""
        if not select.select([self._master], [], [], max(0, seconds))[0]:
            return False
        try:
            output = self._decoder.decode(os.read(self._master, 1 << 16))
        except OSError:  # the program has ended
            return False
        self._screen.feed(output)
        self._unseen += output
        if not self.screens or self.screens[-1] != self.lines:
            self.screens.append(self.lines)
        return True

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self._program.kill()
        self._program.wait()
        os.close(self._master)
