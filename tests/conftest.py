"""What tests share: one Spark session for the whole run, the data, and a way to compare rows."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.services import KafkaBroker, MariaDb, Postgres, SeaweedFs, Sqlite, session_settings

ROOT = Path(__file__).parent.parent
DATA = ROOT / "data"
OFF = {"execution.batch.adaptive.whole-query-threshold": 0}
"""The whole-query shortcut off, so that the real path is tested."""


def pytest_collection_modifyitems(items):
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]")
    for key, value in session_settings().items():
        builder = builder.config(key, value)
    session = (
        builder
        .appName("penstock tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.shuffle.partitions", "8")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def env(spark):
    from penstock import Environment

    return Environment(spark, config=OFF, progress=False)


@pytest.fixture
def make_env(spark):
    from penstock import Environment

    return lambda **config: Environment(spark, config=OFF | {k.replace("__", "-"): v for k, v in config.items()}, progress=False)


@pytest.fixture(scope="session")
def data():
    """The folder of generated data; made by `make test`."""
    if not (DATA / "queries" / "tpcds.json").exists():
        pytest.fail("the test data is missing: run `make test`, or python tools/make_data.py data")
    return DATA


@pytest.fixture(scope="session")
def postgres():
    server = Postgres()
    yield server
    server.close()


@pytest.fixture(scope="session")
def mariadb():
    server = MariaDb()
    yield server
    server.close()


@pytest.fixture(scope="session")
def broker():
    server = KafkaBroker()
    yield server
    server.close()


@pytest.fixture(scope="session")
def s3():
    server = SeaweedFs()
    yield server
    server.close()


@pytest.fixture(scope="session")
def sqlite(tmp_path_factory):
    return Sqlite(tmp_path_factory.mktemp("sqlite"))
