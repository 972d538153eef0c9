"""From plans to DataFrames and back, and hints on DataFrames that survive Spark's optimiser."""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.masking import mask
from penstock.spark import answers
from penstock.spark.jvm import LOGICAL, Bridge, class_name, option
from penstock.spark.lifetimes import KeptByPlans

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.handles import Session
    from penstock.spark.logical_plan import LogicalPlan

_numbers = itertools.count(1)
_HINTS: KeptByPlans[object] = KeptByPlans()
HINT_SIZES = (64 << 20, (64 << 20) + (1 << 24))
"""Between which two advisory sizes an exchange carries a hint; nobody would write one of them."""
_PASSED = frozenset({"Project", "Filter", "SubqueryAlias"})
"""Operators that Spark's optimiser moves below an exchange."""
_SHOWN = 20
"""Characters of a value that ``DataFrame.show`` prints."""


def dataframe(session: Session, plan: LogicalPlan) -> DataFrame:
    """Return a DataFrame of a logical plan, planned with the settings of a session (``Dataset.ofRows``)."""
    from pyspark.sql import DataFrame

    bridge = session._bridge
    plan._handle.setAnalyzed()
    dataset = bridge.companion("org.apache.spark.sql.classic.Dataset").ofRows(session, plan)
    return DataFrame(dataset, bridge.spark)


def shown_rows(n: int, truncate: bool | int, vertical: bool, df: DataFrame) -> str:  # noqa: FBT001
    """Return what ``DataFrame.show`` prints (``Dataset.showString``)."""
    characters = _SHOWN if truncate is True else int(truncate)
    return str(df._jdf.showString(n, characters, vertical))


def executed_plan_text(df: DataFrame) -> str:
    """Return how Spark would run a DataFrame, as a tree without secrets (``QueryExecution.executedPlan``)."""
    return mask(str(df._jdf.queryExecution().executedPlan().treeString())).rstrip()


def given_text(bridge: Bridge, df: DataFrame) -> str | None:
    """Return the SQL text that a DataFrame was made by; None if it was not, or if the user did more to its rows."""
    session = df._jdf.sparkSession()
    text = bridge.helper("GivenText").of(df._jdf.queryExecution().logical(), session, None)
    return None if text is None else str(text)


@contextmanager
def with_settings(of: DataFrame | SparkSession, settings: Mapping[str, str | None]) -> Iterator[None]:
    """Let settings hold for what is done with a DataFrame, or in a session, in the block; None is Spark's default."""
    from pyspark.sql import DataFrame

    conf = (of._jdf.sparkSession() if isinstance(of, DataFrame) else of._jsparkSession).conf()
    before = {key: option(conf.getOption(key)) for key in settings}
    _set(conf, settings)
    try:
        yield
    finally:
        _set(conf, before)


def _set(conf: Any, settings: Mapping[str, str | None]) -> None:
    for key, value in settings.items():
        if value is None:
            conf.unset(key)
        else:
            conf.set(key, value)


def add_hint(df: DataFrame, what: object, partitions: int | None = None) -> DataFrame:
    """Return a DataFrame whose plan carries a number at this place, by which `hint_at` returns what was said.

    The hint is a ``RebalancePartitions`` with an advisory size that nobody would write: filters and projections pass
    through it, and in plain Spark it is what it says, a rebalance into partitions of about 64 MiB. Spark chooses their
    number; where one is given, a ``Repartition`` on top keeps it, see `rebalance.adapted.distribution_at`.
    """
    bridge = Bridge(df.sparkSession)
    plan = df._jdf.queryExecution().analyzed()
    number = next(_numbers)
    advisory = bridge.some_long(HINT_SIZES[0] + number)
    _HINTS.keep(bridge, number, advisory, what)
    carrier = bridge.find(LOGICAL + "RebalancePartitions")(bridge.seq([]), plan, bridge.none, advisory)
    if partitions is not None:
        carrier = bridge.find(LOGICAL + "Repartition")(partitions, True, carrier)
    dataset = bridge.companion("org.apache.spark.sql.classic.Dataset").ofRows(df._jdf.sparkSession(), carrier)
    from pyspark.sql import DataFrame

    return DataFrame(dataset, df.sparkSession)


def hint_at(number: int) -> object | None:
    """Return what was said at a place, None if no plan of this process has that number."""
    return _HINTS.get(number)


def hint_below(df: DataFrame) -> object | None:
    """Return what the nearest hint below projections and filters says: Spark's optimiser drops it below another one."""
    plan = df._jdf.queryExecution().analyzed()
    while class_name(plan) in _PASSED:
        plan = plan.child()
    is_rebalance = class_name(plan) == "RebalancePartitions"
    number = _number(option(plan.optAdvisoryPartitionSize())) if is_rebalance else None
    return None if number is None else hint_at(number)


def hint_number(plan: LogicalPlan) -> int | None:
    """Return the number a ``RebalancePartitions`` carries for a hint, None if it is a plain one."""
    return _number(option(plan._handle.optAdvisoryPartitionSize()))


def hints_and_options(plan: LogicalPlan) -> tuple[list[int], list[str]]:
    """Return the numbers of all hints in a plan and its subqueries, and the keys of its readers' options."""
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
    return size - HINT_SIZES[0] if size is not None and HINT_SIZES[0] < size < HINT_SIZES[1] else None
