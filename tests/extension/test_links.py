"""Links between Spark's page of an execution, the Spark jobs of its query, and the page of the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.entry.observer import record_of
from penstock.history.record import JobRecord
from penstock.scheduler.job import RECENT
from penstock.web import pages
from penstock.web.listing import JobPageQuery
from tests.history.records import events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def descriptions(spark: SparkSession) -> list[str]:
    store = spark.sparkContext._jsc.sc().statusStore()
    jobs = store.jobsList(None)
    return [str(jobs.apply(index).description().toList().mkString("")) for index in range(jobs.size())]


def test_descriptions_of_vertices_name_the_waiting_execution(served: SparkSession) -> None:
    served.range(100).groupBy((F.col("id") % 3).alias("k")).count().orderBy("k").collect()
    (job,) = RECENT
    latest = served._jsparkSession.sharedState().statusStore().executionsList()
    number = max(int(latest.apply(index).executionId()) for index in range(latest.size()))
    mine = [text for text in descriptions(served) if text.startswith(f"{job.name}: ")]
    assert mine
    assert all(text.endswith(f" (for SQL execution {number})") for text in mine)


def test_a_session_without_a_page_has_no_link(served: SparkSession) -> None:
    served.range(100).groupBy("id").count().collect()
    record = record_of(RECENT[0])
    assert record.query is not None
    url = served.sparkContext.uiWebUrl
    assert (record.query["page"] is None) == (url is None)


def test_the_page_of_a_job_links_to_sparks() -> None:
    record = JobRecord()
    address = "http://driver:4040/SQL/execution/?id=12"
    for event in events():
        record.apply(event | ({"query": {"page": address}} if event["type"] == "job" else {}))
    page = pages.job(record, 20.0, JobPageQuery())
    assert f'<a href="{address}">SQL execution 12 in Spark</a>' in page
