"""An entry of the registry: a pattern of Catalyst expressions, and the SQL with which DuckDB computes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_TOKEN = re.compile(r"[(),]|[^(),]+")

INTEGERS = "tinyint|smallint|int|bigint"
USUAL_YEARS = "$0 BETWEEN DATE '0001-01-01' AND DATE '9999-12-31'"
UNUSUAL_YEAR = "a date outside of the years 1 to 9999"


@dataclass(frozen=True, slots=True)
class Entry:
    """How DuckDB computes an expression, or why Spark computes it.

    `pattern` is a Catalyst class with the patterns of its children, such as ``Md5(Cast(string))``. A leaf of the
    pattern names the supported types of an operand, separated by ``|``: a type of Spark's SQL, ``integer``,
    ``floating``, ``decimal``, ``decimal<=15`` (of up to 15 digits), ``exact`` (not floating), ``same`` (the type of the
    first operand), or ``any``. If the last leaf ends with ``*``, any number of operands match it. A static method, as
    in ``Base64.encode(Cast(string))``, is a class too. `result` lists the supported types of the result likewise.

    `sql` is DuckDB's SQL; None if Spark computes the expression. ``$0`` is the first operand, ``$list`` all operands
    with commas, ``$concat`` all operands with ``||``, ``$type`` the type of the result, ``$invalid`` Spark's reaction
    to invalid values (an error in ANSI mode, otherwise null). ``$regex1`` is a constant regular expression in RE2's
    syntax, ``$group1`` the same with only the group that the next operand selects, and ``$replacement2`` a constant
    replacement.

    `constants` are regular expressions that constant operands must match, by the number of the operand; the operand
    must not be null. `mode` is the mode of errors (``ANSI``, ``LEGACY`` or ``TRY``) to which the entry is limited.
    `reason` says why Spark computes other constants or modes, or the expression as such.

    `locale_sensitive` says whether some languages of Java change the result, and `zone_sensitive` whether time zones do
    whose clocks skipped a day.

    `functions` are Spark's names of the expression, for the documentation. `examples` are SQL expressions over the
    columns of `tests.duckdb.expressions.values`, which tests compare with plain Spark.
    """

    pattern: str
    sql: str | None
    functions: str
    examples: tuple[str, ...] = ()
    result: str = "any"
    constants: Mapping[int, str] = field(default_factory=dict)
    mode: str = ""
    reason: str = ""
    locale_sensitive: bool = False
    zone_sensitive: bool = False

    @property
    def name(self) -> str:
        """The name of the Catalyst class.

        >>> Entry("Length(string)", "length($0)", "length").name
        'Length'
        """
        return self.pattern.partition("(")[0]

    def facts(self) -> dict[str, Any]:
        """Return what ``NativeTemplates.java`` reads."""
        return {
            "pattern": _tree(iter(_TOKEN.findall(self.pattern.replace(" ", "")))),
            "sql": self.sql,
            "result": self.result,
            "constants": {str(number): regex for number, regex in self.constants.items()},
            "mode": self.mode,
            "reason": self.reason,
            "locale_sensitive": self.locale_sensitive,
            "zone_sensitive": self.zone_sensitive,
        }


def cases(branches: Mapping[str, str], failure: str = "") -> str:
    """Return a CASE of conditions and values; for other rows, null, or the error `failure` if ``$0`` is not null.

    >>> cases({"$0 > 0": "$0"}, "a negative number")
    "(CASE WHEN $0 > 0 THEN $0 WHEN $0 IS NOT NULL THEN error('a negative number') END)"
    """
    all_branches = {**branches, "$0 IS NOT NULL": f"error('{failure}')"} if failure else branches
    return "(CASE " + " ".join(f"WHEN {condition} THEN {value}" for condition, value in all_branches.items()) + " END)"


def _tree(tokens: Iterator[str]) -> Any:
    """Return the root of a pattern: a list of a class name and the patterns of its children."""
    (root,) = _children([next(tokens)], tokens)
    return root


def _children(pending: list[Any], tokens: Iterator[str]) -> list[Any]:
    """Return the patterns up to the closing parenthesis; leaves are texts."""
    for token in tokens:
        if token == "(":  # noqa: S105 - not a password
            pending[-1] = [pending[-1], _children([], tokens)]
        elif token == ")":  # noqa: S105
            return pending
        elif token != ",":  # noqa: S105
            pending.append(token)
    return pending
