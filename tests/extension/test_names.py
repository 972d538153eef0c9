"""Names of the jobs of queries, and the stored SQL text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from penstock.entry.observer import record_of
from penstock.history.summaries import Summary
from penstock.scheduler.job import RECENT
from penstock.web import pages
from penstock.web.listing import JobListQuery, JobPageQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GROUPED = "SELECT k, count(*) AS n FROM named GROUP BY k"
STATEMENTS = {
    "aggregate": GROUPED,
    "order": f"{GROUPED}\n  ORDER BY n DESC",
    "limit": f"{GROUPED} ORDER BY k LIMIT 2",
    "with": "WITH a AS (SELECT k FROM named WHERE id IN (SELECT max(id) FROM named GROUP BY k)) SELECT a.k FROM a JOIN named USING (k)",
    "union": "SELECT k FROM named UNION SELECT id FROM named",
    "window": "SELECT k, row_number() OVER (PARTITION BY k ORDER BY id) AS r FROM named",
    "exists": "SELECT k FROM named WHERE EXISTS (SELECT 1 FROM named u WHERE u.id = named.k) GROUP BY k",
    "view": "SELECT * FROM named_view",
    "values of the analyser": "SELECT * FROM named_view WHERE k > 0 ORDER BY ALL",
}
ACTIONS: dict[str, Callable[[DataFrame], Any]] = {
    "collect": lambda df: df.collect(),
    "toPandas": lambda df: df.toPandas(),
    "toLocalIterator": lambda df: list(df.toLocalIterator()),
    "count": lambda df: df.count(),
    "show": lambda df: df.show(3),
    "take": lambda df: df.take(2),
    "rdd": lambda df: df.rdd.count(),
    "select": lambda df: df.select("k").collect(),
    "cache": lambda df: df.cache().collect(),
}


@pytest.fixture(autouse=True)
def tables(spark: SparkSession) -> Iterator[None]:
    spark.range(100).select("id", (F.col("id") % 3).alias("k")).createOrReplaceTempView("named")
    spark.sql(f"CREATE OR REPLACE TEMP VIEW named_view AS {GROUPED}")
    yield
    spark.catalog.clearCache()
    for name in ("named", "named_view"):
        spark.catalog.dropTempView(name)


def shortened(text: str) -> str:
    return text if len(text) <= 120 else text[:121].rpartition(" ")[0] + " …"


def names() -> list[str]:
    return [job.name for job in RECENT]


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_a_statement_is_the_name(served: SparkSession, statement: str) -> None:
    served.sql(statement).collect()
    (job,) = RECENT
    assert job.name == shortened(" ".join(statement.split()))
    record = record_of(job)
    assert record.query is not None
    assert record.query["statement"] == statement
    assert record.query["line"].startswith("collect at ")


@pytest.mark.parametrize("action", ACTIONS)
def test_every_action_has_the_statement_as_name(served: SparkSession, action: str) -> None:
    ACTIONS[action](served.sql(GROUPED))
    assert set(names()) == {GROUPED}


@pytest.mark.parametrize(
    "derived",
    [
        lambda df: df.groupBy("n").count(),
        lambda df: df.where("n > 1"),
        lambda df: df.join(df.sparkSession.sql("SELECT id AS k FROM named"), "k"),
        lambda df: df.sparkSession.table("named_view"),
        lambda df: df.sparkSession.table("named").groupBy(F.expr("k + 1")).count(),
    ],
)
def test_a_query_derived_from_a_statement_has_the_users_line(served: SparkSession, derived: Callable[..., Any]) -> None:
    derived(served.sql(GROUPED)).collect()
    (name,) = names()
    assert name.startswith("collect at ")


def test_cached_rows_have_their_own_name(served: SparkSession) -> None:
    cached = served.sql(GROUPED).cache()
    cached.createOrReplaceTempView("named_cached")
    outer = "SELECT n, count(*) FROM named_cached GROUP BY n"
    served.sql(outer).collect()
    served.catalog.dropTempView("named_cached")
    assert sorted(names()) == sorted([GROUPED, outer])


def test_a_writing_statement_is_the_name(served: SparkSession, tmp_path: Path) -> None:
    served.sql(GROUPED).write.parquet(str(tmp_path / "a"))
    insert = f"INSERT OVERWRITE DIRECTORY '{tmp_path}/b' USING parquet {GROUPED}"
    served.sql(insert)
    table = f"CREATE TABLE named_table USING parquet LOCATION '{tmp_path}/c' AS {GROUPED}"
    served.sql(table)
    served.sql("DROP TABLE named_table")
    grouped, *written = names()
    assert grouped == GROUPED
    for name, text in zip(written, (insert, table), strict=True):
        assert text.startswith(name.removesuffix(" …"))
        assert 60 < len(name) <= 122


def test_a_job_description_overrides_the_statement(served: SparkSession) -> None:
    served.sparkContext.setJobDescription("mine")
    try:
        served.sql(GROUPED).collect()
    finally:
        served.sparkContext.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
    (job,) = RECENT
    assert job.name == "mine"
    assert job.origin is not None
    assert job.origin.statement == GROUPED


def test_the_page_shows_a_statement_without_its_secrets(served: SparkSession) -> None:
    served.sql(f"SELECT *\n FROM ({GROUPED}) WHERE k <> 5 OR 'password' = 'hunter2<b>'").collect()
    record = record_of(RECENT[0])
    page = pages.job(record, record.started, JobPageQuery())
    assert '<pre class="statement"' in page
    assert "SELECT *\n FROM (SELECT k" in page
    assert "<dt>Action</dt>" in page
    assert "Spark runs the last stage after the job" in page
    assert "SELECT * FROM (SELECT k" in pages.jobs([Summary.of(record)], JobListQuery(), record.started)
    assert "hunter2" not in page + RECENT[0].name


def test_texts_that_spark_redacts_are_redacted(served: SparkSession) -> None:
    served.conf.set("spark.sql.redaction.string.regex", "ssn-[0-9]+")
    try:
        served.sql(f"{GROUPED} HAVING 'ssn-123' <> string(k)").collect()
    finally:
        served.conf.unset("spark.sql.redaction.string.regex")
    assert names() == [f"{GROUPED} HAVING '*********(redacted)' <> string(k)"]
