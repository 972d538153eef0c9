"""A small Spark session, and figures of finished stages from Spark's REST API.

The examples measure plain Spark and Penstock in this same way.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.request import urlopen

from pyspark.sql import SparkSession

SETTLE_SECONDS = 0.3
"""Spark publishes the figures of a stage shortly after the stage ends."""


@dataclass(frozen=True)
class Run:
    """What a call returned, its seconds, and the tasks and the shuffled bytes of each stage that Spark finished."""

    result: Any
    seconds: float
    tasks: list[int]
    shuffled: list[int]

    @property
    def shuffled_mib(self) -> float:
        """The MiB that all stages wrote for a shuffle."""
        return sum(self.shuffled) / 2**20


def start_spark(cores: int = 2) -> SparkSession:
    """Start a local Spark whose tasks run in the Python of this program."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(f"local[{cores}]").config("spark.ui.showConsoleProgress", "false")
    return builder.config("spark.log.level", "ERROR").getOrCreate()


def measure(spark: SparkSession, call: Callable[[], Any]) -> Run:
    """Run a call, and return its result with the figures of the stages that finished during it."""
    earlier = {stage["stageId"] for stage in _finished_stages(spark)}
    started = time.perf_counter()
    result = call()
    seconds = time.perf_counter() - started
    stages = [stage for stage in _finished_stages(spark) if stage["stageId"] not in earlier]
    stages.sort(key=lambda stage: stage["stageId"])
    return Run(
        result, seconds, [stage["numTasks"] for stage in stages], [stage["shuffleWriteBytes"] for stage in stages]
    )


def _finished_stages(spark: SparkSession) -> list[dict[str, Any]]:
    context = spark.sparkContext
    address = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/stages"
    before = None
    while True:
        with urlopen(address) as answer:
            stages = json.load(answer)
        if stages == before and not any(stage["status"] in {"ACTIVE", "PENDING"} for stage in stages):
            return [stage for stage in stages if stage["status"] == "COMPLETE"]
        before = stages
        time.sleep(SETTLE_SECONDS)
