"""Detects user settings that control how a job runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.options import SHADOW, WHOLE_QUERY_THRESHOLD
from penstock.spark.dataframes import hints_and_options

if TYPE_CHECKING:
    from penstock.config import Configuration
    from penstock.spark.logical_plan import LogicalPlan

JOB_OPTION_PREFIXES = ("execution.batch.adaptive.", "parallelism.", "scan.", "sink.", "table.", "taskmanager.")
"""Key prefixes of options that Spark does not support. A job with such an option is not delegated to Spark."""


def has_job_options(config: Configuration) -> bool:
    """Whether the user set an option that controls how jobs run."""
    return any(
        option.key.startswith(JOB_OPTION_PREFIXES) and option is not WHOLE_QUERY_THRESHOLD and origin != "default"
        for option, _, origin in config.items()
    )


def compares_small_queries(config: Configuration) -> bool:
    """Whether a small query runs as a job so that its rows can be compared with those of Spark.

    The comparison on a small sample then covers the operators of larger inputs. A threshold set by the user still
    applies.
    """
    return config.get(SHADOW) != "NO" and config.origin(WHOLE_QUERY_THRESHOLD) == "default"


def has_user_hints(plan: LogicalPlan) -> bool:
    """Whether a plan contains hints of the user, or readers with an option that controls how they run.

    Pass an unoptimised plan if possible, because the optimiser of Spark drops hints below other exchanges.
    """
    hints, keys = hints_and_options(plan)
    return bool(hints) or any(key.startswith("scan.") for key in keys)
