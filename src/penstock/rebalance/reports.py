"""Reports of tasks: accumulators send them to the driver, where PySpark would retain them forever."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Self

from pyspark import accumulators

from penstock.rebalance.task import ReportParam

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import SparkSession

    Reports = Accumulator[list[dict[str, Any]]]


class Dropped:
    """Placeholder for reports that are no longer needed.

    A task may run again later if its output is lost. PySpark would then stop updating all accumulators, if the task's
    accumulator were not registered.
    """

    def __iadd__(self, reports: object) -> Self:
        del reports
        return self


_DROPPED = Dropped()


def new_reports(spark: SparkSession) -> Reports:
    """Return an accumulator for reports."""
    return spark.sparkContext.accumulator([], ReportParam())


def drop_with(owner: object, reports: Reports) -> None:
    """Release reports once their owner is garbage-collected."""
    registry: dict[int, Any] = accumulators._accumulatorRegistry  # noqa: SLF001
    weakref.finalize(owner, registry.__setitem__, reports.aid, _DROPPED)
