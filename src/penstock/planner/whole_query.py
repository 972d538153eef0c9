"""Which jobs become no vertices: small ones, of which nobody said how they are to run. Spark or DuckDB runs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.config.options import SINK_PARALLELISM, WHOLE_QUERY_THRESHOLD
from penstock.decisions import Choice, DecisionKind, NameRef, Told
from penstock.planner.native_query import NativeQuery, small_native_query
from penstock.planner.outputs import check_output
from penstock.planner.run_wishes import options_say_how, plan_says_how
from penstock.planner.sinks import config_of, sink_options
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
    """Why a job is handed to Spark whole.

    Parameters
    ----------
    known_bytes
        What its sources hold, None where that was not asked.
    reason
        One sentence.
    """

    known_bytes: int | None
    reason: str

    def decision(self, job: str) -> Choice:
        """Return what is recorded of it."""
        figures = {} if self.known_bytes is None else {"bytes in": self.known_bytes}
        option = None if self.known_bytes is None else WHOLE_QUERY_THRESHOLD.key
        told = Told(f"Spark runs this query as it is, as {self.reason}", option)
        return Choice(DecisionKind.WHOLE_QUERY, NameRef(job), "handed to Spark whole", self.reason, figures, told)


def plan_whole(
    bridge: Bridge, config: Configuration, outputs: Sequence[Output], *, has_own_strategies: bool = False
) -> WholeQuery | NativeQuery | None:
    """Return why a job should be handed to Spark as it is, its one query if DuckDB computes that sooner, or None.

    It is handed over where metrics are observed on a plan: Spark reports them only for a query that it runs in one
    piece. Also where nothing was said of how the job is to run, and the sources of a single output hold fewer bytes
    than the threshold in all, or lie in buckets such that Spark needs no shuffle. Several outputs may share work, which
    Spark would do for each, and what a sink does with files needs a plan.

    Parameters
    ----------
    has_own_strategies
        Whether the user gave strategies of their own.
    """
    for output in outputs:
        check_output(bridge, output)
    plans = [catalyst.optimized_plan(bridge, output.df) for output in outputs]
    if any(map(catalyst.observes_metrics, plans)):
        return WholeQuery(None, "it observes metrics (DataFrame.observe), which Spark reports for whole queries only")
    threshold = config.integer(WHOLE_QUERY_THRESHOLD)
    if len(outputs) > 1 or threshold <= 0 or has_own_strategies or options_say_how(config):
        return None
    (output,), (plan,) = outputs, plans
    found = _whole_by_sources(plan, threshold)
    if (
        found is None
        or _sink_says_how(output, config_of(bridge, config, output.sink))
        or plan_says_how(catalyst.cached_plan(bridge, output.df))
    ):
        return None
    native = small_native_query(bridge, config, plan) if found.known_bytes is not None else None
    return native if isinstance(native, NativeQuery) else found


def _whole_by_sources(plan: LogicalPlan, threshold: int) -> WholeQuery | None:
    """Return why a query should be Spark's for what its sources are, None if it should not."""
    known = catalyst.leaf_bytes(plan)
    if known < threshold:
        why = f"its sources hold {show_bytes(known)}, below the threshold of {show_bytes(threshold)}"
        return WholeQuery(known, why)
    if catalyst.buckets_save_a_shuffle(plan):
        return WholeQuery(None, "its tables lie in buckets of its keys, which saves a shuffle")
    return None


def _sink_says_how(output: Output, config: Configuration) -> bool:
    """Whether a sink has a parallelism, or does with its files what needs a plan."""
    options = sink_options(config)
    if (
        config.origin(SINK_PARALLELISM) != "default"
        or output.sink.materialised
        or output.sink.file_size(options) is not None
        or output.sink.stages(options)
    ):
        return True
    return output.parallelism is not None or output.sink.parallelism is not None
