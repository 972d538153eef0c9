"""The short form of ``bench/soak.py``: sixty jobs leave no growing resources."""

from __future__ import annotations

import importlib.util
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


BENCH = ROOT / "bench" / "soak.py"
# Allowed growth over 28 jobs; a leak in every second job exceeds it.
IDLE_SECONDS = 65
"""Spark's threads of stages end after a minute without work; until then, they refer to the session of their last job."""
ALLOWED = {"sessions": 12, "threads": 4, "jvm_threads": 8, "plan_hints": 4, "files": 12}


@pytest.mark.slow
def test_resources_do_not_grow_with_sixty_jobs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCH.parent))  # of the modules that benchmarks share
    spec = importlib.util.spec_from_file_location("soak", BENCH)
    soak = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(soak)
    jobs = soak.Soak(tmp_path)

    def read_idle(first: int) -> dict[str, float]:
        jobs.block(first, 27)
        time.sleep(IDLE_SECONDS)
        return asdict(jobs.block(first + 27, 1))

    read_idle(0)
    before, after = read_idle(28), read_idle(56)
    growth = {name: after[name] - before[name] for name in ALLOWED}
    assert {name: more for name, more in growth.items() if more > ALLOWED[name]} == {}
    objects = jobs.objects()
    assert read_idle(84)["jobs"] == 112
    added = {name: count - objects.get(name, 0) for name, count in jobs.objects().items()}
    classes = (
        "SparkSession",
        "QueryExecution",
        "ShuffleDependency",
        "LogicalRDD",
        "TorrentBroadcast",
        "AdaptiveSparkPlanExec",
    )
    assert {name: more for name, more in added.items() if name.rpartition(".")[2] in classes and more > 14} == {}
