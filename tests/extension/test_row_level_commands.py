"""DELETE, UPDATE and MERGE: tables, counts and errors are those of plain Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.scheduler.job import RECENT
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.run import query_hook
from tests.conftest import OFF
from tests.extension.row_level import RowLevelTables, row_level

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("interpreted")

__all__ = ["row_level"]

REASON = "a query of DELETE, UPDATE or MERGE, which counts rows in its own operators"

COMMANDS = {
    "delete by a condition": "DELETE FROM {t} WHERE k = 1 AND id > 20",
    "delete by an aggregate": "DELETE FROM {t} WHERE v > (SELECT avg(v) FROM {t})",
    "delete by a grouped subquery": "DELETE FROM {t} WHERE id IN (SELECT max(id) FROM {t} GROUP BY k)",
    "delete nothing": "DELETE FROM {t} WHERE id IN (SELECT id + 1000 FROM {t})",
    "update": "UPDATE {t} SET v = v + 1, k = k + 1 WHERE k IN (SELECT k FROM {t} GROUP BY k HAVING min(id) > 1)",
    "update all": "UPDATE {t} SET v = -v",
    "merge": (
        "MERGE INTO {t} t USING (SELECT id % 13 * 4 AS id, count(*) AS n FROM range(100) GROUP BY 1) s ON t.id = s.id "
        "WHEN MATCHED AND t.id < 10 THEN DELETE WHEN MATCHED THEN UPDATE SET v = n "
        "WHEN NOT MATCHED THEN INSERT (id, k, v) VALUES (s.id, NULL, n)"
    ),
    "merge by source": (
        "MERGE INTO {t} t USING (SELECT k, max(id) AS id FROM {t} GROUP BY k) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET v = 0 WHEN NOT MATCHED BY SOURCE AND t.v < 100 THEN DELETE"
    ),
    "insert only": (
        "MERGE INTO {t} t USING (SELECT id, sum(id) AS v FROM range(35, 45) GROUP BY id) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT (id, k, v) VALUES (s.id, 5, s.v)"
    ),
    "several matches that delete": (
        "MERGE INTO {t} t USING (SELECT id % 5 AS id FROM range(20)) s ON t.id = s.id WHEN MATCHED THEN DELETE"
    ),
}
FAILING = {
    "several matches": (
        "MERGE INTO {t} t USING (SELECT id % 5 AS id, id AS v FROM range(20)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET v = s.v"
    ),
    "divided by zero": "UPDATE {t} SET v = v div (id - 7) WHERE k IN (SELECT max(k) FROM {t} GROUP BY id)",
    "null in a column without": "UPDATE {t} SET id = (SELECT max(id) FROM {t} WHERE k > 100)",
}


def outcome(spark: SparkSession, tables: RowLevelTables, mode: str, command: str) -> Any:
    """Return the error of a command, the table's rows, and the counts reported to the table."""
    table, error = tables.make("t", mode), None
    try:
        spark.sql(command.format(t=table)).collect()
    except Exception as raised:
        error = (type(raised), getattr(raised, "getCondition", lambda: None)())
    return error, tables.rows(table), tables.summaries(table)


@pytest.mark.parametrize("mode", RowLevelTables.modes)
@pytest.mark.parametrize("name", COMMANDS | FAILING)
def test_a_row_level_command_behaves_like_plain_spark(
    spark: SparkSession, row_level: RowLevelTables, mode: str, name: str
) -> None:
    command = (COMMANDS | FAILING)[name]
    expected = outcome(spark, row_level, mode, command)
    with penstock.enabled(spark, config=OFF):
        actual = outcome(spark, row_level, mode, command)
    assert actual == expected
    assert (actual[0] is not None) == (name in FAILING)


def test_the_reason_is_counted(spark: SparkSession, row_level: RowLevelTables) -> None:
    with penstock.enabled(spark, config=OFF):
        before = query_hook.query_counts(Bridge(spark)).get(REASON, 0)
        outcome(spark, row_level, "delta", COMMANDS["merge"])
        assert query_hook.query_counts(Bridge(spark))[REASON] == before + 1


def test_queries_of_a_delta_command_are_declined(spark: SparkSession, row_level: RowLevelTables) -> None:
    """A class with the name of Delta's command replaces it, as Delta is not installed."""
    with penstock.enabled(spark, config=OFF):
        before, jobs = query_hook.query_counts(Bridge(spark)).get(REASON, 0), len(RECENT)
        assert row_level.in_command_of_delta(spark.range(100).groupBy("id").count()) == 100
        assert query_hook.query_counts(Bridge(spark))[REASON] == before + 1
        assert len(RECENT) == jobs
