"""Functions of JSON texts.

DuckDB reads some texts that Spark's parser (Jackson) rejects, and rejects others that it reads. A text of an unusual
form is an error, so that Spark computes the rows.
"""

from __future__ import annotations

from penstock.duckdb.expressions.entry import Entry, cases

# DuckDB also reads trailing commas, NaN and infinity. The patterns may match inside a string, which is rare. RE2 finds
# the first character of a pattern quickly if it is constant, so there are three patterns.
_SPECIAL_NUMBER = r"\s*-?(?i:nan|inf|infinity)\s*[,}\]]"
_HAS_LENIENT_SYNTAX = " OR ".join(
    f"regexp_matches($0, '{pattern}')"
    for pattern in (f":{_SPECIAL_NUMBER}", rf"\[{_SPECIAL_NUMBER}", rf",(\s*[}}\]]|{_SPECIAL_NUMBER})")
)
# Jackson limits names to 50,000 characters, numbers to 1,000, and the depth to 1,000.
_MAY_EXCEED_LIMITS = (
    "strlen($0) > 50000 OR (strlen($0) > 1000 AND regexp_matches($0, '[0-9.eE+-]{1000}')) "
    "OR (strlen($0) > 1800 AND strlen($0) - strlen(replace(replace($0, '[', ''), '{', '')) > 900)"
)
_KEY = "concat('\"', substring($1, 3), '\"')"
# Of equal names, Spark returns the first value that is not null, DuckDB the first value.
_MAY_OCCUR_TWICE = rf"(instr(substring($0, instr($0, {_KEY}) + 1), {_KEY}) > 0 OR contains($0, '\'))"
# An empty text has no fields in Spark and is malformed in DuckDB. DuckDB 1.5.0 also parses the text of null in a
# dictionary, which is empty.
_TEXT = "coalesce(nullif($0, ''), '{}')"
_VALUE = cases(
    {
        "json_type(v) IN ('VARCHAR', 'UBIGINT', 'BIGINT', 'BOOLEAN')": "json_extract_string(v, '$')",
        "v IS NULL": "NULL",
        f"json_type(v) = 'NULL' AND NOT {_MAY_OCCUR_TWICE}": "NULL",
        "TRUE": "error('a JSON value with a fraction, an object, an array, or a name that occurs twice')",
    }
)

ENTRIES = (
    Entry(
        "JsonToStructs(string)",
        cases(
            {
                "$0 = ''": "NULL",
                f"{_HAS_LENIENT_SYNTAX} OR {_MAY_EXCEED_LIMITS}": "error('a JSON text of an unusual form')",
                r"regexp_matches($0, '^\s*\{')": _TEXT,
            },
            "a JSON text that is not an object",
        ),
        "from_json",
        (
            "from_json(json1, 'a STRING, b STRING, long_name1 STRING').b",
            "from_json(json1, 'a BIGINT, b INT').a",
            "from_json(json1, 'a INT').a",
            "from_json(json1, 'a DOUBLE, b DOUBLE').a",
            "from_json(json1, 'a BOOLEAN').a",
            "from_json(json1, 'a DATE').a",
            "from_json(json1, 'a TIMESTAMP, b STRING').a",
            "from_json(json1, 'a TIMESTAMP_NTZ').a",
            "from_json(json1, 'a STRUCT<b: STRING, c: BIGINT>').a.b",
            "size(from_json(json1, 'a ARRAY<STRING>').a)",
            "from_json(json1, 'a ARRAY<STRING>').a IS NULL",
            "size(from_json(json1, 'a ARRAY<STRUCT<b: STRING>>').a)",
            "size(from_json(json1, 'a ARRAY<INT>, b ARRAY<ARRAY<DOUBLE>>').a)",
        ),
        reason="options, or a schema other than a struct",
    ),
    Entry(
        "GetJsonObject(string, string)",
        cases(
            {
                f"{_HAS_LENIENT_SYNTAX} OR {_MAY_EXCEED_LIMITS}": "error('a JSON text of an unusual form')",
                "TRUE": f"list_transform([json_extract({_TEXT}, $1)], lambda v: {_VALUE})[1]",
            },
        ),
        "get_json_object",
        ("get_json_object(json1, '$.a')", "get_json_object(json1, '$.b')", "get_json_object(json1, '$.long_name1')"),
        constants={1: r"\$\.[A-Za-z_][A-Za-z0-9_]*"},
        reason="a path other than the name of a field",
    ),
)
