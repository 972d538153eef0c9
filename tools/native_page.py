"""The page on the expressions that DuckDB computes, from the registry `penstock.duckdb.expressions`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.duckdb.expressions.registry import FAMILIES

if TYPE_CHECKING:
    from penstock.duckdb.expressions.entry import Entry

_HEADER = "| functions | operands | Spark computes | DuckDB fails for |\n|---|---|---|---|\n"
_ERROR = re.compile(r"error\('([^']+)'\)")
_TERMS = {"exact": "not floating", "floating": "float or double", "same": "the same type", "any": "any type"}
_LEAF = re.compile(r"[a-z][a-z0-9|<=*]*")
_INTRODUCTION = """# Expressions that DuckDB computes

[DuckDB computes a query or step](../explanation/native.md) if it has the values of Spark for all of its expressions.
This page lists the scalar expressions of the registry `src/penstock/duckdb/expressions`, and is generated from it.
Tests compare every entry with plain Spark over special and pseudo-random values, in both ANSI modes.

* *Spark computes* names constants and modes for which Spark computes the step. A decision of the job has the reason.
* *DuckDB fails for* names values that may differ. If a row has such a value, Spark computes the step instead.
* In ANSI mode, an invalid value is an error of Spark. DuckDB then fails, and Spark raises its own error.
* A condition, and a value of rows that an operator above may drop, must not be able to fail.

The option `execution.native.exclude` names expressions that Spark computes in any case, for example to find out which
expression is slow.
"""
_OTHERS = """
## Other expressions

These are translated by rules instead of entries: columns, literals, `CASE`, `IF`, `IN`, `IS NULL`, `LIKE` with a
constant pattern, sums, differences, products and quotients of numbers, casts between numbers, and scalar subqueries.

Spark computes all expressions that this page does not name.
"""


def page() -> str:
    """Return the text of the page."""
    parts = [_INTRODUCTION]
    for family, entries in FAMILIES.items():
        parts.append(
            f"\n## {family}\n\n| functions | operands | Spark computes | DuckDB fails for |\n|---|---|---|---|\n"
        )
        parts += [_row(functions, group) for functions, group in _by_functions(e for e in entries if e.sql).items()]
    parts.append("\n## Expressions that Spark computes\n\n| functions | operands | reason |\n|---|---|---|\n")
    for entries in FAMILIES.values():
        parts += [
            f"| {_code(entry.functions)} | {_operands([entry])} | {entry.reason} |\n"
            for entry in entries
            if not entry.sql
        ]
    return "".join(parts) + _OTHERS


def _by_functions(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.functions != "none":
            groups.setdefault(entry.functions, []).append(entry)
    return groups


def _row(functions: str, entries: list[Entry]) -> str:
    reasons = dict.fromkeys(entry.reason for entry in entries if entry.reason)
    errors = dict.fromkeys(error for entry in entries for error in _ERROR.findall(entry.sql or ""))
    errors.pop("an invalid value", None)
    return f"| {_code(functions)} | {_operands(entries)} | {'; '.join(reasons)} | {'; '.join(errors)} |\n"


def _operands(entries: list[Entry]) -> str:
    """Return the types of operands, and of the result where the entry limits it."""
    texts = []
    for entry in entries:
        leaves = ", ".join(_LEAF.findall(re.sub(r"[A-Z][\w.]*", "", entry.pattern)))
        leaves = (
            re.sub(r"\w+", lambda match: _TERMS.get(match[0], match[0]), leaves)
            .replace("|", " or ")
            .replace("*", " ...")
        )
        texts.append(leaves if entry.result == "any" else f"{leaves} to {entry.result.replace('|', ' or ')}")
    return "; ".join(dict.fromkeys(texts))


def _code(functions: str) -> str:
    return ", ".join(f"`{name}`".replace("|", "\\|") for name in functions.split(", "))
