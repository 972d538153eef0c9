"""The examples in docstrings run, and the names that programs use most have one."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import functions as F

import penstock
from penstock import connectors, events
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.run import query_hook
from penstock.testing import read_splits
from tests.docs.test_api_pages import PAGES
from tests.support.paths import ROOT
from tests.support.services import require_module

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment
    from penstock.scheduler.job import Job

SOURCE = ROOT / "src"
MIN_NAMES = 60
"""Documented names with an example."""
IMPORTED: dict[str, Any] = {
    "F": F,
    "Path": Path,
    "pa": pa,
    "parquet": parquet,
    "penstock": penstock,
    "read_splits": read_splits,
    **{name: getattr(module, name) for module in (connectors, events) for name in module.__all__},
}
"""Names that examples use without importing them, besides those of their own module."""
SHARED = {"spark", "env", "job"}
"""Fixtures that examples use by their names."""
EXTRAS = {
    "penstock.connectors.delta.delta": ("deltalake", "delta"),
    "penstock.connectors.iceberg.iceberg": ("pyiceberg", "iceberg"),
}
"""Client libraries that the examples of a module need, and the extras that install them."""


class Finder(doctest.DocTestFinder):
    """Finder that also finds functions behind decorators of other modules, such as context managers."""

    def _from_module(self, module: Any, object: Any) -> bool:  # noqa: A002
        return super()._from_module(module, inspect.unwrap(object))  # type: ignore[misc]


def module_names() -> Iterator[str]:
    """Yield the modules whose source contains an example that is not only a comment."""
    for path in sorted(SOURCE.rglob("*.py")):
        if re.search(r"^\s*>>> [^#]", path.read_text(), re.MULTILINE):
            parts = path.relative_to(SOURCE).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = list(module_names())


def doctests(name: str) -> list[doctest.DocTest]:
    """Return the docstrings of a module that have examples."""
    tests = Finder().find(importlib.import_module(name), name, extraglobs=IMPORTED)
    return [test for test in tests if test.examples]


def needed_names(test: doctest.DocTest) -> set[str]:
    """Return the names that the examples of a docstring use before they assign them."""
    needed: set[str] = set()
    assigned: set[str] = set()
    for example in test.examples:
        nodes = [node for node in ast.walk(ast.parse(example.source)) if isinstance(node, ast.Name)]
        needed |= {node.id for node in nodes if isinstance(node.ctx, ast.Load)} - assigned
        assigned |= {node.id for node in nodes if isinstance(node.ctx, ast.Store)}
    return needed


@pytest.fixture(scope="module")
def job(env: Environment) -> Job:
    """Return a finished job of two steps."""
    flights = env.spark.createDataFrame([("AA", 7), ("BA", 2), ("AA", 5)], "carrier string, delay long")
    env.collect(flights.groupBy("carrier").count(), name="flights per carrier")
    assert env.last_job is not None
    return env.last_job


@pytest.fixture(scope="module")
def stopped_query(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the checkpoint of a query that counted rows by 10 keys in 4 key groups."""
    folder = tmp_path_factory.mktemp("query")
    spark.range(10).selectExpr("id AS k").coalesce(1).write.parquet(f"{folder}/in")
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    try:
        counts = spark.readStream.schema("k long").parquet(f"{folder}/in").groupBy("k").count()
        writer = counts.writeStream.outputMode("update").format("noop").trigger(availableNow=True)
        writer.start(checkpointLocation=f"{folder}/checkpoint").awaitTermination()
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "8")
    return folder / "checkpoint"


@pytest.fixture
def restored_session(spark: SparkSession, interpreted: None) -> Iterator[None]:
    """Disable Penstock after the test, and remove its tables."""
    tables = {row.tableName for row in spark.sql("SHOW TABLES").collect()}
    yield
    query_hook.set_service(Bridge(spark), None)
    spark.conf.unset("spark.penstock.enabled")
    for row in spark.sql("SHOW TABLES").collect():
        if row.tableName not in tables:
            spark.sql(f"DROP TABLE {row.tableName}")


@pytest.fixture
def examples(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> list[doctest.DocTest]:
    """Return the docstrings with examples of a module; only those that use a session wait for its start."""
    if name in EXTRAS:
        require_module(*EXTRAS[name])
    tests = doctests(name)
    for number, test in enumerate(tests):
        folder = tmp_path / str(number)
        folder.mkdir()
        names = needed_names(test)
        if names & {"checkpoint", *SHARED}:
            request.getfixturevalue("restored_session")
        test.globs |= {fixture: request.getfixturevalue(fixture) for fixture in names & SHARED}
        test.globs["folder"] = str(folder)
        if "checkpoint" in names:
            test.globs["checkpoint"] = str(folder / "checkpoint")
            shutil.copytree(request.getfixturevalue("stopped_query"), folder / "checkpoint")
    return tests


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_docstrings_run(name: str, examples: list[doctest.DocTest]) -> None:
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    report: list[str] = []
    for test in examples:
        runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)
    assert runner.tries


def documented_names() -> Iterator[str]:
    """Yield the full names, where they are defined, of the classes, members and functions on the API pages."""
    for section in re.split(r"^## ", PAGES, flags=re.MULTILINE):
        for module, name in re.findall(r"^from (\S+) import (\w+)$", section, re.MULTILINE)[:1]:
            documented = getattr(importlib.import_module(module), name)
            if inspect.isclass(documented) or inspect.isfunction(documented):
                full_name = f"{documented.__module__}.{documented.__qualname__}"
                yield full_name
                members = section.partition("**Members**")[2]
                yield from (f"{full_name}.{member}" for member in re.findall(r"^\* `(\w+)", members, re.MULTILINE))


def test_the_most_used_names_have_examples_that_run() -> None:
    running = {
        test.name
        for name in MODULES
        for test in doctests(name)
        if not all(example.options.get(doctest.SKIP) for example in test.examples)
    }
    documented = list(documented_names())
    missing = [name for name in documented if name not in running]
    number = len(documented) - len(missing)
    assert number >= MIN_NAMES, f"only {number} documented names have an example; without: {', '.join(missing)}"
