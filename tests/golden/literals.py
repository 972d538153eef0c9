"""Replaces the literals of queries without tables by columns, as Spark computes expressions of literals itself."""

from __future__ import annotations

import re

_TEXT = r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*\""""
_UNCHANGED = r"\binterval\s+\S+(?:\s+\w+(?:\s+to\s+\w+)?)?|\b(?:decimal|numeric|char|varchar|dec)\s*\([^)]*\)|`[^`]*`"
_LITERAL = rf"(?:\b(?:date|timestamp(?:_ntz|_ltz)?|x)\s*)?(?:{_TEXT})|(?<![\w.])\d+(?:\.\d*)?(?:e[+-]?\d+)?(?:BD|[LSYDF])?\b(?!\.)"
_TOKEN = re.compile(rf"(?P<unchanged>{_UNCHANGED})|(?P<literal>{_LITERAL})", re.IGNORECASE)
_EXPRESSIONS = re.compile(r"^select\s+(?!distinct|all\b|\*)(.*)$", re.IGNORECASE | re.DOTALL)
_CLAUSE = re.compile(
    r"\b(?:from|where|group|having|order|union|intersect|except|limit|over|select|lateral)\b", re.IGNORECASE
)


class LiteralColumns:
    """The literals of a file, which become columns of a table; `columns` has the column of each literal."""

    def __init__(self) -> None:
        self.columns: dict[str, str] = {}

    def variants(self, query: str) -> list[str]:
        """Return the expressions of a query without tables, with columns for all literals, or for first arguments.

        Other statements have no variants.
        """
        match = _EXPRESSIONS.match(query)
        if match is None or _CLAUSE.search(re.sub(_TEXT, "", match[1])):
            return []
        expressions = match[1]
        all_columns = self._replaced(expressions, first_arguments=False)
        first_columns = self._replaced(expressions, first_arguments=True)
        return list(dict.fromkeys(text for text in (all_columns, first_columns) if text != expressions))

    def _replaced(self, expressions: str, *, first_arguments: bool) -> str:
        def column(match: re.Match[str]) -> str:
            before = expressions[: match.start()].rstrip()
            if match["literal"] is None or not match[0].strip() or (first_arguments and not before.endswith("(")):
                return match[0]
            return f" {self.columns.setdefault(match[0].strip(), f'c{len(self.columns)}')} "

        return _TOKEN.sub(column, expressions)
