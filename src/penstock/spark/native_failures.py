"""Why DuckDB cannot compute, before it is asked and after it has failed."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

from penstock.native.errors import NOT_NATIVE

if TYPE_CHECKING:
    from penstock.spark.jvm import Bridge

_PACKAGES = ("duckdb", "pyarrow")
_WITHOUT: dict[str, str] = {}
"""Applications that have executors without the packages, and what is missing there."""
_WHY = re.compile(rf"(?:{NOT_NATIVE}|ModuleNotFoundError: )(.*)")
_OF_WORKERS = ("PythonException", "Python worker", "org.apache.spark.api.python", "ExecutorLostFailure")
"""Words of the errors with which a task ends whose Python worker failed or was killed, alone or with its executor."""


def missing(bridge: Bridge) -> str | None:
    """Return what is not installed, as far as that is known; None if nothing is missing."""
    if find_spec("duckdb") is None:
        return "the package duckdb is not installed"
    if str(bridge.spark.sparkContext._jsc.sc().conf().get("spark.io.encryption.enabled", "false")) == "true":
        return "DuckDB would write to disks what Spark has to encrypt there"
    return _WITHOUT.get(bridge.application)


def why_failed(bridge: Bridge, error: Exception) -> str | None:
    """Return why DuckDB has failed, if an error may come from one of its workers; None if it does not.

    That the packages are not there is told of the whole application, so no other part has to find out.
    """
    if not any(words in str(error) for words in _OF_WORKERS):
        return None
    found = [_WHY.search(line) for line in str(error).splitlines()]
    reasons = [one for one in found if one is not None]
    why = reasons[-1][1].strip() if reasons else "a Python worker failed"
    if any(f"No module named '{package}'" in why for package in _PACKAGES):
        why += " on an executor"
        _WITHOUT[bridge.application] = why
    return why
