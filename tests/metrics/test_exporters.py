"""The metrics as the libraries of Prometheus and OpenTelemetry read them."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

import pytest
from fastapi.testclient import TestClient
from opentelemetry import metrics
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import functions as F

from penstock import Environment
from penstock.entry import observer
from penstock.metrics import instruments as i
from penstock.metrics.prometheus import PrometheusMeter
from penstock.web.api import create_app
from penstock.web.store import JobStore
from tests.support.logged import messages
from tests.support.paths import ROOT, TESTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = ROOT / "docs"


def samples(text: str) -> dict[str, float]:
    """Return the samples in a response: values by names with labels."""
    return {
        sample.name + "".join(f"{{{key}={value}}}" for key, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_prometheus_metrics() -> None:
    meter = PrometheusMeter()
    meter.add(i.JOBS, 1, "finished")
    meter.add(i.JOBS, 1, "failed")
    meter.add(i.RUNNING_JOBS, 1)
    meter.add(i.WRITTEN, 4096)
    meter.add(i.VERTEX_WAIT, 2.0)
    client = TestClient(create_app(JobStore(), "a token", metrics=meter), base_url="http://127.0.0.1")
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    values = samples(answer.text)
    assert values["penstock_jobs_total{state=finished}"] == values["penstock_jobs_total{state=failed}"] == 1
    assert values["penstock_jobs_running"] == 1
    assert values["penstock_written_bytes_total"] == 4096
    assert values["penstock_vertex_wait_seconds_bucket{le=1.0}"] == 0
    assert values["penstock_vertex_wait_seconds_bucket{le=3.0}"] == values["penstock_vertex_wait_seconds_count"] == 1
    headers = {"accept": "application/openmetrics-text; version=1.0.0"}
    assert client.get("/metrics", headers=headers).text.endswith("# EOF\n")


def test_every_instrument_is_exported_and_documented() -> None:
    page = (DOCS / "reference" / "metrics.md").read_text()
    text = PrometheusMeter().scrape("")[0].decode()
    for instrument in i.INSTRUMENTS:
        assert f"# HELP {instrument.prometheus_name} {instrument.doc}" in text
        assert f"`{instrument.prometheus_name}`" in page
        assert f"`{instrument.name}`" in page


@pytest.mark.parametrize(("bearer", "code"), [("a token", 200), ("another", 401)])
def test_public_address_requires_the_token(bearer: str, code: int) -> None:
    app = create_app(JobStore(), "a token", address="192.0.2.1", metrics=PrometheusMeter())
    answer = TestClient(app).get("/metrics", headers={"Authorization": f"Bearer {bearer}"})
    assert answer.status_code == code


def test_without_a_driver() -> None:
    client = TestClient(create_app(JobStore(), "a token"), base_url="http://127.0.0.1")
    answer = client.get("/metrics")
    assert answer.status_code == 404
    assert "there is no driver in this process" in answer.json()["detail"]


def test_a_job_on_spark_is_counted(spark: SparkSession) -> None:
    config = {"rest.port": 0, "execution.batch.adaptive.whole-query-threshold": 0}
    env = Environment(spark, config=config, progress=False, ui=True)
    assert env.ui_url is not None

    def scrape() -> dict[str, float]:
        with urllib.request.urlopen(env.ui_url.partition("?")[0] + "metrics") as answer:
            return samples(answer.read().decode())

    before = scrape()
    env.collect(spark.range(0, 1000, 1, 4).groupBy((F.col("id") % 7).alias("k")).count())
    after = scrape()
    job = env.last_job
    assert job is not None

    def grown(name: str) -> float:
        return after.get(name, 0) - before.get(name, 0)

    assert grown("penstock_jobs_total{state=finished}") == 1
    assert after["penstock_jobs_running"] == before.get("penstock_jobs_running", 0)
    assert grown("penstock_vertices_total{state=finished}") == len(job.vertices)
    assert grown("penstock_tasks_total") == sum(vertex.tasks or 0 for vertex in job.vertices)
    assert grown("penstock_written_bytes_total") == sum(vertex.bytes_out or 0 for vertex in job.vertices) > 0
    decisions = [key for key in after if key.startswith("penstock_decisions_total")]
    assert sum(map(grown, decisions)) == len(list(job.decisions))


def test_a_job_without_a_page_is_counted_too(spark: SparkSession) -> None:
    config = {"rest.port": 0, "execution.batch.adaptive.whole-query-threshold": 0}
    page = Environment(spark, config=config, progress=False, ui=True).ui_url
    assert page is not None

    def finished() -> float:
        with urllib.request.urlopen(page.partition("?")[0] + "metrics") as answer:
            return samples(answer.read().decode()).get("penstock_jobs_total{state=finished}", 0)

    before = finished()
    Environment(spark, config=config, progress=False, ui=False).collect(spark.range(3))
    assert finished() == before + 1


@pytest.mark.parametrize("fails", ["get_meter", "create_histogram"])
def test_incompatible_opentelemetry(
    fails: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Histograms before release 1.30 do not accept boundaries: this is reported once, and jobs do not fail."""

    def refuse(*_: object, **__: object) -> None:
        raise TypeError("got an unexpected keyword argument 'explicit_bucket_boundaries_advisory'")

    monkeypatch.setattr(metrics if fails == "get_meter" else metrics.NoOpMeter, fails, refuse)
    monkeypatch.setattr(metrics._internal._ProxyMeter, fails, refuse, raising=False)
    observer._open_telemetry_meter.cache_clear()
    try:
        with caplog.at_level(logging.WARNING, "penstock"):
            assert [observer._open_telemetry() for _ in range(3)] == [None] * 3
    finally:
        observer._open_telemetry_meter.cache_clear()
    (report,) = [message for message in messages(caplog) if "OpenTelemetry" in message]
    assert "explicit_bucket_boundaries_advisory" in report


@pytest.mark.alone
def test_opentelemetry_sdk() -> None:
    """A process sets up the SDK before its first job."""
    job = TESTS / "jobs" / "telemetry.py"
    done = subprocess.run([sys.executable, str(job)], capture_output=True, text=True, timeout=180, check=True)
    exported = json.loads(done.stdout.splitlines()[-1])
    assert exported["penstock.jobs"] == {"unit": "{job}", "points": {"finished": 1}}
    assert exported["penstock.job.duration"]["unit"] == "s"
    assert exported["penstock.vertices"]["points"]["finished"] >= 2
    assert exported["penstock.written"]["unit"] == "By"
    assert exported["penstock.jobs.running"]["points"] == {"": 0}
