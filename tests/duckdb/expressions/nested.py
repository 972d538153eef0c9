"""Random nested expressions: examples of the registry, whose operands are other examples of the same type."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

from tests.duckdb.expressions.comparison import operands_of

_DEPTHS = (2, 3)
_NESTED_SHARE = 0.6
"""The probability that another expression replaces an operand, so that constants and columns stay frequent."""


def nested_expressions(
    rng: random.Random, roots: Sequence[str], examples: Mapping[str, str], columns: Mapping[str, str], count: int
) -> list[str]:
    """Return different nested expressions.

    Parameters
    ----------
    roots
        The expressions whose operands are replaced.
    examples, columns
        Expressions that may replace an operand, and columns; each with its type.
    count
        The number of expressions.
    """
    by_type: dict[str, list[str]] = {}
    for sql, kind in examples.items():
        by_type.setdefault(kind, []).append(sql)
    expressions: dict[str, None] = {}
    for _ in range(10 * count):
        if len(expressions) == count:
            break
        expressions.setdefault(_nested(rng, rng.choice(roots), by_type, columns, rng.choice(_DEPTHS), is_root=True))
    return list(expressions)


def _nested(
    rng: random.Random,
    sql: str,
    by_type: Mapping[str, Sequence[str]],
    columns: Mapping[str, str],
    depth: int,
    *,
    is_root: bool = False,
) -> str:
    """Replace operands of an expression: all of the root, and some of the other levels."""
    replacements = {}
    for name in operands_of(sql):
        candidates = by_type.get(columns[name], [])
        if depth > 1 and candidates and (is_root or rng.random() < _NESTED_SHARE):
            replacements[name] = f"({_nested(rng, rng.choice(candidates), by_type, columns, depth - 1)})"
    return replaced(sql, replacements)


def replaced(sql: str, replacements: Mapping[str, str]) -> str:
    """Replace columns of an expression, but not their names in text literals."""
    pattern = re.compile("|".join([r"'(?:[^'\\]|\\.)*'", *(rf"\b{name}\b" for name in replacements)]))
    return pattern.sub(lambda match: replacements.get(match[0], match[0]), sql)
