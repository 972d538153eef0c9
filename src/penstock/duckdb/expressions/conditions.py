"""Conditions, comparisons and choices."""

from __future__ import annotations

from penstock.duckdb.expressions.entry import Entry, cases

_COMPARISONS = (
    ("EqualTo", "=", "=, =="),
    ("LessThan", "<", "<"),
    ("LessThanOrEqual", "<=", "<="),
    ("GreaterThan", ">", ">"),
    ("GreaterThanOrEqual", ">=", ">="),
    ("EqualNullSafe", "IS NOT DISTINCT FROM", "<=>, equal_null"),
)
_EXAMPLES = (
    "str1 {} str2",
    "int1 {} int2",
    "long1 {} int1",
    "dec1 {} dec2",
    "date1 {} date2",
    "bool1 {} bool2",
    "double1 {} double2",
    "float1 {} float2",
    "double1 {} 0.5D",
    "float1 {} float(1.5)",
)


def _comparison(name: str, operator: str, functions: str) -> Entry:
    symbol = functions.partition(",")[0]
    examples = tuple(example.format(symbol) for example in _EXAMPLES)
    return Entry(f"{name}(any, same)", f"($0 {operator} $1)", functions, examples)


ENTRIES = (
    Entry("And(boolean, boolean)", "($0 AND $1)", "and", ("bool1 and bool2", "bool1 and int1 > 5")),
    Entry("Or(boolean, boolean)", "($0 OR $1)", "or", ("bool1 or bool2", "bool1 or str1 = 'a'")),
    Entry("Not(boolean)", "(NOT $0)", "not, !, <>", ("not bool1", "str1 <> str2")),
    *(_comparison(*names) for names in _COMPARISONS),
    Entry(
        "Coalesce(same*)",
        "coalesce($list)",
        "coalesce, nvl, ifnull",
        (
            "coalesce(str1, str2)",
            "nvl(int1, int2)",
            "coalesce(double1, double2)",
            "coalesce(date1, date2, date'2024-01-01')",
        ),
    ),
    Entry(
        "Greatest(exact*)",
        "greatest($list)",
        "greatest",
        ("greatest(str1, str2)", "greatest(int1, int2, 7)", "greatest(dec1, dec2)", "greatest(date1, date2)"),
    ),
    Entry(
        "Least(exact*)",
        "least($list)",
        "least",
        ("least(str1, str2)", "least(int1, int2, 7)", "least(dec1, dec2)", "least(date1, date2)"),
    ),
    Entry("Greatest(floating*)", None, "greatest", reason="the greatest of floating-point numbers"),
    Entry("Least(floating*)", None, "least", reason="the least of floating-point numbers"),
    Entry("Alias(any)", "$0", "as"),
    Entry("KnownNotNull(any)", "$0", "none"),
    Entry("KnownNullable(any)", "$0", "none"),
    Entry("KnownFloatingPointNormalized(any)", "$0", "none"),
    Entry(
        "NormalizeNaNAndZero(floating)",
        cases({"$0 = 0": "CAST(0 AS $type)", "isnan($0)": "CAST('NaN' AS $type)", "true": "$0"}),
        "none",
    ),
)
