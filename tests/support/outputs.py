"""Comparison of sample outputs in the docs with what programs print, regardless of figures and column widths."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"\b[0-9a-f]{12}\b|\d+(?:[.,:]\d+)*")
"""A number, or the id of a job."""
_RULE = re.compile("[─━]{2,}")


def shape(line: str) -> str:
    """Return a line with masked numbers, and single spaces and dashes.

    >>> shape("plain Spark:  9.7 s, rows [10,000, 4]  ───")
    'plain Spark: # s, rows [#, #] ─'
    """
    return " ".join(_RULE.sub("─", _NUMBER.sub("#", line)).split())


def lines_not_printed(sample: str, printed: str) -> list[str]:
    """Return the shapes from the first line of a sample that was not printed after those before it."""
    samples, remaining = shapes(sample), iter(shapes(printed))
    for index, line in enumerate(samples):
        if line not in {"", "..."} and line not in remaining:  # `in` advances the iterator to the line
            return samples[index:]
    return []


def shapes(text: str) -> list[str]:
    """Return the shapes of the lines of a text; a row of a table is a single line, wherever its cells are wrapped.

    >>> shapes("│ 1 │ 8 splits of │\\n│   │ 2 files     │\\n└───┘")
    ['│ # │ # splits of # files │', '└─┘']
    """
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("│ ") and not line.split("│")[1].strip() and lines:
            cells = zip(lines[-1].split("│"), line.split("│"), strict=True)
            lines[-1] = "│".join(f"{above.rstrip()} {below.strip()} " for above, below in cells).strip()
        else:
            lines.append(line)
    return [shape(line) for line in lines]
