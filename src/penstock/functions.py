"""Functions on DataFrames that PySpark does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.arguments import check_data_frame, check_text
from penstock.connectors.base import checked_parallelism
from penstock.location import callers_line
from penstock.plan_hints import PlanHint, with_hint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_parallelism(df: DataFrame, parallelism: int, *, name: str = "") -> DataFrame:
    """Return a DataFrame whose last operator runs with a given number of tasks. It overrides every option.

    Parameters
    ----------
    df
        Any DataFrame.
    parallelism
        The number of tasks, at least 1.
    name
        A name for the operator in plans and messages.

    Returns
    -------
    DataFrame
        The same rows. On plain Spark it is a rebalance into partitions of about 64 MiB.

    Raises
    ------
    SourceError
        If `parallelism` is not a whole number of at least 1.

    Notes
    -----
    An exchange gets this many tasks. A scan of files gets this many splits, as far as the files allow. Operators whose
    tasks cannot be set (a union, cached data, rows in memory) get an additional exchange.
    """
    check_data_frame(df, "with_parallelism")
    check_text(name, "with_parallelism", "a name, which is a text")
    number = checked_parallelism(parallelism, "with_parallelism")
    return with_hint(df, PlanHint(number, name, location=callers_line()))
