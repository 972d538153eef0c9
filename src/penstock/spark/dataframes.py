"""From plans to DataFrames and back, and marks on DataFrames that survive Spark's optimiser."""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.spark import answers
from penstock.spark.jvm import LOGICAL, Bridge, option
from penstock.spark.lifetimes import KeptByPlans

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.handles import Session
    from penstock.spark.logical_plan import LogicalPlan

_numbers = itertools.count(1)
_MARKS: KeptByPlans[object] = KeptByPlans()
MARKS = (64 << 20, (64 << 20) + (1 << 24))
"""Between which two advisory sizes an exchange is marked; nobody would write one of them."""


def dataframe(session: Session, plan: LogicalPlan) -> DataFrame:
    """Return a DataFrame of a logical plan, planned with the settings of a session (``Dataset.ofRows``)."""
    from pyspark.sql import DataFrame

    bridge = session._bridge
    plan._handle.setAnalyzed()
    dataset = bridge.companion("org.apache.spark.sql.classic.Dataset").ofRows(session, plan)
    return DataFrame(dataset, bridge.spark)


def executed_plan_text(df: DataFrame) -> str:
    """Return how Spark would run a DataFrame, as a tree (``QueryExecution.executedPlan``)."""
    return str(df._jdf.queryExecution().executedPlan().treeString()).rstrip()


@contextmanager
def with_settings(of: DataFrame | SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Let settings hold for what is done with a DataFrame, or in a session, in the block."""
    from pyspark.sql import DataFrame

    conf = (of._jdf.sparkSession() if isinstance(of, DataFrame) else of._jsparkSession).conf()
    before = {key: option(conf.getOption(key)) for key in settings}
    for key, value in settings.items():
        conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                conf.unset(key)
            else:
                conf.set(key, old)


def mark(df: DataFrame, what: object, partitions: int | None = None) -> DataFrame:
    """Return a DataFrame whose plan carries a number at this place, by which `marked_by` returns what it is marked by.

    The mark is a ``RebalancePartitions`` with an advisory size that nobody would write: filters and projections pass
    through it, and in plain Spark it is what it says, a rebalance into partitions of about 64 MiB. Spark chooses their
    number; where one is given, a ``Repartition`` on top keeps it, see `rebalance.adapted.dealt_out_at`.
    """
    bridge = Bridge(df.sparkSession)
    plan = df._jdf.queryExecution().analyzed()
    number = next(_numbers)
    advisory = bridge.some_long(MARKS[0] + number)
    _MARKS.keep(bridge, number, advisory, what)
    marked = bridge.find(LOGICAL + "RebalancePartitions")(bridge.seq([]), plan, bridge.none, advisory)
    if partitions is not None:
        marked = bridge.find(LOGICAL + "Repartition")(partitions, True, marked)
    dataset = bridge.companion("org.apache.spark.sql.classic.Dataset").ofRows(df._jdf.sparkSession(), marked)
    from pyspark.sql import DataFrame

    return DataFrame(dataset, df.sparkSession)


def marked_by(number: int) -> object | None:
    """Return what a place is marked by, None if no plan of this process has that number."""
    return _MARKS.get(number)


def all_marks() -> list[object]:
    """Return what any plan of this process may be marked by."""
    return _MARKS.values()


def mark_of(plan: LogicalPlan) -> int | None:
    """Return the number a ``RebalancePartitions`` was marked with, None if it is a plain one."""
    return _number(option(plan._handle.optAdvisoryPartitionSize()))


def marks_and_options(plan: LogicalPlan) -> tuple[list[int], list[str]]:
    """Return the numbers of all marks in a plan and its subqueries, and the keys of its readers' options."""
    found = _SizesAndOptions.of(answers.facts(plan._bridge.helper("PlanSearch").advisorySizesAndOptions(plan)))
    return [number for number in map(_number, found.sizes) if number is not None], list(found.options)


@dataclass(frozen=True, slots=True)
class _SizesAndOptions:
    """The advisory sizes of a plan's exchanges, and the names of its readers' options."""

    sizes: tuple[int, ...]
    options: tuple[str, ...]

    @classmethod
    def of(cls, facts: dict[str, Any]) -> _SizesAndOptions:
        return cls(tuple(facts["sizes"]), tuple(facts["options"]))


def _number(size: int | None) -> int | None:
    return size - MARKS[0] if size is not None and MARKS[0] < size < MARKS[1] else None
