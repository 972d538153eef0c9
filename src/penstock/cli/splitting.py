"""Splitting of typed text into statements, which end with a semicolon."""

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
    | /\*|['"`]                # an unclosed quote or comment
    | .
    """,
    re.VERBOSE | re.DOTALL,
)


class InputBuffer:
    """The typed text of an incomplete statement."""

    def __init__(self) -> None:
        self._text = ""

    @property
    def is_open(self) -> bool:
        """Whether a statement has begun."""
        return bool(self._text.strip())

    @property
    def text(self) -> str:
        """The text of the incomplete statement."""
        return self._text

    def add(self, line: str) -> list[str]:
        """Add a line; return the statements that are complete now, without their semicolons."""
        self._text += line + "\n"
        statements, self._text = split_statements(self._text)
        return statements

    def flush(self) -> str:
        """Return and clear the incomplete statement; empty if it is only white space and comments."""
        text, self._text = self._text.strip(), ""
        return "" if is_blank(text) else text


def split_statements(text: str) -> tuple[list[str], str]:
    """Return the statements in a text, without empty ones, and the text after the last semicolon."""
    statements, start = [], 0
    for part in _PART.finditer(text):
        if part[0] == ";":
            statements.append(text[start : part.start()].strip())
            start = part.end()
        elif part[0] in {"'", '"', "`", "/*"}:
            break  # the quotes or the comment continue in the next line
    return [statement for statement in statements if not is_blank(statement)], text[start:]


def is_blank(text: str) -> bool:
    """Whether a text is only white space and comments."""
    return not re.sub(r"--[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL).strip()
