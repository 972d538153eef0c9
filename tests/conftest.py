"""Shared fixtures: the Spark session of the test run, environments, test data and servers."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.plans.dataframes import with_settings
from tests.support.order import rank
from tests.support.paths import ROOT
from tests.support.sampling import mark_thorough
from tests.support.services import (
    NO_CODEGEN,
    SHORT_LIVED_JAVA_OPTIONS,
    KafkaBroker,
    MariaDb,
    Postgres,
    SeaweedFs,
    Sqlite,
    session_settings,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment


DATA = ROOT / "data"
os.environ.setdefault("SPARK_SUBMIT_OPTS", SHORT_LIVED_JAVA_OPTIONS)
"""JVM options of drivers that tests start in separate processes."""
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
"""Programs in `tests/jobs` import from `tests`, whatever their working directory is."""
OFF = {"execution.batch.adaptive.whole-query-threshold": 0, "execution.verify": True}
"""Spark runs no query unchanged because it is small, and every job verifies itself."""


def pytest_collection_modifyitems(items: Any) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
    mark_thorough(items)
    longest = {item.path for item in items if item.get_closest_marker("long") is not None}
    # After a process has read a Delta table it cannot fork, as the threads of the client are missing in the child. Then
    # the slowest files come first, so that both processes end at about the same time.
    items.sort(key=lambda item: (rank(item), item.path not in longest))


@pytest.fixture(scope="session", autouse=True)
def no_files_in_the_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Store the key of journals and the history of shells in a folder of the test run."""
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state-home"))
    yield
    if before is None:
        del os.environ["XDG_STATE_HOME"]
    else:
        os.environ["XDG_STATE_HOME"] = before


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]")
    for key, value in session_settings().items():
        builder = builder.config(key, value)
    session = (
        builder.appName("penstock tests")
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


@pytest.fixture(scope="module", autouse=True)
def unchanged_session() -> Iterator[None]:
    """Check after each module that the shared session is unchanged: Penstock is disabled, and no job group is set.

    A lost shuffle file would end the JVM of all tests ten minutes later: Spark then considers the only executor as lost,
    and a local master cannot restart it.
    """
    yield
    pyspark = sys.modules.get("pyspark")
    context = None if pyspark is None else pyspark.SparkContext._active_spark_context
    if context is None:
        return
    for key in ("spark.jobGroup.id", "spark.job.description"):
        context.setLocalProperty(key, None)
    assert context._jsc.sc().getExecutorMemoryStatus().size() == 1, (
        "a shuffle file was lost: run this in a separate process"
    )
    from pyspark.sql import SparkSession

    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.run import query_hook

    session = SparkSession._instantiatedSession
    if session is None:
        return
    assert query_hook.set_service(Bridge(session), None) is None, "Penstock is still enabled"
    sessions = Bridge(session).find("org.apache.spark.sql.classic.SparkSession")
    sessions.setActiveSession(session._jsparkSession)  # as PySpark does when it creates it


@pytest.fixture(scope="module")
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Interpret queries instead of compiling them, which takes half of the time in modules with many small queries."""
    with with_settings(spark, NO_CODEGEN):
        yield


@pytest.fixture(scope="session")
def env(spark: SparkSession) -> Environment:
    from penstock import Environment

    return Environment(spark, config=OFF, progress=False)


@pytest.fixture
def make_env(spark: SparkSession) -> Callable[..., Environment]:
    from penstock import Environment

    return lambda **config: Environment(
        spark, config=OFF | {k.replace("__", "-"): v for k, v in config.items()}, progress=False
    )


@pytest.fixture(scope="session")
def data() -> Path:
    """Return the folder of generated data, see `make test`."""
    if not (DATA / "queries" / "tpcds.json").exists():
        pytest.fail("the test data is missing: run `make test`, or python tools/make_data.py data")
    return DATA


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    yield server
    server.close()


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    server = MariaDb()
    yield server
    server.close()


@pytest.fixture(scope="session")
def broker() -> Iterator[KafkaBroker]:
    server = KafkaBroker()
    yield server
    server.close()


@pytest.fixture(scope="session")
def s3() -> Iterator[SeaweedFs]:
    server = SeaweedFs()
    yield server
    server.close()


@pytest.fixture(scope="session")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Sqlite:
    return Sqlite(tmp_path_factory.mktemp("sqlite"))


@pytest.fixture(scope="session")
def inputs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tests.state.queries import write_input

    folder = tmp_path_factory.mktemp("stream")
    for number in range(5):
        write_input(spark, folder, number)
    return sorted(folder.glob("*.parquet"))


@pytest.fixture(scope="session")
def stopped(spark: SparkSession, inputs: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that returns a streaming query by name, stopped after two of five files."""
    from tests.state.queries import BY_NAME, Stopped, run

    queries = {}

    def make(name: str) -> Any:
        if name not in queries:
            folder = tmp_path_factory.mktemp("query")
            (folder / "in").mkdir()
            for file in inputs[:2]:
                shutil.copy2(file, folder / "in")
            query = BY_NAME[name]
            run(spark, query, folder / "in", folder / "checkpoint")
            shutil.copytree(folder / "checkpoint", folder / "untouched")
            for file in inputs[2:]:
                shutil.copy2(file, folder / "in")
            later = run(spark, query, folder / "in", folder / "untouched")
            queries[name] = Stopped(query, folder / "in", folder / "checkpoint", later)
        return queries[name]

    return make
