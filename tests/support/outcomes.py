"""Outcomes of queries, with Penstock or plain Spark: the rows, or the class of the error."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as QueryTimeoutError
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from penstock.errors import PenstockError
from tests.support.equality import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock import Environment


VOLUME = "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task"
JOIN = "table.optimizer.adaptive-broadcast-join.strategy"
THRESHOLD = "table.optimizer.join.broadcast-threshold"
WHOLE = "execution.batch.adaptive.whole-query-threshold"
CONFIGS = {
    "as configured": {WHOLE: 0},
    "run-time broadcasts": {WHOLE: 0, VOLUME: "2 kb", JOIN: "RUNTIME_ONLY"},
    "all shuffled": {WHOLE: 0, VOLUME: "2 kb", JOIN: "NONE", THRESHOLD: "-1"},
}
"""Configurations under which queries must have the same outcome as in plain Spark."""


def error_class(error: Exception) -> str:
    """Return the error condition of Spark, or the class of an error of a Python function or of Java in a task."""
    text = str(error)
    errors = re.findall(r"^(?:Job\w+: )?(\w+(?:Error|Exception)): ", text, re.MULTILINE) if "Traceback" in text else []
    condition = re.search(r"\[([A-Z][A-Z0-9_.]+)\]", text)
    cause = re.search(r"Lost task .*?: (java\.\S+): ", text)
    return (errors[-1] if errors else None) or (condition[1] if condition else cause[1] if cause else text)


def outcome(action: Any, seconds: int = 60) -> Any:
    """Return the rows of an action, or the class of its error."""
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(action).result(seconds)
    except QueryTimeoutError:
        return f"still runs after {seconds} s"
    except (PySparkException, Py4JError, PenstockError, ValueError) as error:  # ValueError: a date that Python lacks
        return error_class(error)
    finally:
        pool.shutdown(wait=False)


def assert_outcome_as_plain_spark(env: Environment, df: DataFrame, seconds: int = 60) -> None:
    """Fail unless a DataFrame has the same outcome with Penstock and plain Spark; both run at the same time."""
    with ThreadPoolExecutor(1) as pool:
        expected = pool.submit(outcome, df.collect)
        actual = outcome(lambda: env.collect(df), seconds)
    assert_same_outcome(actual, expected.result())


def assert_same_outcome(actual: Any, expected: Any) -> None:
    """Fail unless both are the same rows, or the same class of error."""
    if isinstance(actual, str) or isinstance(expected, str):
        assert actual == expected, f"{str(actual)[:600]} instead of {str(expected)[:600]}"
    else:
        assert_same_rows(actual, expected)


def mostly_slow(cases: Any, every: int = 2) -> Any:
    """Return the cases as pytest parameters; all except each `every`-th are marked as slow."""
    return [
        case if i % every == 0 else pytest.param(*(case if isinstance(case, tuple) else [case]), marks=pytest.mark.slow)
        for i, case in enumerate(cases)
    ]
