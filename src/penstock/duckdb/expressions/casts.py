"""Casts, besides those of numbers to numbers that `NativeCasts.java` translates."""

from __future__ import annotations

from penstock.duckdb.expressions.entry import Entry

_TRIMMED = "trim($0, ' ')"
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_COLUMNS = {"tinyint": "byte1", "smallint": "short1", "int": "int1", "bigint": "long1"}
_UNUSUAL_TEXT = "error('a text of an unusual form')"
_NEEDS_DIGIT = "NOT regexp_matches($0, '[0-9]')"


def _text_to(kind: str) -> Entry:
    """Return the cast of a text of digits; a text with letters is invalid, and others fail: Spark allows some."""
    return Entry(
        "Cast(string)",
        f"(CASE WHEN regexp_full_match({_TRIMMED}, '[+-]?[0-9]+') THEN coalesce(TRY_CAST({_TRIMMED} AS $type), $invalid) "
        f"WHEN {_TRIMMED} = '' OR regexp_matches($0, '[A-Za-z]') THEN $invalid WHEN $0 IS NOT NULL THEN {_UNUSUAL_TEXT} END)",
        "cast to an integer",
        (f"cast(digits as {kind})", f"try_cast(digits as {kind})"),
        result=kind,
    )


def _double_to(kind: str, bits: int) -> Entry:
    limit = 1 << (bits - 1)
    upper, lower = (f"$0 < {limit}", f"$0 > {-limit - 1}") if bits < 64 else ("$0 < 9223372036854775808", "$0 >= -9223372036854775808")
    return Entry(
        "Cast(floating)",
        f"(CASE WHEN {upper} AND {lower} THEN CAST(trunc($0) AS $type) "
        "WHEN $0 IS NOT NULL THEN error('a number that does not fit') END)",
        "cast to an integer",
        (f"cast(double1 as {kind})", f"cast(float1 as {kind})"),
        result=kind,
    )


