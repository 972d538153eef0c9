"""The small form of ``bench/soak.py``: what grows with every job is found after some sixty of them."""

from __future__ import annotations

import importlib.util
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


BENCH = Path(__file__).parent.parent / "bench" / "soak.py"
# How much more there may be after thirty more jobs: one for every second job would be found.
MORE = {"sessions": 12, "threads": 4, "jvm_threads": 8, "marks": 4, "files": 12}


@pytest.mark.slow
def test_sixty_jobs_leave_nothing(spark: SparkSession, tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("soak", BENCH)
    soak = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(soak)
    jobs = soak.Soak(tmp_path)
    jobs.block(0, 28)
    before, after = asdict(jobs.block(28, 28)), asdict(jobs.block(56, 28))
    assert {name: after[name] - before[name] for name, more in MORE.items() if after[name] - before[name] > more} == {}
    grown = jobs.objects()
    again = jobs.block(84, 28)
    assert again.jobs == 112
    left = {name: count - grown.get(name, 0) for name, count in jobs.objects().items()}
    kinds = (
        "SparkSession",
        "QueryExecution",
        "ShuffleDependency",
        "LogicalRDD",
        "TorrentBroadcast",
        "AdaptiveSparkPlanExec",
    )
    assert {name: more for name, more in left.items() if name.rpartition(".")[2] in kinds and more > 14} == {}
