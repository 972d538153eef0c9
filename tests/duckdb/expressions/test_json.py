"""JSON texts that DuckDB must not read: Spark's parser limits their depth and the length of names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.duckdb.expressions.comparison import Comparison
from tests.duckdb.expressions.values import special_rows
from tests.support.native import compute_all_natively

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READ = ['{"a":1}', '{"a":"' + "x" * 40_000 + '"}', '{"b":' + "[" * 800 + "]" * 800 + ',"a":1}']
NOT_READ = [
    '{"a":"' + "x" * 60_000 + '"}',
    '{"b":' + "[" * 1100 + "]" * 1100 + ',"a":1}',
    '{"b":' + "1" * 1001 + ',"a":1}',
    '{"b":[1,],"a":1}',
    '{"a":',
]


@pytest.mark.usefixtures("interpreted", "views")
def test_unusual_texts_are_errors(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compute_all_natively(monkeypatch)
    rows = special_rows(len(READ + NOT_READ))
    rows = rows.set_column(rows.column_names.index("json1"), "json1", pa.array(READ + NOT_READ))
    sql = "get_json_object(json1, '$.a')"
    assert Comparison(spark, tmp_path, [sql]).computable_rows(rows) == {sql: list(range(len(READ)))}
