"""A catalog whose tables support DELETE, UPDATE and MERGE, compiled from its Java source."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.plans.dataframes import with_settings
from tools.java_classes import CannotCompileError, javac, spark_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCES = sorted((Path(__file__).parent / "java").glob("*.java"))
NAME = "penstock.tests.RowLevelCatalog"


class RowLevelTables:
    """Tables in the catalog ``rows``; "groups" are replaced as by Iceberg's copy-on-write, "delta" is its merge-on-read."""

    modes = ("groups", "delta")

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def make(self, name: str, mode: str) -> str:
        """Create a table of 40 rows in four groups; return its name."""
        table = f"rows.{name}"
        self._spark.sql(f"DROP TABLE IF EXISTS {table}")
        self._spark.sql(
            f"CREATE TABLE {table} (id BIGINT NOT NULL, k BIGINT, v BIGINT) TBLPROPERTIES ('mode' = '{mode}')"
        )
        self._spark.range(40).selectExpr("id", "id % 4 AS k", "id * 10 AS v").writeTo(table).append()
        return table

    def rows(self, table: str) -> list[Any]:
        return sorted(tuple(row) for row in self._spark.table(table).collect())

    def summaries(self, table: str) -> list[str]:
        """Return the summary of each commit that Spark passed to the table."""
        return list(self._call(NAME, "summaries", table.removeprefix("rows.")))

    def tasks(self, table: str) -> int:
        """Return the number of tasks that wrote the latest commit."""
        return int(self._call(NAME, "tasks", table.removeprefix("rows.")))

    def in_command_of_delta(self, df: DataFrame) -> int:
        """Count the rows of a DataFrame in a class with the name of a Delta command."""
        return int(self._call("org.apache.spark.sql.delta.commands.UpdateCommand", "count", df._jdf))

    def _call(self, class_name: str, method: str, argument: Any) -> Any:
        """Call a static method of a class that py4j's class loader does not see."""
        gateway = self._spark.sparkContext._gateway
        java_class = gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(class_name)
        arguments = gateway.new_array(gateway.jvm.java.lang.Object, 1)
        arguments[0] = argument
        return next(candidate for candidate in java_class.getMethods() if candidate.getName() == method).invoke(
            None, arguments
        )


@pytest.fixture(scope="session")
def row_level(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RowLevelTables]:
    folder = tmp_path_factory.mktemp("row_level")
    try:
        command = [javac(), "--release", "17", "-proc:none", "-cp", f"{spark_jars()}/*", "-d", folder, *SOURCES]
    except CannotCompileError as error:
        assert os.environ.get("ALL_CHECKS") != "1", error
        pytest.skip(f"{error}, so the tests of row-level commands are skipped")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    jvm = spark._jvm
    jvm.java.lang.Thread.currentThread().getContextClassLoader().addURL(jvm.java.io.File(f"{folder}/").toURI().toURL())
    with with_settings(spark, {"spark.sql.catalog.rows": NAME}):
        yield RowLevelTables(spark)
