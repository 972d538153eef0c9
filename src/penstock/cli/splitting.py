"""Divides what is typed into statements, which end with a semicolon."""

from __future__ import annotations

import re

_PART = re.compile(
    r"""
      '(?:[^'\\]|\\.)*'        # texts and names in quotes
    | "(?:[^"\\]|\\.)*"
    | `[^`]*`
    | --[^\n]*                 # comments
    | /\*.*?\*/
    | ;
    | /\*|['"`]                # what is open at the end
    | .
    """,
    re.VERBOSE | re.DOTALL,
)


class Typed:
    """What was typed and is not yet a whole statement."""

    def __init__(self) -> None:
        self._text = ""

    @property
    def is_open(self) -> bool:
        """Whether a statement has begun."""
        return bool(self._text.strip())

    @property
    def text(self) -> str:
        """What there is of a statement that has begun."""
        return self._text

    def add(self, line: str) -> list[str]:
        """Add a line; return the statements that are whole now, without their semicolons."""
        self._text += line + "\n"
        whole, self._text = divide(self._text)
        return whole

    def rest(self) -> str:
        """Return what has no semicolon, and forget it; empty if it is nothing but space and comments."""
        text, self._text = self._text.strip(), ""
        return "" if is_blank(text) else text


def divide(text: str) -> tuple[list[str], str]:
    """Return the statements in a text, and what comes behind the last semicolon. Those without a word are left out."""
    found, start = [], 0
    for part in _PART.finditer(text):
        if part[0] == ";":
            found.append(text[start : part.start()].strip())
            start = part.end()
        elif part[0] in {"'", '"', "`", "/*"}:
            break  # the quotes or the comment go on in the next line
    return [statement for statement in found if not is_blank(statement)], text[start:]


def is_blank(text: str) -> bool:
    """Whether a text has nothing but space and comments."""
    return not re.sub(r"--[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL).strip()
