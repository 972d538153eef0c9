"""Files of a target size in Delta and Iceberg tables, and compaction of small files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from tests.support.services import require_module

require_module("deltalake", "delta")
require_module("pyiceberg", "iceberg")

from penstock.connectors import DeltaSink, DeltaSource, IcebergSink, IcebergSource
from penstock.errors import ConfigError
from tests.support.equality import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock import Environment

KB = 1 << 10
TARGET = 128 * KB
ROWS = 20_000


class Table:
    """An empty table, partitioned by the column `by` unless it is None."""

    def __init__(self, kind: str, folder: Path, by: str | None) -> None:
        self.kind, self.path = kind, str(folder / "t")
        self.properties = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}"}
        if kind == "delta":
            import deltalake

            fields = [deltalake.Field(name, deltalake.schema.PrimitiveType(of)) for name, of in self.columns]
            deltalake.DeltaTable.create(self.path, deltalake.Schema(fields), partition_by=by)
        else:
            from pyiceberg.catalog import load_catalog
            from pyiceberg.transforms import parse_transform

            catalog = load_catalog("default", **self.properties)
            catalog.create_namespace("n")
            import pyarrow as pa

            kinds = {"long": pa.int64(), "string": pa.string()}
            self.table = catalog.create_table("n.t", pa.schema([(name, kinds[of]) for name, of in self.columns]))
            if by is not None:
                with self.table.update_spec() as change:
                    change.add_field(by, parse_transform("identity"))

    columns = (("id", "long"), ("text", "string"), ("kind", "string"))

    def sink(self, **options: Any) -> Any:
        return (
            DeltaSink(self.path, **options) if self.kind == "delta" else IcebergSink("n.t", self.properties, **options)
        )

    def source(self) -> Any:
        return DeltaSource(self.path) if self.kind == "delta" else IcebergSource("n.t", self.properties)

    def sizes(self) -> list[int]:
        if self.kind == "delta":
            import deltalake
            import pyarrow as pa

            return pa.table(deltalake.DeltaTable(self.path).get_add_actions())["size_bytes"].to_pylist()
        return [task.file.file_size_in_bytes for task in self.table.refresh().scan().plan_files()]


@pytest.fixture(params=["delta", "iceberg"])
def create_table(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str | None], Table]:
    return lambda by: Table(request.param, tmp_path, by)


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    kind = F.expr("if(id % 5 > 0, 'hot', concat('k', id div 5 % 2))").alias("kind")
    return spark.range(0, ROWS, 1, 12).select("id", F.expr("uuid(7)").alias("text"), kind)


def check_rows(env: Environment, table: Table, rows: DataFrame) -> None:
    """Compare aggregates only, because `text` is random."""
    written = env.read(table.source()).groupBy("kind").agg(F.count("*"), F.sum("id"), F.count_distinct("text"))
    expected = rows.groupBy("kind").agg(F.count("*"), F.sum("id"), F.count("*"))
    assert_same_rows(env.collect(written), expected.collect())


@pytest.mark.thorough
def test_partitions_are_divided_into_files_of_the_target_size(
    env: Environment, rows: DataFrame, create_table: Callable[[str | None], Table]
) -> None:
    """12 tasks with rows of 3 partitions each would write 36 files."""
    table = create_table("kind")
    env.write(rows, table.sink(target_file_size=TARGET))
    job = env.execute()
    sizes = table.sizes()
    assert "in files of" in job.vertices[-1].reason
    assert len(sizes) < 12
    assert sum(0.6 * TARGET <= size <= 1.4 * TARGET for size in sizes) >= len(sizes) - 3, sizes
    check_rows(env, table, rows)


@pytest.mark.thorough
def test_unpartitioned_tables_have_files_of_the_target_size(
    env: Environment, rows: DataFrame, create_table: Callable[[str | None], Table]
) -> None:
    table = create_table(None)
    env.write(rows, table.sink(target_file_size="256 kb"))
    env.execute()
    assert max(table.sizes()) < 1.4 * 256 * KB
    assert len(table.sizes()) < 6
    check_rows(env, table, rows)


@pytest.mark.parametrize("by", [None, "kind"])
def test_small_files_are_merged(
    make_env: Callable[..., Environment], rows: DataFrame, create_table: Callable[[str | None], Table], by: str | None
) -> None:
    env, table = make_env(**{"sink.auto__compaction": True}), create_table(by)
    env.write(rows, table.sink(parallelism=6))
    job = env.execute()
    assert len(table.sizes()) == (1 if by is None else 3)
    assert any(vertex.vertex.name.startswith("Compaction") for vertex in job.vertices)
    check_rows(env, table, rows)


@pytest.mark.thorough
def test_a_repeated_token_needs_no_compaction(
    env: Environment, rows: DataFrame, create_table: Callable[[str | None], Table]
) -> None:
    table = create_table("kind")
    for _ in range(2):
        env.write(rows, table.sink(token="monday", auto_compaction=True))
        env.execute()
    check_rows(env, table, rows)


def test_a_bad_target_size_is_an_error() -> None:
    with pytest.raises(ConfigError):
        DeltaSink("t", target_file_size="many")
