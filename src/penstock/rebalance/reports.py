"""What tasks tell of themselves: it comes to the driver by accumulators, which PySpark keeps for ever."""

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
    """Stands for reports that nobody asks for any more.

    A task may run again later, if what it wrote is lost. PySpark would stop to take any accumulator's updates if one of
    them were for an accumulator that it does not know.
    """

    def __iadd__(self, reports: object) -> Self:
        del reports
        return self


_DROPPED = Dropped()


def new_reports(spark: SparkSession) -> Reports:
    """Return what takes reports."""
    return spark.sparkContext.accumulator([], ReportParam())


def drop_with(owner: object, reports: Reports) -> None:
    """Let go of reports once there is no owner of them any more."""
    registry: dict[int, Any] = accumulators._accumulatorRegistry  # noqa: SLF001
    weakref.finalize(owner, registry.__setitem__, reports.aid, _DROPPED)
