"""Functions of JSON texts.

DuckDB reads some texts that Spark's parser (Jackson) rejects, and rejects others that it reads. A text of an unusual
form is an error, so that Spark computes the rows.
"""

from __future__ import annotations

from penstock.duckdb.expressions.entry import Entry, cases

# DuckDB also reads trailing commas, NaN and infinity. The pattern may match inside a string, which is rare.
_HAS_LENIENT_SYNTAX = r"regexp_matches($0, '(?i),\s*[}\]]|[:,\[]\s*-?(nan|inf|infinity)\s*[,}\]]')"
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
_TYPE = f"json_type({_TEXT}, $1)"

ENTRIES = (
    Entry(
        "GetJsonObject(string, string)",
        cases(
            {
                f"{_HAS_LENIENT_SYNTAX} OR {_MAY_EXCEED_LIMITS}": "error('a JSON text of an unusual form')",
                f"{_TYPE} IN ('VARCHAR', 'UBIGINT', 'BIGINT', 'BOOLEAN')": f"json_extract_string({_TEXT}, $1)",
                f"{_TYPE} IS NULL": "NULL",
                f"{_TYPE} = 'NULL' AND NOT {_MAY_OCCUR_TWICE}": "NULL",
            },
            "a JSON value with a fraction, an object, an array, or a name that occurs twice",
        ),
        "get_json_object",
        ("get_json_object(json1, '$.a')", "get_json_object(json1, '$.b')", "get_json_object(json1, '$.long_name1')"),
        constants={1: r"\$\.[A-Za-z_][A-Za-z0-9_]*"},
        reason="a path other than the name of a field",
    ),
)
