"""Take the README's pictures of the page: a running and a finished job, TPC-H 9 at scale 1.

An earlier run of the job is compared with plain Spark, so that the page shows what was gained. Argument: the folder of
`tools/make_data.py --scale 1`; by default, ``data``.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from pyspark.sql import SparkSession

from penstock import Environment
from penstock.connectors import FileSink
from tests.web.browser import CHROMIUM, FLAGS

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
NAME, WIDTH, MARGIN = "TPC-H Q9", 1280, 12
PENDING_STEPS = "document.querySelectorAll('.graph .finished').length > 3 && document.querySelector('.graph .pending')"


def start(spark: SparkSession, query: str, target: str, **config: Any) -> tuple[Any, str]:
    """Start the job; return it, and the address of its page."""
    env = Environment(spark, config={"rest.port": 0} | config, progress=False, ui=True)
    env.write(spark.sql(query), FileSink(target, mode="overwrite"))
    job = env.execute_async(NAME)
    assert env.ui_url is not None
    return job, f"{env.ui_url.partition('?')[0]}ui/jobs/{job.id}"


def main(data: Path) -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master("local[2]").config("spark.driver.memory", "3g").getOrCreate()
    for file in sorted((data / "tpch-1").glob("*.parquet")):
        spark.read.parquet(str(file)).createOrReplaceTempView(file.stem)
    query = json.loads((ROOT / "data" / "queries" / "tpch.json").read_text())["9"]
    with tempfile.TemporaryDirectory() as target, sync_playwright() as playwright:
        start(spark, query, target)[0].wait()  # Spark compiles its code
        start(spark, query, target, **{"execution.shadow": "REPORT"})[0].wait()
        page = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS).new_page(
            viewport={"width": WIDTH, "height": 800}
        )
        job, address = start(spark, query, target)
        page.goto(f"{address}?pending=true")
        page.wait_for_function(PENDING_STEPS)
        page.locator("section:has(.graph)").screenshot(path=IMAGES / "pending.png")
        job.wait()
        page.goto(address)
        timeline = page.locator("#timeline").bounding_box()
        height = timeline["y"] + timeline["height"] + MARGIN
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": height}
        page.screenshot(path=IMAGES / "finished.png", full_page=True, clip=clip)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "data")
