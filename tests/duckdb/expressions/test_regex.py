"""Regular expressions of Java in DuckDB: which are declined, and the matches of generated patterns."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.duckdb.expressions.comparison import Comparison
from tests.duckdb.expressions.values import random_rows, special_rows
from tests.support.native import compute_all_natively

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("interpreted", "views")

DECLINED = {
    "str1 rlike 'a(?=b)'": "look-around, flags, or named groups",
    r"str1 rlike '(a)\\1'": r"the escape \1",
    "str1 rlike 'a*+a'": "a possessive repetition",
    r"str1 rlike '\\p{Alpha}'": r"the escape \p",
    r"str1 rlike '\\h'": r"the escape \h",
    "str1 rlike '(?<x>a)'": "look-around, flags, or named groups",
    "str1 rlike 'a{1100}'": "more than 1000 repetitions",
    "str1 rlike '[a-z&&[^b]]'": "a nested class",
    "str1 rlike '(a*)*b'": "a repetition of something that may be empty",
    "str1 rlike 'a()'": "an empty group",
    "str1 rlike '^(?:)'": "an empty group",
    "str1 rlike 'a^'": "something before the start of the text",
    "regexp_extract(str1, '(a)+', 1)": "a repeated group",
    "regexp_replace(str1, 'a*', 'x')": "a replacement of empty matches",
    "regexp_replace(str1, 'a', '$1')": "a replacement by a named or missing group",
}
_ATOMS = ["a", "b", "é", "😀", ".", "^", "$", "\\d", "\\w", "\\s", "\\W", "\\S", "[abc]", "[^a]", "[\\w.]", "\\.", ","]
_ATOMS += ["\\b", "\\n", "x", "1", "\\Z", "[a-]", "[^\\W1]", "\\u00e9", "\\x61", "[A-z]", " ", "\\r", "(a|b)", "(?:ab)"]
_QUANTIFIERS = ["", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,2}", "{2,}"]


@pytest.fixture(autouse=True)
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    compute_all_natively(monkeypatch)


def test_declined_patterns(spark: SparkSession, tmp_path: Path) -> None:
    reasons = Comparison(spark, tmp_path, list(DECLINED)).declined(special_rows(10))
    assert reasons == {sql: f"a regular expression with {reason}" for sql, reason in DECLINED.items()}


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
def test_generated_patterns(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """About half of the patterns are native."""
    rng = random.Random(seed)
    patterns = [_pattern(rng) for _ in range(60)]
    expressions = [f"str1 rlike '{pattern}'" for pattern in patterns]
    expressions += [f"regexp_extract(str1, '{pattern}', 0)" for pattern in patterns]
    expressions += [f"regexp_replace(str1, '{pattern}', '<$0>')" for pattern in patterns]
    declined = Comparison(spark, tmp_path, expressions).declined(special_rows(10))
    natives = [sql for sql in expressions if sql not in declined]
    assert len(natives) > len(expressions) // 4
    for begin in range(0, len(natives), 50):
        assert Comparison(spark, tmp_path, natives[begin : begin + 50]).run(random_rows(2000, seed)) == {}


def _pattern(rng: random.Random) -> str:
    parts = [rng.choice(_ATOMS) + rng.choice(_QUANTIFIERS) for _ in range(rng.randrange(1, 5))]
    return (rng.choice(["", "", "(?i)"]) + rng.choice(["", "", "|"]).join(parts)).replace("\\", "\\\\")
