"""Whose an error is: the query's, which the user gets as it is, or Penstock's, which leaves the query to Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import PythonException

import penstock
from penstock.spark.catalyst import optimized_plan
from penstock.spark.jvm import Bridge
from penstock.spark.planning import spark_plan
from penstock.spark.query_hook import spark_error
from tests.conftest import OFF

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed: "
IS_OF_QUERY = {
    # what the JVM has thrown, in words, and whether the query is its reason
    "org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero.": True,
    "org.apache.spark.sql.AnalysisException: [UNRESOLVED_COLUMN] no column": False,
    "org.apache.spark.SparkException: [INTERNAL_ERROR] a hole in a plan": False,
    "java.lang.NullPointerException": False,
    JOB
    + "java.lang.IllegalStateException: a row is in the wrong place\n\tat penstock.LayoutCheck.apply(L.java:9)": False,
    JOB
    + "java.lang.IllegalStateException: of a user\n\tat org.user.Code.f(C.java:1)\n\tat penstock.X.y(X.java:1)": True,
    JOB + "java.lang.ClassNotFoundException: penstock.TaskAttempt\n\tat java.net.URLClassLoader.findClass": False,
    JOB + "java.lang.ClassNotFoundException: org.user.Penstock\n\tat java.net.URLClassLoader.findClass": True,
}


def thrown(text: str) -> Py4JJavaError:
    error = Py4JJavaError.__new__(Py4JJavaError)
    error.java_exception = SimpleNamespace(toString=lambda: text)
    return error


BRIDGE: Any = None


@pytest.mark.parametrize("text", IS_OF_QUERY)
def test_whose_an_error_is(text: str) -> None:
    assert (spark_error(BRIDGE, thrown(text)) is not None) is IS_OF_QUERY[text]


def test_an_error_of_python_in_the_place_of_spark_s() -> None:
    """As PySpark 4.0 and 4.1 raise it."""
    try:
        try:
            raise thrown(JOB + "org.apache.spark.api.python.PythonException: Traceback")
        except Py4JJavaError:
            error = PythonException.__new__(PythonException)  # as made of a text, not of an object of the JVM
            error._origin = None
            raise error from None
    except PythonException as raised:
        assert spark_error(BRIDGE, raised) is not None


def test_what_penstock_plans_in_a_served_session_is_not_handed_over(spark: SparkSession) -> None:
    bridge = Bridge(spark)
    df = spark.range(100).groupBy("id").count()
    with penstock.enabled(spark, config=OFF):
        plan = spark_plan(bridge.session, optimized_plan(bridge, df))
    assert "Penstock" not in str(plan.toString())
    assert "HashAggregate" in str(plan.toString())
