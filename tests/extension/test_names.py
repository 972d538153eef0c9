"""Names of the jobs of queries, and the stored SQL text."""

from __future__ import annotations

import sysconfig
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from pyspark.sql import functions as F

from penstock.entry.observer import record_of
from penstock.history.summaries import Summary
from penstock.scheduler.job import RECENT
from penstock.spark.run import query_hook
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


NAME = "written"


def grouped(spark: SparkSession) -> Any:
    return spark.table("named").groupBy("k").count()


def line_of(text: str) -> str:
    """Return where the only line of this file with a text is, as names of jobs say."""
    lines = Path(__file__).read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if text in line and "line_of" not in line]
    return f"test_names.py:{number}"


def test_an_action_without_statement_has_method_and_line_as_name(served: SparkSession, tmp_path: Path) -> None:
    grouped(served).write.parquet(str(tmp_path / NAME))
    grouped(served).show(7)
    assert names() == [
        f"write.parquet at {line_of('/ NAME')}",
        f"show at {line_of('show(7)')}",
    ]
    written, shown = (str(job.table()) for job in RECENT)
    assert "write by Spark's writer" in written
    assert "return rows" in shown


def test_rows_that_an_action_caches_are_a_job_with_another_name(served: SparkSession) -> None:
    cached = grouped(served).cache()
    assert cached.where("k >= 0").count() == 3
    line = line_of('"k >= 0"')
    assert sorted(names()) == [f"cache for count at {line}", f"count at {line}"]


def test_a_call_site_of_the_user_overrides_the_line(served: SparkSession) -> None:
    served.sparkContext.setLocalProperty("callSite.short", "nightly load")
    try:
        grouped(served).count()
    finally:
        served.sparkContext.setLocalProperty("callSite.short", None)  # type: ignore[arg-type]
    assert names() == ["nightly load"]


def test_a_name_that_cannot_be_determined_does_not_fail_the_query(
    served: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise OSError("closed")

    monkeypatch.setattr(query_hook, "waiting_call", fail)
    assert len(grouped(served).collect()) == 3
    assert len(names()) == 1


def test_each_of_several_threads_names_its_job(served: SparkSession) -> None:
    start = threading.Barrier(3)

    def run(action: Callable[[DataFrame], Any]) -> None:
        start.wait()
        action(grouped(served))

    actions: list[Callable[[DataFrame], Any]] = [
        lambda df: df.tail(1),
        lambda df: df.agg({"k": "max"}).collect(),
        lambda df: list(df.toLocalIterator(prefetchPartitions=True)),
    ]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(run, actions))
    expected = [
        f"collect at {line_of('df.agg(')}",
        f"tail at {line_of('df.tail(1)')}",
        f"toLocalIterator at {line_of('prefetchPartitions')}",
    ]
    assert sorted(names()) == expected


def test_an_action_in_a_notebook_is_named_by_its_cell(served: SparkSession) -> None:
    shell = InteractiveShell.instance()
    try:
        shell.user_ns["df"] = grouped(served)
        shell.run_cell("first = 1", store_history=True)
        shell.run_cell("rows = (\n    df.collect()\n)", store_history=True)
        shell.run_cell("df.count()", store_history=True)
    finally:
        InteractiveShell.clear_instance()
    assert names() == ["collect in cell 2, line 2", "count in cell 3, line 1"]


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("/home/user/pyspark/report.py", "count at report.py:1"),
        (f"{sysconfig.get_path('purelib')}/reports/daily.py", "count at daily.py:1"),
    ],
)
def test_programs_in_folders_of_any_name(served: SparkSession, file: str, expected: str) -> None:
    code = compile("df.count()", file, "eval")
    with ThreadPoolExecutor(1) as pool:  # so that no line of this file waits
        pool.submit(eval, code, {"df": grouped(served)}).result()
    assert names() == [expected]


def test_a_query_of_a_client_without_statement_is_named_by_its_plan(served: SparkSession) -> None:
    with ThreadPoolExecutor(1) as pool:  # so that no line of a program waits, as on a server
        pool.submit(grouped(served).count).result()
    assert names() == ["aggregate of range"]


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
