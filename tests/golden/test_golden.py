"""Queries of many kinds: DuckDB computes most of them, and their rows and errors are those of plain Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.golden.literals import LiteralColumns
from tests.golden.runner import FileRun
from tests.golden.script import read_script
from tests.support.native import compute_all_natively, without_python_types

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = Path(__file__).parent / "cases"
MIN_NATIVE = {
    "aggregates": 24,
    "grouping_sets": 7,
    "joins": 18,
    "literals": 30,
    "sets_and_orders": 13,
    "subqueries": 11,
    "windows": 14,
}
"""The number of queries of each file of which DuckDB must compute a part."""


@pytest.mark.thorough
@pytest.mark.duckdb
@pytest.mark.parametrize("ansi", ["true", "false"], ids=["ansi", "not ansi"])
@pytest.mark.parametrize("name", MIN_NATIVE)
def test_rows_and_errors_are_those_of_plain_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, ansi: str
) -> None:
    compute_all_natively(monkeypatch)
    without_python_types(monkeypatch)
    summary = FileRun(spark, tmp_path, {"spark.sql.ansi.enabled": ansi}).run(CASES / f"{name}.sql")
    assert summary.differences == []
    assert summary.skipped == []
    assert summary.native >= MIN_NATIVE[name], summary.reasons


def test_every_file_is_tested() -> None:
    assert {path.stem for path in CASES.iterdir()} == set(MIN_NATIVE)


@pytest.mark.parametrize(
    ("query", "variants"),
    [
        ("select substring('a', 1, 2)", ["substring( c0 ,  c1 ,  c2 )", "substring( c0 , 1, 2)"]),
        ("select upper('a') || 'it''s'", ["upper( c0 ) ||  c1 ", "upper( c0 ) || 'it''s'"]),
        ("select cast(1.5 as decimal(3, 1))", ["cast( c0  as decimal(3, 1))"]),
        ("select interval 1 day + date'2024-01-01'", ["interval 1 day +  c0 "]),
        ("select 1 from t", []),
        ("select k", []),
    ],
)
def test_literals_become_columns(query: str, variants: list[str]) -> None:
    assert LiteralColumns().variants(query) == variants


def test_statements_settings_and_imports(tmp_path: Path) -> None:
    folder = tmp_path / "inputs" / "deeper"
    folder.mkdir(parents=True)
    (tmp_path / "inputs" / "other.sql").write_text("select 3;\n")
    (folder / "a.sql").write_text(
        "--SET a.b=1,c=2\n-- a comment\nselect 1,\n-- inside\n  ';';\nselect 2\n;\n--IMPORT other.sql\n"
    )
    script = read_script(folder / "a.sql")
    assert script.settings == {"a.b": "1", "c": "2"}
    assert script.statements == ["select 3", "select 1,\n  ';'", "select 2"]
