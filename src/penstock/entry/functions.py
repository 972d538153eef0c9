"""Functions on DataFrames that PySpark does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.base.arguments import check_data_frame, check_text
from penstock.base.location import current_user_line
from penstock.connectors.core.base import require_positive
from penstock.errors import SourceError
from penstock.hints.plan_hints import PlanHint, with_hint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_parallelism(
    df: DataFrame, parallelism: int | None = None, *, max_parallelism: int | None = None, name: str = ""
) -> DataFrame:
    """Return a DataFrame whose last operator runs with a fixed or bounded number of tasks, whatever the options.

    >>> counts = with_parallelism(spark.range(100).selectExpr("id % 7 AS k").groupBy("k").count(), 3)
    >>> len(env.collect(counts)), [vertex.tasks for vertex in env.last_job.vertices]
    (7, [2, 3])

    Parameters
    ----------
    df
        Any DataFrame.
    parallelism
        The number of tasks, at least 1; None to let the job decide.
    max_parallelism
        The maximum number of tasks, at least 1, for example to limit the callers of a service. None to use the limits
        of the options.
    name
        A name for the operator in plans and messages.

    Returns
    -------
    DataFrame
        The same rows. Plain Spark rebalances them into partitions of about 64 MiB.

    Raises
    ------
    SourceError
        If a number is not a whole number of at least 1, `parallelism` is more than `max_parallelism`, or both are
        None.

    Notes
    -----
    An exchange gets this number of tasks. A scan of files gets this number of splits if the files can be split that
    far. Operators whose tasks cannot be set (a union, cached data, rows in memory) get an additional exchange. A
    maximum also applies to the operators that are chained to this operator.
    """
    check_data_frame(df, "with_parallelism")
    check_text(name, "with_parallelism", "a name, which is a text")
    number = None if parallelism is None else require_positive(parallelism, "with_parallelism")
    maximum = None if max_parallelism is None else require_positive(max_parallelism, "with_parallelism")
    if maximum is None:  # then the number is required
        number = require_positive(parallelism, "with_parallelism")
    elif number is not None and number > maximum:
        message = f"parallelism {number} for with_parallelism is more than max_parallelism {maximum}"
        raise SourceError(message, hint="pass a parallelism of at most max_parallelism, or only one of both")
    return with_hint(df, PlanHint(number, name, max_parallelism=maximum, location=current_user_line()))
