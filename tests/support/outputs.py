"""Comparison of sample outputs in the docs with what programs print, regardless of figures and column widths."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_RULE = re.compile("[─━]{2,}")


def shape(line: str) -> str:
    """Return a line with masked numbers, and single spaces and dashes.

    >>> shape("plain Spark:  9.7 s, rows [10,000, 4]  ───")
    'plain Spark: # s, rows [#, #] ─'
    """
    return " ".join(_RULE.sub("─", _NUMBER.sub("#", line)).split())


def lines_not_printed(sample: str, printed: str) -> list[str]:
    """Return the lines of a sample whose shapes do not follow each other, in this order, in what was printed."""
    return _without_match([shape(line) for line in sample.splitlines()], map(shape, printed.splitlines()))


def _without_match(samples: list[str], printed: Iterable[str]) -> list[str]:
    remaining = iter(printed)
    for index, line in enumerate(samples):
        if line not in {"", "..."} and line not in remaining:  # `in` advances the iterator to the line
            return samples[index:]
    return []
