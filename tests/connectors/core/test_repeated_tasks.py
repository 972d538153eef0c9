"""Tasks that Spark repeats after they have written: after the death of a worker, and after a lost commit answer."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.lost_confirmations import ConfirmationDroppingProxy
from tests.support.paths import TESTS
from tests.support.services import DRIVERS, require_module

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.services import Postgres


require_module("deltalake", "delta")
require_module("pyiceberg", "iceberg")

pytestmark = pytest.mark.thorough

JOB = TESTS / "jobs" / "repeated_tasks.py"
TABLES = {"worker_died": "worker died", "answer_lost": "answer lost"}


@pytest.fixture(scope="module")
def repeated(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("repeated")
    proxy = ConfirmationDroppingProxy(postgres.port, losses=1)
    for table in TABLES:
        postgres.sql(f"create table {table} (id bigint, v bigint, p bigint)")
    url = f"jdbc:postgresql://127.0.0.1:{proxy.port}/postgres"
    properties = [postgres.properties[name] for name in ("user", "password", "driver")]
    try:
        command = [sys.executable, JOB, str(folder), url, *properties, str(DRIVERS["postgresql"])]
        process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    finally:
        proxy.close()
    lines = [line for line in process.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, process.stderr[-4000:]
    return folder, json.loads(lines[0].removeprefix("RESULT ")) | {"lost": proxy.dropped}


def test_failed_tasks_are_recorded(repeated: Any) -> None:
    """Each of the four file sinks has its own vertex."""
    _, failed_tasks = repeated
    assert failed_tasks == {"files": 4, "worker died": 1, "answer lost": 1, "lost": 1}


@pytest.mark.parametrize("kind", ["files", "folders", "delta", "iceberg"])
def test_files_have_each_row_once(spark: SparkSession, repeated: Any, kind: str) -> None:
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
def test_a_database_has_each_row_once(postgres: Postgres, repeated: Any, table: str) -> None:
    assert postgres.sql(f"select count(*), count(distinct id), sum(v) from {table}") == f"20000|20000|{20_000 * 19_999}"
