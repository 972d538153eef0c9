"""Functions on DataFrames that PySpark does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.arguments import check_data_frame, check_text
from penstock.connectors.base import checked_parallelism
from penstock.errors import SourceError
from penstock.location import callers_line
from penstock.plan_hints import PlanHint, with_hint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_parallelism(
    df: DataFrame, parallelism: int | None = None, *, max_parallelism: int | None = None, name: str = ""
) -> DataFrame:
    """Return a DataFrame whose last operator runs with a given number of tasks, or a bounded one.

    It overrides every option.

    Parameters
    ----------
    df
        Any DataFrame.
    parallelism
        The number of tasks, at least 1; None for as many as the job decides.
    max_parallelism
        The most tasks that may be decided, at least 1; for a service, say, that takes so many callers. None for as many
        as the options allow.
    name
        A name for the operator in plans and messages.

    Returns
    -------
    DataFrame
        The same rows. On plain Spark it is a rebalance into partitions of about 64 MiB.

    Raises
    ------
    SourceError
        If a number is not a whole one of at least 1, if `parallelism` is more than `max_parallelism`, or neither is
        given.

    Notes
    -----
    An exchange gets this many tasks. A scan of files gets this many splits, as far as the files allow. Operators whose
    tasks cannot be set (a union, cached data, rows in memory) get an additional exchange. A bound holds for all that
    runs in the same tasks: what is chained to the operator, too.
    """
    check_data_frame(df, "with_parallelism")
    check_text(name, "with_parallelism", "a name, which is a text")
    number = None if parallelism is None else checked_parallelism(parallelism, "with_parallelism")
    most = None if max_parallelism is None else checked_parallelism(max_parallelism, "with_parallelism")
    if most is None:
        number = checked_parallelism(parallelism, "with_parallelism")
    elif number is not None and number > most:
        raise SourceError.beyond_maximum(number, most, "with_parallelism")
    return with_hint(df, PlanHint(number, name, max_parallelism=most, location=callers_line()))
