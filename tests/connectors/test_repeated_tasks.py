"""Tasks that Spark really repeats after they wrote: a worker that dies, and a commit whose answer is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.lost_answers import LosesCommits
from tests.services import DRIVERS, needed_module

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.services import Postgres


needed_module("deltalake", "delta")
needed_module("pyiceberg", "iceberg")

pytestmark = pytest.mark.thorough

JOB = Path(__file__).parent.parent / "jobs" / "repeated.py"
TABLES = {"worker_died": "worker died", "answer_lost": "answer lost"}


@pytest.fixture(scope="module")
def repeated(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("repeated")
    way = LosesCommits(postgres.port, losses=1)
    for table in TABLES:
        postgres.sql(f"create table {table} (id bigint, v bigint, p bigint)")
    url = f"jdbc:postgresql://127.0.0.1:{way.port}/postgres"
    given = postgres.properties
    try:
        arguments = [str(folder), url, given["user"], given["password"], given["driver"], str(DRIVERS["postgresql"])]
        done = subprocess.run(
            [sys.executable, JOB, *arguments], capture_output=True, text=True, check=False, timeout=300
        )
    finally:
        way.close()
    lines = [line for line in done.stdout.splitlines() if line.startswith("SAID ")]
    assert lines, done.stderr[-4000:]
    return folder, json.loads(lines[0].removeprefix("SAID ")) | {"lost": way.lost}


def test_the_record_has_the_tasks_that_failed(repeated: Any) -> None:
    """Each of four sinks has a vertex of its own."""
    _, said = repeated
    assert said == {"files": 4, "worker died": 1, "answer lost": 1, "lost": 1}


@pytest.mark.parametrize("kind", ["files", "folders", "delta", "iceberg"])
def test_rows_come_once_in_files(spark: SparkSession, repeated: Any, kind: str) -> None:
    folder, _ = repeated
    assert (folder / f"{kind} died").exists()
    if kind == "iceberg":
        from pyiceberg.catalog import load_catalog

        uri, warehouse = f"sqlite:///{folder}/catalog.db", f"file://{folder}/iceberg"
        ids = (
            load_catalog("default", type="sql", uri=uri, warehouse=warehouse)
            .load_table("n.t")
            .scan()
            .to_arrow()["id"]
            .to_pylist()
        )
    elif kind == "delta":
        from deltalake import DeltaTable

        ids = DeltaTable(str(folder / "delta")).to_pyarrow_table()["id"].to_pylist()
    else:
        ids = [row.id for row in spark.read.parquet(str(folder / kind)).select("id").collect()]
    assert sorted(ids) == list(range(20_000))


@pytest.mark.parametrize("table", TABLES)
def test_rows_come_once_in_a_database(postgres: Postgres, repeated: Any, table: str) -> None:
    assert postgres.sql(f"select count(*), count(distinct id), sum(v) from {table}") == f"20000|20000|{20_000 * 19_999}"
