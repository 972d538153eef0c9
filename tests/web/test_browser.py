"""The page in a real browser (Debian's Chromium): a job is followed from start to end, and cancelled.

Screenshots are written to the folder artifacts.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from penstock import Environment
from penstock.errors import JobCancelledError
from tests.conftest import OFF
from tests.web.browser import ARTIFACTS, started

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


CONFIG = OFF | {
    "rest.port": 0,
    "table.optimizer.adaptive-broadcast-join.strategy": "RUNTIME_ONLY",
    "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task": "100 kb",
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from started()


@pytest.fixture
def env(spark: SparkSession) -> Environment:
    return Environment(spark, config=CONFIG, progress=False, ui=True)


@pytest.fixture
def page(browser: Any, env: Environment) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1180, "height": 900})
    page = context.new_page()
    page.set_default_timeout(20_000)
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.goto(env.ui_url)
    yield page
    context.close()
    assert problems == []


def slow_users(spark: SparkSession, seconds: Any) -> Any:
    def slowly(batches: Any) -> Iterator[Any]:
        time.sleep(seconds)
        yield from batches

    users = spark.range(0, 100, 1, 2).selectExpr("id as user", "id % 5 as team")
    return users.mapInPandas(slowly, users.schema).where("hash(team) <> 7")


def revenue(spark: SparkSession, seconds: Any) -> Any:
    """Return a join whose probe side waits until the slow build side is measured."""
    orders = spark.range(0, 300_000, 1, 4).selectExpr("id as amount", "id % 100 as customer")
    joined = orders.join(slow_users(spark, seconds), F.col("customer") == F.col("user"))
    return joined.groupBy("team").agg(F.count("*").alias("n"), F.sum("amount").alias("s"))


APPEARANCE = """() => {
    const box = node => { const { left, width, top, bottom } = node.getBoundingClientRect(); return { left, width, top, bottom } };
    const painted = document.createElement("canvas").getContext("2d");
    painted.fillStyle = getComputedStyle(document.querySelector(".graph g.pending rect")).fill;
    painted.fillRect(0, 0, 1, 1);
    return {
        fill: [...painted.getImageData(0, 0, 1, 1).data.slice(0, 3)],
        dots: getComputedStyle(document.querySelector(".graph path.edge.pending:not(.head)")).strokeDasharray,
        button: box(document.querySelector("#toggle-pending")),
        graph: box(document.querySelector(".graph")),
    };
}"""
"""Appearance of pending operators, and position of their button; a canvas normalizes the colour."""


def start(env: Environment, df: DataFrame, name: Any, tmp_path: Path) -> Any:
    from penstock.connectors import FileSink

    env.write(df, FileSink(str(tmp_path / "out"), mode="overwrite"))
    return env.execute_async(name)


@pytest.mark.thorough
def test_a_job_is_followed_from_start_to_end(spark: SparkSession, env: Environment, page: Any, tmp_path: Path) -> None:
    job = start(env, revenue(spark, 6), "revenue by team", tmp_path)
    page.get_by_role("link", name="revenue by team").click()
    pending = page.locator("#pending-operators")
    before = int(pending.inner_text())
    assert before > 0
    assert page.locator(".graph .pending").count() == 0
    page.get_by_role("button", name="Show pending operators").click()
    from playwright.sync_api import expect

    shown = page.locator(".graph g.pending rect")
    assert shown.count() == before
    expect(shown.first).to_have_css("stroke-dasharray", "7px, 5px")
    expect(shown.first).to_have_css("stroke", "rgb(33, 118, 47)")
    appearance = page.evaluate(APPEARANCE)
    red, green, blue = appearance["fill"]
    assert green > max(red, blue), "a green background"
    assert appearance["dots"] == "1px, 6px"
    assert appearance["button"]["left"] > appearance["graph"]["left"] + appearance["graph"]["width"] / 2
    assert appearance["button"]["bottom"] <= appearance["graph"]["top"]
    assert page.locator(".graph path.edge.pending").count() > 0
    assert "tasks undecided" in page.locator(".graph g.pending").first.text_content()
    assert page.locator(".graph g.pending title").first.text_content()
    page.screenshot(path=ARTIFACTS / "pending.png", full_page=True)
    page.wait_for_selector("#state.finished")
    job.wait()
    assert page.locator("#pending-operators").inner_text() == "0"
    assert page.get_by_role("button", name=re.compile("pending operators")).count() == 0
    assert page.locator("#broadcast li").count() >= 1, "broadcasts are shown with reasons"
    assert "broadcast" in page.locator(".decisions").inner_text()
    assert page.locator(".timeline .critical").count() >= 1
    assert page.locator(".steps tbody tr").count() == len(job.vertices)
    page.screenshot(path=ARTIFACTS / "finished.png", full_page=True)


@pytest.mark.thorough
def test_vertex_page_opens_by_keyboard(spark: SparkSession, env: Environment, page: Any, tmp_path: Path) -> None:
    job = start(env, revenue(spark, 0), "by keyboard", tmp_path).wait()
    page.goto(env.ui_url.partition("?")[0] + f"ui/jobs/{job.id}")
    vertex = page.locator(".graph a").first
    vertex.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/vertices/v1")
    assert page.locator(".bars svg").count() == len(job.vertices[0].subpartitions)
    assert page.locator(".lanes ol li").count() >= job.vertices[0].tasks
    assert page.locator(".decision").count() >= 1
    page.screenshot(path=ARTIFACTS / "vertex.png", full_page=True)


def test_running_job_is_cancelled(spark: SparkSession, env: Environment, page: Any, tmp_path: Path) -> None:
    job = start(env, revenue(spark, 60), "too slow", tmp_path)
    page.get_by_role("link", name="too slow").click()
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Cancel job").click()
    page.wait_for_selector("#state.canceled")
    with pytest.raises(JobCancelledError):
        job.wait(20)
    assert page.get_by_role("button", name="Cancel job").count() == 0


@pytest.mark.thorough
def test_cancelling_is_impossible_without_the_token(
    spark: SparkSession, env: Environment, browser: Any, tmp_path: Path
) -> None:
    job = start(env, revenue(spark, 60), "not yours", tmp_path)
    stranger = browser.new_page()
    stranger.goto(env.ui_url.partition("?")[0] + f"ui/jobs/{job.id}")
    assert stranger.get_by_role("button", name="Cancel job").count() == 0
    status = stranger.evaluate(f"fetch('/jobs/{job.id}', {{method: 'PATCH'}}).then(answer => answer.status)")
    assert status == 401
    job.cancel()
    job.wait_silently()


@pytest.mark.thorough
def test_phone_in_dark_mode(spark: SparkSession, env: Environment, browser: Any, tmp_path: Path) -> None:
    job = start(env, revenue(spark, 0), "in the pocket", tmp_path).wait()
    context = browser.new_context(viewport={"width": 390, "height": 800}, color_scheme="dark", device_scale_factor=2)
    phone = context.new_page()
    phone.goto(env.ui_url.partition("?")[0] + f"ui/jobs/{job.id}")
    overflow = phone.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow <= 0, "the page itself does not scroll sideways"
    assert phone.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 22, 28)"
    phone.screenshot(path=ARTIFACTS / "phone.png")
    context.close()


@pytest.mark.thorough
def test_idle_page_sends_no_requests(spark: SparkSession, env: Environment, page: Any, tmp_path: Path) -> None:
    requests = []
    page.wait_for_timeout(1500)
    page.on("request", lambda request: requests.append(request.url))
    page.wait_for_timeout(4000)
    assert requests == []
