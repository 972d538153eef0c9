"""Detects jobs that are not divided into vertices: small queries without user settings, which Spark or DuckDB runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.config.options import SINK_PARALLELISM, WHOLE_QUERY_THRESHOLD
from penstock.decisions import Choice, DecisionKind, Explanation, NameRef
from penstock.planner.native_query import NativeQuery, small_native_query
from penstock.planner.outputs import check_output
from penstock.planner.sinks import config_of, sink_options
from penstock.planner.user_settings import has_job_options, has_user_hints
from penstock.spark import catalyst
from penstock.units import show_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.config import Configuration
    from penstock.planner.outputs import Output
    from penstock.spark.jvm import Bridge
    from penstock.spark.logical_plan import LogicalPlan


@dataclass(frozen=True, slots=True)
class WholeQuery:
    """The reason why Spark runs a job unchanged, with the bytes of its sources if they are the reason."""

    source_bytes: int | None
    reason: str

    def decision(self, job: str) -> Choice:
        """Return the decision that Spark runs a job."""
        figures = {} if self.source_bytes is None else {"bytes in": self.source_bytes}
        option = None if self.source_bytes is None else WHOLE_QUERY_THRESHOLD.key
        explanation = Explanation(f"Spark runs this query unchanged, as {self.reason}", option)
        return Choice(
            DecisionKind.WHOLE_QUERY, NameRef(job), "handed to Spark whole", self.reason, figures, explanation
        )


def plan_whole(
    bridge: Bridge, config: Configuration, outputs: Sequence[Output], *, has_own_strategies: bool = False
) -> WholeQuery | NativeQuery | None:
    """Return why Spark should run a job unchanged, or its only query if DuckDB is faster, or None.

    Spark runs a job if a plan observes metrics, which Spark reports only for queries that it runs itself. It also runs
    a job with a single output and no user settings if the sources have fewer bytes than the threshold, or are bucketed
    so that Spark needs no shuffle. Several outputs may share work, which Spark would repeat for each, and a sink that
    controls its files needs a plan.

    Parameters
    ----------
    has_own_strategies
        Whether the user passed strategies.
    """
    for output in outputs:
        check_output(bridge, output)
    plans = [catalyst.optimized_plan(bridge, output.df) for output in outputs]
    if any(map(catalyst.observes_metrics, plans)):
        return WholeQuery(None, "it observes metrics (DataFrame.observe), which Spark reports for whole queries only")
    threshold = config.integer(WHOLE_QUERY_THRESHOLD)
    if len(outputs) > 1 or threshold <= 0 or has_own_strategies or has_job_options(config):
        return None
    (output,), (plan,) = outputs, plans
    whole = _whole_by_sources(plan, threshold)
    if (
        whole is None
        or _sink_needs_plan(output, config_of(bridge, config, output.sink))
        or has_user_hints(catalyst.cached_plan(bridge, output.df))
    ):
        return None
    native = small_native_query(bridge, config, plan) if whole.source_bytes is not None else None
    return native if isinstance(native, NativeQuery) else whole


def _whole_by_sources(plan: LogicalPlan, threshold: int) -> WholeQuery | None:
    """Return why Spark should run a query, according to its sources; None if it should not."""
    size = catalyst.leaf_bytes(plan)
    if size < threshold:
        reason = f"its sources hold {show_bytes(size)}, below the threshold of {show_bytes(threshold)}"
        return WholeQuery(size, reason)
    if catalyst.buckets_save_shuffle(plan):
        return WholeQuery(None, "its tables are bucketed by its keys, which saves a shuffle")
    return None


def _sink_needs_plan(output: Output, config: Configuration) -> bool:
    """Whether a sink has a parallelism, or controls its files in a way that needs a plan."""
    options = sink_options(config)
    if (
        config.origin(SINK_PARALLELISM) != "default"
        or output.sink.materialised
        or output.sink.file_size(options) is not None
        or output.sink.stages(options)
    ):
        return True
    return output.parallelism is not None or output.sink.parallelism is not None