ENTRIES = (
    *(_text_to(kind) for kind in _BITS),
    *(_double_to(kind, bits) for kind, bits in _BITS.items()),
    *(
        Entry(
            "Cast(decimal)",
            "(CASE WHEN $0 IS NULL THEN NULL ELSE CAST(trunc($0) AS $type) END)",
            "cast to an integer",
            (f"cast(dec1 as {kind})", f"cast(wide1 as {kind})"),
            result=kind,
        )
        for kind in _BITS
    ),
    Entry("Cast(integer)", "($0 <> 0)", "cast to boolean", ("cast(int1 as boolean)", "cast(long1 as boolean)"), result="boolean"),
    Entry("Cast(decimal)", "($0 <> 0)", "cast to boolean", ("cast(dec1 as boolean)",), result="boolean"),
    Entry(
        "Cast(boolean)",
        "CAST($0 AS $type)",
        "cast of boolean",
        ("cast(bool1 as int)", "cast(bool1 as bigint)", "cast(bool1 as double)"),
        result="integer|floating",
    ),
    Entry("Cast(integer)", "CAST($0 AS VARCHAR)", "cast to string", ("cast(int1 as string)", "cast(long1 as string)"), result="string"),
    Entry("Cast(boolean)", "CAST($0 AS VARCHAR)", "cast to string", ("cast(bool1 as string)",), result="string"),
    Entry("Cast(decimal)", "CAST($0 AS VARCHAR)", "cast to string", ("cast(dec1 as string)", "cast(wide1 as string)"), result="string", mode="ANSI"),
    Entry(
        "Cast(decimal)",
        r"(CASE WHEN abs($0) < 0.000001 AND regexp_matches(CAST($0 AS VARCHAR), '\.[0-9]{7}') "
        "THEN error('a decimal that Spark writes with an exponent') ELSE CAST($0 AS VARCHAR) END)",
        "cast to string",
        ("cast(dec1 as string)", "cast(wide1 as string)"),
        result="string",
    ),
    Entry(
        "Cast(date)",
        "(CASE WHEN $0 BETWEEN DATE '0001-01-01' AND DATE '9999-12-31' THEN CAST($0 AS VARCHAR) "
        "WHEN $0 IS NOT NULL THEN error('a date outside of the years 1 to 9999') END)",
        "cast to string",
        ("cast(date1 as string)",),
        result="string",
    ),
    Entry("Cast(floating)", None, "cast to string", result="string", reason="the text of a floating-point number"),
    Entry(
        "Cast(string)",
        f"(CASE WHEN regexp_full_match({_TRIMMED}, '[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}([ T][^\\x00]*)?') "
        f"AND NOT starts_with({_TRIMMED}, '0000') THEN coalesce(TRY_CAST(left({_TRIMMED}, 10) AS DATE), $invalid) "
        f"WHEN {_NEEDS_DIGIT} THEN $invalid WHEN $0 IS NOT NULL THEN {_UNUSUAL_TEXT} END)",
        "cast to date, to_date",
        ("cast(dates as date)", "to_date(dates)", "try_cast(dates as date)"),
        result="date",
    ),
    Entry(
        "Cast(string)",
        f"(CASE WHEN lower({_TRIMMED}) IN ('t', 'true', 'y', 'yes', '1') THEN true "
        f"WHEN lower({_TRIMMED}) IN ('f', 'false', 'n', 'no', '0') THEN false "
        f"WHEN regexp_full_match($0, '[ -~]*') THEN $invalid WHEN $0 IS NOT NULL THEN {_UNUSUAL_TEXT} END)",
        "cast to boolean",
        ("cast(flags as boolean)", "try_cast(flags as boolean)"),
        result="boolean",
    ),
    Entry(
        "Cast(string)",
        f"(CASE WHEN regexp_full_match({_TRIMMED}, '[+-]?[0-9]{{1,30}}([.][0-9]{{1,30}})?') THEN coalesce(TRY_CAST({_TRIMMED} AS $type), $invalid) "
        f"WHEN {_NEEDS_DIGIT} AND regexp_full_match($0, '[ -~]*') THEN $invalid WHEN $0 IS NOT NULL THEN {_UNUSUAL_TEXT} END)",
        "cast to decimal",
        ("cast(digits as decimal(10,2))", "cast(digits as decimal(38,18))", "try_cast(digits as decimal(4,1))"),
        result="decimal",
    ),
    Entry(
        "Cast(string)",
        f"(CASE WHEN regexp_full_match({_TRIMMED}, '[+-]?[0-9]+([.][0-9]*)?([eE][+-]?[0-9]+)?') THEN CAST({_TRIMMED} AS $type) "
        f"WHEN {_NEEDS_DIGIT} AND regexp_full_match({_TRIMMED}, '([+-]?[A-HJ-MO-Za-hj-mo-z][ -~]*)?') THEN $invalid "
        f"WHEN $0 IS NOT NULL THEN {_UNUSUAL_TEXT} END)",
        "cast to double, cast to float",
        ("cast(digits as double)", "cast(digits as float)", "try_cast(digits as double)"),
        result="floating",
    ),
    Entry("Cast(bigint)", "(CASE WHEN $0 IS NULL THEN NULL ELSE CAST($0 AS DOUBLE) END)", "cast to double", ("cast(long1 as double)",), result="double"),
    Entry("Cast(integer)", "(CASE WHEN $0 IS NULL THEN NULL ELSE CAST($0 AS FLOAT) END)", "cast to float", ("cast(int1 as float)", "cast(long1 as float)"), result="float"),
    Entry("Cast(decimal<=15)", "(CASE WHEN $0 IS NULL THEN NULL ELSE CAST($0 AS DOUBLE) END)", "cast to double", ("cast(dec1 as double)",), result="double"),
    Entry("Cast(double)", "(CASE WHEN isinf($0) THEN $0 ELSE CAST($0 AS FLOAT) END)", "cast to float", ("cast(double1 as float)",), result="float"),
)
