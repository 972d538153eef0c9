"""Reasons why DuckDB cannot be used, and its failures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from penstock.duckdb.worker.engine import NOT_NATIVE, UNSUPPORTED, unsupported_reason
from penstock.duckdb.worker.files import FILE_CHANGED
from penstock.spark.bridge.settings import is_true

if TYPE_CHECKING:
    from penstock.spark.bridge.jvm import Bridge

_PACKAGES = ("penstock", "duckdb", "pyarrow")  # if an executor lacks one of them, it cannot run DuckDB
_UNAVAILABLE: dict[str, str] = {}
"""For each application id, why the executors of the application cannot run DuckDB."""
_REASON_PATTERN = re.compile(rf"(?:{NOT_NATIVE}|ModuleNotFoundError: )(.*)")
_WORKER_ERRORS = ("PythonException", "Python worker", "org.apache.spark.api.python", "ExecutorLostFailure", NOT_NATIVE)
"""Substrings, any of which is in the error of a stage whose Python worker (or its executor) failed or was killed."""


def unavailable_reason(bridge: Bridge) -> str | None:
    """Return why DuckDB cannot be used in this application, None if no reason has been detected."""
    if find_spec("duckdb") is None:
        return "the package duckdb is not installed"
    try:
        reason = unsupported_reason(version("duckdb"))
    except PackageNotFoundError:  # a module without package metadata: the workers check its version
        reason = None
    if reason is not None:
        return reason
    if is_true(bridge.spark.sparkContext._jsc.sc().conf().get("spark.io.encryption.enabled", "false")):
        return "DuckDB would spill to disk without the encryption that spark.io.encryption.enabled requires"
    return _UNAVAILABLE.get(bridge.application)


@contextmanager
def fail_fast(bridge: Bridge) -> Iterator[None]:
    """End the jobs of the block at the first DuckDB failure, regardless of ``spark.task.maxFailures``.

    Use this only for jobs whose rows Spark computes after a failure. See ``NativeFailures.java``.
    """
    context = bridge.spark.sparkContext._jsc.sc()
    bridge.helper("NativeFailures").begin(context, NOT_NATIVE)
    try:
        yield
    finally:
        bridge.helper("NativeFailures").end(context)


def failure_reason(bridge: Bridge, error: Exception) -> str | None:
    """Return why DuckDB failed if an error may come from a DuckDB worker, None for other errors.

    A missing or unsupported package is recorded for the whole application, so that DuckDB is not tried again.
    """
    if not any(text in str(error) for text in _WORKER_ERRORS):
        return None
    matches = [match for line in str(error).splitlines() if (match := _REASON_PATTERN.search(line)) is not None]
    reason = matches[-1][1].strip() if matches else "a Python worker failed"
    is_package_missing = any(f"No module named '{package}'" in reason for package in _PACKAGES)
    if UNSUPPORTED in reason or is_package_missing:
        reason += " on an executor"
        if is_package_missing:
            python = bridge.spark.sparkContext.pythonExec
            reason += f", whose Python is {python}: set PYSPARK_PYTHON to a Python that has Penstock and duckdb"
        _UNAVAILABLE[bridge.application] = reason
    return reason


def record_failure(bridge: Bridge, plan: Any, reason: str) -> None:
    """Record why DuckDB failed for a plan, so that DuckDB is not tried for it again (``NativeFailures.java``)."""
    if FILE_CHANGED not in reason:  # the next query is planned with the changed file
        bridge.helper("NativeFailures").record(plan, reason)


def previous_failure_reason(bridge: Bridge, plan: Any) -> str | None:
    """Return why DuckDB is not tried for a plan; None if no failure is recorded for an equal plan of the same files."""
    reason = bridge.helper("NativeFailures").reason(plan)
    return None if reason is None else f"DuckDB failed on it before ({reason})"
