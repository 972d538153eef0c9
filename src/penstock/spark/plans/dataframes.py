"""Conversions between plans and DataFrames, and hints of Penstock in plans, which survive Spark's optimizer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from penstock.base.masking import mask
from penstock.spark.bridge import answers
from penstock.spark.bridge.handles import PlanLifetimeMap, Session
from penstock.spark.bridge.jvm import LOGICAL, Bridge, class_name, option

if TYPE_CHECKING:
    from penstock.spark.plans.logical_plan import LogicalPlan

_HINT_NUMBERS = itertools.count(1)
_HINTS: PlanLifetimeMap[object] = PlanLifetimeMap()
HINT_SIZES = (64 << 20, (64 << 20) + (1 << 24))
"""Exclusive bounds of the advisory sizes (bytes) that encode a hint; users are unlikely to set such a size."""


def dataframe(session: Session, plan: LogicalPlan) -> DataFrame:
    """Return a DataFrame of a logical plan with the settings of a session (``Dataset.ofRows``)."""
    bridge = session._bridge
    plan._handle.setAnalyzed()
    dataset = bridge.companion("org.apache.spark.sql.classic.Dataset").ofRows(session, plan)
    return DataFrame(dataset, bridge.spark)


def format_rows(n: int, truncate: bool | int, vertical: bool, df: DataFrame) -> str:  # noqa: FBT001
    """Return the text that ``DataFrame.show`` prints (``Dataset.showString``)."""
    return str(df._jdf.showString(n, 20 if truncate is True else int(truncate), vertical))


def executed_plan_text(df: DataFrame) -> str:
    """Return the physical plan of a DataFrame as a tree with masked secrets (``QueryExecution.executedPlan``)."""
    return mask(str(df._jdf.queryExecution().executedPlan().treeString())).rstrip()


def sql_text(bridge: Bridge, df: DataFrame) -> str | None:
    """Return the SQL text that created a DataFrame; None without a text, or if DataFrame methods transform its rows."""
    session = df._jdf.sparkSession()
    text = bridge.helper("SqlText").of(df._jdf.queryExecution().logical(), session, None)
    return None if text is None else str(text)


@contextmanager
def with_settings(target: DataFrame | SparkSession, settings: Mapping[str, str | None]) -> Iterator[None]:
    """Change settings of a DataFrame's session, or of a session, within the block; None resets to Spark's default."""
    conf = (target._jdf.sparkSession() if isinstance(target, DataFrame) else target._jsparkSession).conf()
    previous = {key: option(conf.getOption(key)) for key in settings}
    _set(conf, settings)
    try:
        yield
    finally:
        _set(conf, previous)


def _set(conf: Any, settings: Mapping[str, str | None]) -> None:
    for key, value in settings.items():
        if value is None:
            conf.unset(key)
        else:
            conf.set(key, value)


def add_hint(df: DataFrame, hint: object, partitions: int | None = None) -> DataFrame:
    """Return a DataFrame whose plan carries the number of a hint; `hint_at` returns the hint by its number.

    The unusual advisory size of a ``RebalancePartitions`` encodes the number. Filters and projections pass through it,
    and in plain Spark it only rebalances rows into partitions of about 64 MiB. Spark chooses their number, unless
    `partitions` is set: then a ``Repartition`` on top fixes it, see `rebalance.adaptive_exchanges.exchange_at`.
    """
    bridge = Bridge(df.sparkSession)
    plan = df._jdf.queryExecution().analyzed()
    number = next(_HINT_NUMBERS)
    longs = bridge.new_array("long", [HINT_SIZES[0] + number])  # py4j would turn a small number into an Integer
    advisory = bridge.find("scala.collection.immutable.ArraySeq").unsafeWrapArray(longs).headOption()
    _HINTS.keep(bridge, number, advisory, hint)
    carrier = bridge.find(LOGICAL + "RebalancePartitions")(bridge.seq([]), plan, bridge.none, advisory)
    if partitions is not None:
        carrier = bridge.find(LOGICAL + "Repartition")(partitions, True, carrier)
    dataset = bridge.companion("org.apache.spark.sql.classic.Dataset").ofRows(df._jdf.sparkSession(), carrier)
    return DataFrame(dataset, df.sparkSession)


def hint_at(number: int) -> object | None:
    """Return a hint by its number, None if no plan of this process has that number."""
    return _HINTS.get(number)


def hint_below(df: DataFrame) -> object | None:
    """Return the hint that Spark's optimizer would drop if another hint was added to a DataFrame, else None."""
    plan = df._jdf.queryExecution().analyzed()
    while class_name(plan) in {"Project", "Filter", "SubqueryAlias"}:  # the optimizer pushes them below hints
        plan = plan.child()
    is_rebalance = class_name(plan) == "RebalancePartitions"
    number = _encoded_number(option(plan.optAdvisoryPartitionSize())) if is_rebalance else None
    return None if number is None else hint_at(number)


def hint_number(plan: LogicalPlan) -> int | None:
    """Return the hint number that a ``RebalancePartitions`` carries, None if it carries none."""
    return _encoded_number(option(plan._handle.optAdvisoryPartitionSize()))


def hints_and_options(plan: LogicalPlan) -> tuple[list[int], list[str]]:
    """Return a plan's hint numbers (with subqueries), and the lower-case keys of file options and Hive properties."""
    facts = answers.facts(plan._bridge.helper("PlanSearch").advisorySizesAndOptions(plan))
    return [number for number in map(_encoded_number, facts["sizes"]) if number is not None], list(facts["options"])


def _encoded_number(size: int | None) -> int | None:
    return size - HINT_SIZES[0] if size is not None and HINT_SIZES[0] < size < HINT_SIZES[1] else None
