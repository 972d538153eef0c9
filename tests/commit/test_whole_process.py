"""A separate driver dies with its JVM during a commit; a rerun of the job produces every row once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.paths import TESTS
from tests.support.services import require_module

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


require_module("deltalake", "delta")

JOB = str(TESTS / "jobs" / "killed_commit.py")
CODE = """
import sys, deltalake, pyarrow.parquet as pq, os
folder = sys.argv[1]
def files(path):
    return [os.path.join(f, n) for f, _, names in os.walk(path) for n in names
            if n.endswith(".parquet") and "/." not in os.path.join(f, n)]
for name in ("whole", "parts"):
    print(sum(pq.read_metadata(path).num_rows for path in files(f"{folder}/{name}")))
exists = deltalake.DeltaTable.is_deltatable(f"{folder}/delta")
print(deltalake.DeltaTable(f"{folder}/delta").to_pyarrow_table().num_rows if exists else 0, flush=True)
os._exit(0)  # the library's threads may abort the process when it ends by itself
"""


def run(folder: Path, dies: Any) -> Any:
    return subprocess.run(
        [sys.executable, JOB, str(folder), dies],
        capture_output=True,
        text=True,
        timeout=300,
        start_new_session=True,
        check=False,
    )


def counts(folder: Path) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(folder)], capture_output=True, text=True, timeout=60, check=True
    )
    return [int(line) for line in done.stdout.split()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dies", "visible", "recovered"),
    [
        ("touch:1", [50, 50, 0], "50 50 0"),
        ("exchange:1", [1000, 50, 0], "50 50 0"),  # no partition yet
        ("move_to:5", [1000, None, 0], "50 50 0"),  # some of the appended files
        ("delta:1", [1000, 1050, 1000], "1000 1050 1000"),  # which cannot be undone
    ],
)
def test_the_driver_dies_with_its_jvm(
    spark: SparkSession, tmp_path: Path, dies: str, visible: Any, recovered: str
) -> None:
    for name in ("whole", "parts"):
        rows = spark.range(50).selectExpr("id + 5000 as id", "id % 2 as p")
        (rows.write.partitionBy("p") if name == "parts" else rows.write).parquet(str(tmp_path / name))
    killed = run(tmp_path, dies)
    assert killed.returncode == -9, killed.stderr
    row_counts = counts(tmp_path)
    assert all(expected in (None, count) for count, expected in zip(row_counts, visible, strict=True)), row_counts
    rerun = run(tmp_path, "no")
    assert rerun.returncode == 0, rerun.stderr
    assert rerun.stdout.split("\n")[0] == recovered
    assert counts(tmp_path) == [1000, 1050, 1000]
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".penstock-commit-")]
