"""Whether an error belongs to the query, and is raised unchanged, or to Penstock, so that Spark runs the query."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import PythonException

import penstock
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.plans.catalyst import optimized_plan
from penstock.spark.plans.planning import spark_plan
from penstock.spark.run.query_hook import spark_error
from tests.conftest import OFF

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed: "
IS_OF_QUERY = {
    # the text of a JVM exception, and whether it belongs to the query
    "org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero.": True,
    "org.apache.spark.sql.AnalysisException: [UNRESOLVED_COLUMN] no column": False,
    "org.apache.spark.SparkException: [INTERNAL_ERROR] a hole in a plan": False,
    "java.lang.NullPointerException": False,
    JOB
    + "java.lang.IllegalStateException: a row is in the wrong partition\n\tat penstock.exchange.LayoutCheck.apply(L.java:9)": False,
    JOB
    + "java.lang.IllegalStateException: of a user\n\tat org.user.Code.f(C.java:1)\n\tat penstock.plans.X.y(X.java:1)": True,
    JOB + "java.lang.ClassNotFoundException: penstock.io.TaskAttempt\n\tat java.net.URLClassLoader.findClass": False,
    JOB + "java.lang.ClassNotFoundException: org.user.Penstock\n\tat java.net.URLClassLoader.findClass": True,
}


def thrown(text: str) -> Py4JJavaError:
    error = Py4JJavaError.__new__(Py4JJavaError)
    error.java_exception = SimpleNamespace(toString=lambda: text)
    return error


BRIDGE: Any = None


@pytest.mark.parametrize("text", IS_OF_QUERY)
def test_owner_of_an_error(text: str) -> None:
    assert (spark_error(BRIDGE, thrown(text)) is not None) is IS_OF_QUERY[text]


def test_a_python_error_that_replaces_sparks_error() -> None:
    """As PySpark 4.0 and 4.1 raise it."""
    try:
        try:
            raise thrown(JOB + "org.apache.spark.api.python.PythonException: Traceback")
        except Py4JJavaError:
            error = PythonException.__new__(PythonException)  # as created from a text instead of a JVM object
            error._origin = None
            raise error from None
    except PythonException as raised:
        assert spark_error(BRIDGE, raised) is not None


def test_plans_of_penstock_are_not_delegated(spark: SparkSession) -> None:
    bridge = Bridge(spark)
    df = spark.range(100).groupBy("id").count()
    with penstock.enabled(spark, config=OFF):
        plan = spark_plan(bridge.session, optimized_plan(bridge, df))
    assert "Penstock" not in str(plan.toString())
    assert "HashAggregate" in str(plan.toString())
