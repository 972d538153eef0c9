"""Casts, besides those of numbers to numbers that `NativeCasts.java` translates."""

from __future__ import annotations

from penstock.duckdb.expressions.entry import UNUSUAL_YEAR, USUAL_YEARS, Entry, cases

_TRIMMED = "trim($0, ' ')"
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_UNUSUAL_TEXT = "a text of an unusual form"
_HAS_NO_DIGIT = "NOT regexp_matches($0, '[0-9]')"
_IS_ASCII = "regexp_full_match($0, '[ -~]*')"
_IS_NO_DOUBLE = "regexp_full_match($0, ' *([+-]?[A-HJ-MO-Za-hj-mo-z][ -~]*)?')"
"""Condition for texts without digits that are neither ``NaN`` nor ``Infinity``."""
_TO_INTEGER = "cast to an integer"


def _matches(pattern: str) -> str:
    return f"regexp_full_match({_TRIMMED}, '{pattern}')"


def _unless_null(value: str) -> str:
    """Return a value as a CASE: DuckDB rewrites comparisons of casts, but not of a CASE."""
    return f"(CASE WHEN $0 IS NULL THEN NULL ELSE {value} END)"


def _text_to(kind: str) -> Entry:
    """Return the cast of a text of digits; a text with letters is invalid, and others fail: Spark allows some."""
    branches = {
        _matches("[+-]?[0-9]+"): f"coalesce(TRY_CAST({_TRIMMED} AS $type), $invalid)",
        f"{_TRIMMED} = '' OR regexp_matches($0, '[A-Za-z]')": "$invalid",
    }
    examples = (f"cast(digits as {kind})", f"try_cast(digits as {kind})")
    return Entry("Cast(string)", cases(branches, _UNUSUAL_TEXT), _TO_INTEGER, examples, kind)


def _floating_to(kind: str, bits: int) -> Entry:
    limit = 1 << (bits - 1)
    fits = f"$0 > {-limit - 1} AND $0 < {limit}" if bits < 64 else f"$0 >= {-limit} AND $0 < {limit}"
    sql = cases({fits: "CAST(trunc($0) AS $type)"}, "a number that does not fit")
    return Entry("Cast(floating)", sql, _TO_INTEGER, (f"cast(double1 as {kind})", f"cast(float1 as {kind})"), kind)


def _decimal_to(kind: str) -> Entry:
    examples = (f"cast(dec1 as {kind})", f"cast(wide1 as {kind})")
    return Entry("Cast(decimal)", _unless_null("CAST(trunc($0) AS $type)"), _TO_INTEGER, examples, kind)


