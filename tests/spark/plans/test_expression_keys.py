"""Keys of expressions are equal if and only if the expressions are, independent of their texts."""

from __future__ import annotations

import gc
import random
import re
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.bridge.jvm import Bridge, children, items
from penstock.spark.plans.expressions import Expression
from tests.generated.aggregates import COLUMNS, Generator
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = ROOT / "src" / "penstock"
ARGUMENTS = ", ".join(["s"] * 30)
LOOK_ALIKE = [
    "concat(s, 'x, y')",
    "concat(s, 'x', 'y')",
    f"concat({ARGUMENTS}, 'q')",
    f"concat({ARGUMENTS}, 'r')",
    "i32 > (SELECT max(id) FROM range(3))",
    "i32 > (SELECT max(id) FROM range(4))",
    "i32 > (SELECT max(id) FROM range(3) WHERE id > 0)",
    "'none#1'",
    "i32 + 1",
    "1 + i32",
]
SAME = [("i32 + 1", "1 + i32"), ("i32 > (SELECT max(id) FROM range(3))",) * 2, ("s = 'x'", "'x' = s")]


def expressions(spark: SparkSession, texts: list[str]) -> list[Expression]:
    """Return analysed expressions over a table with one column of each type."""
    columns = ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, kind in COLUMNS.items())
    spark.sql(f"SELECT {columns}").createOrReplaceTempView("columns_of_keys")
    aliased = ", ".join(f"{text} AS e{number}" for number, text in enumerate(texts))
    plan = spark.sql(f"SELECT {aliased} FROM columns_of_keys")._jdf.queryExecution().analyzed()
    bridge = Bridge(spark)
    return [Expression(bridge, children(alias)[0]) for alias in items(plan.projectList())]


def check_pairs(pairs: Any) -> tuple[int, int]:
    """Check pairs of expressions; return the number of equal pairs, and of different pairs with equal texts."""
    equal = same_text = 0
    for left, right in pairs:
        is_same = bool(left._handle.semanticEquals(right._handle))
        assert (left.key == right.key) == is_same, (left.text, right.text)
        equal += is_same
        same_text += not is_same and left._handle.canonicalized().toString() == right._handle.canonicalized().toString()
    return equal, same_text


def test_expressions_that_look_alike(spark: SparkSession) -> None:
    equal, same_text = check_pairs(combinations(expressions(spark, LOOK_ALIKE), 2))
    assert equal >= 1
    assert same_text >= 2


@pytest.mark.parametrize("texts", SAME, ids=str)
def test_equal_expressions(spark: SparkSession, texts: tuple[str, str]) -> None:
    left, right = expressions(spark, list(texts))
    assert left.key == right.key


@pytest.mark.thorough
def test_a_key_lasts_as_long_as_any_expression_that_has_it(spark: SparkSession) -> None:
    """Although the canonical expression of the key may belong to another expression."""
    first, second, third = expressions(spark, ["concat(s, 'of three')"] * 3)
    text = first.key
    assert second.key == text
    del first
    gc.collect()
    jvm: Any = spark._jvm
    for _ in range(5):
        jvm.System.gc()
        jvm.System.runFinalization()
    assert (second.key, third.key) == (text, text)


@pytest.mark.parametrize("seed", range(3))
def test_generated_expressions(spark: SparkSession, seed: int) -> None:
    make = Generator(random.Random(seed), COLUMNS)
    texts = [make.of(make.rng.choice(["boolean", "int", "string", "date"]), 1) for _ in range(40)]
    check_pairs(combinations(expressions(spark, texts), 2))


def test_nondeterministic_expressions_have_distinct_keys(spark: SparkSession) -> None:
    left, right = expressions(spark, ["rand(1)", "rand(1)"])
    assert left.key != right.key


TEXT_AS_IDENTITY = {
    ".java": re.compile(
        r"canonicalized\(\)\s*\.toString\(|(?:put|get|containsKey|remove|add)\(\w+\.(?:sql|toString)\(\)[,)]"
    ),
    ".py": re.compile(r"canonicalized\(\)\.toString\(|semanticHash\(\)\s*=="),
}
"""Texts of expressions and plans as the keys of maps and sets."""
PLAIN_TEXTS = tuple(
    f"spark/java/penstock/plans/{use}"
    for use in ("PlanReader.java: add(key.toString()", "FileRelations.java: add(path.toString()")
)
"""Lists of displayed texts and of paths."""


@pytest.mark.parametrize("suffix", TEXT_AS_IDENTITY)
def test_no_text_is_used_as_an_identity(suffix: str) -> None:
    uses = [
        f"{path.relative_to(SOURCE)}: {match[0]}"
        for path in SOURCE.rglob(f"*{suffix}")
        for match in TEXT_AS_IDENTITY[suffix].finditer(path.read_text())
    ]
    assert [use for use in uses if not use.startswith(PLAIN_TEXTS)] == []
