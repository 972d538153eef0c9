"""Why DuckDB cannot compute, before it is used and after it has failed."""

from __future__ import annotations

import re
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from penstock.native.engine import UNSUPPORTED, unsupported
from penstock.native.errors import CHANGED, NOT_NATIVE
from penstock.spark.settings import is_true

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.spark.jvm import Bridge

_PACKAGES = ("penstock", "duckdb", "pyarrow")
_WITHOUT: dict[str, str] = {}
"""Applications with executors that lack the packages, and what is missing there."""
_WHY = re.compile(rf"(?:{NOT_NATIVE}|ModuleNotFoundError: )(.*)")
_OF_WORKERS = ("PythonException", "Python worker", "org.apache.spark.api.python", "ExecutorLostFailure", NOT_NATIVE)
"""Words of the errors with which a stage ends whose Python worker failed or was killed, alone or with its executor."""


def is_installed() -> bool:
    """Whether the driver has DuckDB, of any release."""
    return find_spec("duckdb") is not None


def missing(bridge: Bridge) -> str | None:
    """Return why DuckDB is not used at all, as far as that is known; None if nothing is missing."""
    if not is_installed():
        return "the package duckdb is not installed"
    try:
        reason = unsupported(version("duckdb"))
    except PackageNotFoundError:  # a module without a distribution: the workers check what they import
        reason = None
    if reason is not None:
        return reason
    if is_true(bridge.spark.sparkContext._jsc.sc().conf().get("spark.io.encryption.enabled", "false")):
        return "DuckDB would write to disks what Spark has to encrypt there"
    return _WITHOUT.get(bridge.application)


@contextmanager
def failing_at_once(bridge: Bridge) -> Iterator[None]:
    """Let the jobs of the block end at the first failure of DuckDB, whatever ``spark.task.maxFailures`` is.

    Only for jobs after which Spark computes the rows. See ``java/NativeFailures.java``.
    """
    context = bridge.spark.sparkContext._jsc.sc()
    bridge.helper("NativeFailures").begin(context, NOT_NATIVE)
    try:
        yield
    finally:
        bridge.helper("NativeFailures").end(context)


def why_failed(bridge: Bridge, error: Exception) -> str | None:
    """Return why DuckDB has failed, if an error may come from one of its workers; None if it does not.

    A missing or unsupported package is remembered for the whole application, so that no other part fails for it.
    """
    if not any(words in str(error) for words in _OF_WORKERS):
        return None
    matches = [match for line in str(error).splitlines() if (match := _WHY.search(line)) is not None]
    why = matches[-1][1].strip() if matches else "a Python worker failed"
    is_lacking = any(f"No module named '{package}'" in why for package in _PACKAGES)
    if UNSUPPORTED in why or is_lacking:
        why += " on an executor"
        if is_lacking:
            python = bridge.spark.sparkContext.pythonExec
            why += f", whose Python is {python}: let PYSPARK_PYTHON be one that has penstock[native]"
        _WITHOUT[bridge.application] = why
    return why


def remember(bridge: Bridge, plan: Any, reason: str) -> None:
    """Remember that DuckDB failed to compute a plan, so that it is not tried again (``java/FailedFragments.java``)."""
    if CHANGED not in reason:
        bridge.helper("FailedFragments").add(plan, reason)


def failed_before(bridge: Bridge, plan: Any) -> str | None:
    """Return why DuckDB is not tried for a plan, None if it has not failed for an equal one."""
    reason = bridge.helper("FailedFragments").reason(plan)
    return None if reason is None else f"DuckDB failed on it before ({reason})"