_TO_NUMBER = (
    *(_text_to(kind) for kind in _BITS),
    *(_floating_to(kind, bits) for kind, bits in _BITS.items()),
    *(_decimal_to(kind) for kind in _BITS),
    Entry(
        "Cast(boolean)",
        "CAST($0 AS $type)",
        "cast of boolean",
        ("cast(bool1 as int)", "cast(bool1 as bigint)", "cast(bool1 as double)"),
        "integer|floating",
    ),
    Entry(
        "Cast(string)",
        cases(
            {
                _matches("[+-]?[0-9]{1,30}([.][0-9]{1,30})?"): f"coalesce(TRY_CAST({_TRIMMED} AS $type), $invalid)",
                f"{_HAS_NO_DIGIT} AND {_IS_ASCII}": "$invalid",
            },
            _UNUSUAL_TEXT,
        ),
        "cast to decimal",
        ("cast(digits as decimal(10,2))", "cast(digits as decimal(38,18))", "try_cast(digits as decimal(4,1))"),
        "decimal",
    ),
    Entry(
        "Cast(string)",
        cases(
            {
                _matches("[+-]?[0-9]+([.][0-9]*)?([eE][+-]?[0-9]+)?"): f"CAST({_TRIMMED} AS $type)",
                _IS_NO_DOUBLE: "$invalid",
            },
            _UNUSUAL_TEXT,
        ),
        "cast to double or float",
        ("cast(digits as double)", "cast(digits as float)", "try_cast(digits as double)"),
        "floating",
    ),
    Entry(
        "Cast(bigint)",
        _unless_null("CAST($0 AS DOUBLE)"),
        "cast to double or float",
        ("cast(long1 as double)",),
        "double",
    ),
    Entry(
        "Cast(integer)",
        _unless_null("CAST($0 AS FLOAT)"),
        "cast to double or float",
        ("cast(int1 as float)", "cast(long1 as float)"),
        "float",
    ),
    Entry(
        "Cast(decimal<=15)",
        _unless_null("CAST($0 AS DOUBLE)"),
        "cast to double or float",
        ("cast(dec1 as double)",),
        "double",
    ),
    Entry(
        "Cast(double)",
        _unless_null("CAST($0 AS FLOAT)"),
        "cast to double or float",
        ("cast(double1 as float)",),
        "float",
    ),
)
_TO_BOOLEAN = (
    Entry(
        "Cast(integer|decimal)",
        "($0 <> 0)",
        "cast to boolean",
        ("cast(int1 as boolean)", "cast(long1 as boolean)", "cast(dec1 as boolean)"),
        "boolean",
    ),
    Entry(
        "Cast(string)",
        cases(
            {
                f"lower({_TRIMMED}) IN ('t', 'true', 'y', 'yes', '1')": "true",
                f"lower({_TRIMMED}) IN ('f', 'false', 'n', 'no', '0')": "false",
                _IS_ASCII: "$invalid",
            },
            _UNUSUAL_TEXT,
        ),
        "cast to boolean",
        ("cast(flags as boolean)", "try_cast(flags as boolean)"),
        "boolean",
    ),
)
_TO_STRING = (
    Entry(
        "Cast(integer|boolean)",
        "CAST($0 AS VARCHAR)",
        "cast to string",
        ("cast(int1 as string)", "cast(long1 as string)", "cast(bool1 as string)"),
        "string",
    ),
    Entry(
        "Cast(decimal)",
        "CAST($0 AS VARCHAR)",
        "cast to string",
        ("cast(dec1 as string)", "cast(wide1 as string)"),
        "string",
        mode="ANSI",
    ),
    Entry(
        "Cast(decimal)",
        cases(
            {
                "abs($0) < 0.000001 AND regexp_matches(CAST($0 AS VARCHAR), '[.][0-9]{7}')": (
                    "error('a decimal that Spark writes with an exponent')"
                ),
                "$0 IS NOT NULL": "CAST($0 AS VARCHAR)",
            }
        ),
        "cast to string",
        ("try_cast(dec1 as string)", "try_cast(wide1 as string)"),
        "string",
    ),
    Entry(
        "Cast(date)",
        cases({USUAL_YEARS: "CAST($0 AS VARCHAR)"}, UNUSUAL_YEAR),
        "cast to string",
        ("cast(date1 as string)",),
        "string",
    ),
    Entry("Cast(floating)", None, "cast to string", result="string", reason="the text of a floating-point number"),
)
_DATE_FORMATS = {  # texts of each format, and how to make a date of them
    "yyyy-MM-dd": ("[0-9]{4}-[0-9]{2}-[0-9]{2}", "$0"),
    "yyyyMMdd": ("[0-9]{8}", "left($0, 4) || '-' || substring($0, 5, 2) || '-' || right($0, 2)"),
    "dd/MM/yyyy": ("[0-9]{2}/[0-9]{2}/[0-9]{4}", "right($0, 4) || '-' || substring($0, 4, 2) || '-' || left($0, 2)"),
    "MM/dd/yyyy": ("[0-9]{2}/[0-9]{2}/[0-9]{4}", "right($0, 4) || '-' || left($0, 2) || '-' || substring($0, 4, 2)"),
}


def _date_of(date_format: str, pattern: str, text: str) -> Entry:
    """Return the conversion of a text; an invalid text is an error, as `spark.sql.legacy.timeParserPolicy` applies."""
    date = f"TRY_CAST({text} AS DATE)"
    branches = {"$0 IS NULL": "NULL", f"regexp_full_match($0, '{pattern}') AND {date} > DATE '1899-12-31'": date}
    example = {
        "yyyy-MM-dd": "substring(dates, 1, 10)",
        "yyyyMMdd": "replace(dates, '-', '')",
        "dd/MM/yyyy": "concat(substring(dates, 9, 2), '/', substring(dates, 6, 2), '/', left(dates, 4))",
        "MM/dd/yyyy": "concat(replace(substring(dates, 6, 5), '-', '/'), '/', left(dates, 4))",
    }[date_format]
    return Entry(
        "Cast(GetTimestamp(string, string))",
        cases(branches, _UNUSUAL_TEXT),
        "to_date",
        (f"to_date({example}, '{date_format}')",),
        "date",
        constants={1: date_format},
        reason=f"another date format than {', '.join(_DATE_FORMATS)}, or a time zone that skipped a day",
        zone_sensitive=True,
    )


_TO_DATE = (
    *(_date_of(date_format, *parts) for date_format, parts in _DATE_FORMATS.items()),
    Entry(
        "Cast(string)",
        cases(
            {
                f"starts_with({_TRIMMED}, '0000')": "error('a text of the year 0')",
                _matches("[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][^\\x00]*)?"): (
                    f"coalesce(TRY_CAST(left({_TRIMMED}, 10) AS DATE), $invalid)"
                ),
                _HAS_NO_DIGIT: "$invalid",
            },
            _UNUSUAL_TEXT,
        ),
        "cast to date, to_date",
        ("cast(dates as date)", "to_date(dates)", "try_cast(dates as date)"),
        "date",
    ),
)

ENTRIES = (*_TO_NUMBER, *_TO_BOOLEAN, *_TO_STRING, *_TO_DATE)
