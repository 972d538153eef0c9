"""Every entry of the registry, over special and pseudo-random values: DuckDB's values are those of plain Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.duckdb.expressions.entry import Entry
from penstock.duckdb.expressions.registry import FAMILIES
from tests.duckdb.expressions.comparison import Comparison
from tests.duckdb.expressions.values import finite_rows, random_rows, special_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("interpreted")

EXAMPLES = {family: [sql for entry in entries for sql in entry.examples] for family, entries in FAMILIES.items()}
UNTESTED = {
    "KnownNotNull",
    "KnownNullable",
    "Alias",
    "KnownFloatingPointNormalized",
    "NormalizeNaNAndZero",
    "CharVarcharCodegenUtils.readSidePadding",
}
"""Classes without examples: the first four change no value, and no SQL expression over a column yields the last two.

`tests/duckdb/test_floating_numbers.py` tests normalized keys."""


@pytest.mark.sample(2)
@pytest.mark.usefixtures("views")
@pytest.mark.parametrize("family", FAMILIES)
def test_special_values(session: SparkSession, tmp_path: Path, family: str) -> None:
    assert Comparison(session, tmp_path, EXAMPLES[family]).run(special_rows(1200)) == {}


@pytest.mark.sample(1)
@pytest.mark.usefixtures("views")
def test_values_that_file_statistics_ignore(session: SparkSession, tmp_path: Path) -> None:
    examples = [sql for family in EXAMPLES.values() for sql in family if "double" in sql or "float" in sql]
    assert Comparison(session, tmp_path, examples).run(finite_rows()) == {}


@pytest.mark.thorough
@pytest.mark.usefixtures("views")
@pytest.mark.parametrize("family", FAMILIES)
def test_many_values(session: SparkSession, tmp_path: Path, family: str) -> None:
    count = 2_000 if family == "JSON" else 100_000  # DuckDB takes a millisecond for a value that fails
    assert Comparison(session, tmp_path, EXAMPLES[family]).run(random_rows(count)) == {}


@pytest.mark.parametrize("family", FAMILIES)
def test_an_entry_without_example_says_why_spark_computes_it(family: str) -> None:
    untested = [entry for entry in FAMILIES[family] if not entry.examples and entry.name not in UNTESTED]
    assert all(entry.sql is None and entry.reason for entry in untested), untested
    assert not any(entry.examples for entry in FAMILIES[family] if entry.sql is None)


def test_constants_have_a_reason() -> None:
    """If the last entry of a pattern accepts only some constants, it says why Spark computes the others."""
    last: dict[str, Entry] = {}
    for entries in FAMILIES.values():
        last |= {f"{entry.pattern} {entry.result}": entry for entry in entries}
    assert [name for name, entry in last.items() if entry.constants and not entry.reason] == []
