"""Changes of the number of key groups, and the check that a query continues correctly after each."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock.state as st
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.state.state_store import has_offline_tools
from penstock.state.rewrite_methods import RewriteMethod
from tests.state.queries import QUERIES_IN_MEMORY, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.state.queries import Query, Stopped

CHOSEN = [(None, (8, 4)), (None, (6,)), (None, (12,))]
"""Changes, as method and consecutive numbers of key groups; all start from 4."""
ALL = [*CHOSEN, (RewriteMethod.ROWS, (8,)), (RewriteMethod.ROWS, (2,)), (RewriteMethod.SHUFFLE, (6,))]
QUICK = [
    ("counts updated", None, (8, 4)),
    ("no key", None, (8,)),
    ("format 2 with changelog", None, (12,)),
    ("windows appended", RewriteMethod.ROWS, (8,)),
    ("counts updated", RewriteMethod.SHUFFLE, (6,)),
    ("counts in memory", None, (6,)),
]
"""Cases of every test run; all others are slow."""


def cases(queries: Iterable[Query], changes: Iterable[tuple[RewriteMethod | None, tuple[int, ...]]]) -> list[Any]:
    """Return parameters: every query with every change, with the quick cases of these queries first."""
    names = [query.name for query in queries]
    quick = [case for case in QUICK if case[0] in names]
    others = [(name, *change) for name in names for change in changes if (name, *change) not in quick]
    return [
        pytest.param(*case, marks=marks, id=f"{case[0]}: 4 to {case[2]} {case[1] or 'chosen'}")
        for group, marks in ((quick, ()), (others, pytest.mark.slow))
        for case in group
    ]


def rescaled(
    spark: SparkSession, query: Stopped, folder: Path, numbers: tuple[int, ...], method: RewriteMethod | None
) -> list:
    """Copy a checkpoint, rescale it to several numbers one after the other, and return the reports."""
    shutil.copytree(query.checkpoint, folder)
    return [st.rescale(str(folder), number, spark=spark, method=method) for number in numbers]


def check_output_after_rescale(
    spark: SparkSession, query: Stopped, folder: Path, numbers: tuple[int, ...], method: RewriteMethod | None
) -> None:
    """Rescale a query, and compare its later output with that of the query without a rescale."""
    rows_only = query.query in QUERIES_IN_MEMORY or not has_offline_tools(Bridge(spark))
    if rows_only and method is not None and method is not RewriteMethod.ROWS:
        pytest.skip("this Spark has the method rows only")
    assert query.later, "a query without later output tests nothing"
    for report in rescaled(spark, query, folder, numbers, method):
        for store in report.stores:
            assert store.method == (method or (RewriteMethod.ROWS if rows_only else RewriteMethod.FILES))
    assert run(spark, query.query, query.input, folder) == query.later
