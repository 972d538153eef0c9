"""The option ``execution.native.exclude``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.config import Configuration
from penstock.engine.registry import excluded_expressions
from tests.duckdb.expressions.comparison import Comparison
from tests.duckdb.expressions.values import special_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.usefixtures("interpreted", "views")
def test_spark_computes_excluded_expressions(spark: SparkSession, tmp_path: Path) -> None:
    config = Configuration.load({"execution.native.exclude": "LENGTH, RegExpReplace"})
    expressions = ["length(str1)", "regexp_replace(str1, 'a', 'b')", "upper(str1)"]
    declined = Comparison(spark, tmp_path, expressions).declined(special_rows(10), excluded_expressions(config))
    assert declined == {
        "length(str1)": "expression Length, which execution.native.exclude names",
        "regexp_replace(str1, 'a', 'b')": "expression RegExpReplace, which execution.native.exclude names",
    }
