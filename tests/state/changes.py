"""Changes of the number of key groups that queries are put through, and what has to hold after each."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

import penstock.state as st
from penstock.spark.jvm import Bridge
from penstock.spark.state_store import has_offline_tools
from penstock.state.rewrite_methods import RewriteMethod
from tests.state.queries import QUERIES_IN_MEMORY, run

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.state.queries import Query, Stopped

CHOSEN = [(None, (8, 4)), (None, (6,)), (None, (12,))]
"""Each change: how, and the numbers of key groups one after the other from 4 on."""
ALL = [*CHOSEN, (RewriteMethod.ROWS, (8,)), (RewriteMethod.ROWS, (2,)), (RewriteMethod.SHUFFLE, (6,))]
QUICK = [
    ("counts updated", None, (8, 4)),
    ("no key", None, (8,)),
    ("format 2 with changelog", None, (12,)),
    ("windows appended", RewriteMethod.ROWS, (8,)),
    ("counts updated", RewriteMethod.SHUFFLE, (6,)),
    ("counts in memory", None, (6,)),
]
"""What every run of the tests tries."""


def cases(queries: Iterable[Query], changes: Iterable[tuple[RewriteMethod | None, tuple[int, ...]]]) -> list[Any]:
    """Return parameters: every query with every change, and the quick ones of these queries."""
    names = [query.name for query in queries]
    quick = [one for one in QUICK if one[0] in names]
    others = [(name, *change) for name in names for change in changes if (name, *change) not in quick]
    return [
        pytest.param(*case, marks=marks, id=f"{case[0]}: 4 to {case[2]} {case[1] or 'chosen'}")
        for some, marks in ((quick, ()), (others, pytest.mark.slow))
        for case in some
    ]


def rescaled(
    spark: SparkSession, one: Stopped, folder: Path, numbers: tuple[int, ...], method: RewriteMethod | None
) -> list:
    """Copy a checkpoint and rescale it some times; return the reports."""
    shutil.copytree(one.checkpoint, folder)
    return [st.rescale(str(folder), number, spark=spark, method=method) for number in numbers]


def goes_on_as_its_twin(
    spark: SparkSession, one: Stopped, folder: Path, numbers: tuple[int, ...], method: RewriteMethod | None
) -> None:
    """Rescale a query, and compare all that it gives later with what it gives untouched."""
    rows_only = one.query in QUERIES_IN_MEMORY or not has_offline_tools(Bridge(spark))
    if rows_only and method is not None and method is not RewriteMethod.ROWS:
        pytest.skip("this Spark has the method rows only")
    assert one.later, "a query that gives nothing later shows nothing"
    for report in rescaled(spark, one, folder, numbers, method):
        for store in report.stores:
            assert store.method == (method or (RewriteMethod.ROWS if rows_only else RewriteMethod.FILES))
    assert run(spark, one.query, one.input, folder) == one.later
