"""Whether the user said how a job is to run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.options import SHADOW, WHOLE_QUERY_THRESHOLD
from penstock.spark.dataframes import hints_and_options

if TYPE_CHECKING:
    from penstock.config import Configuration
    from penstock.spark.logical_plan import LogicalPlan

HOW_JOBS_RUN = ("execution.batch.adaptive.", "parallelism.", "scan.", "sink.", "table.", "taskmanager.")
"""How the keys of options begin that Spark knows nothing of: a job that they are given for is not handed over."""


def options_say_how(config: Configuration) -> bool:
    """Whether an option was given that says how jobs are to run."""
    return any(
        option.key.startswith(HOW_JOBS_RUN) and option is not WHOLE_QUERY_THRESHOLD and origin != "default"
        for option, _, origin in config.items()
    )


def compares_small_queries(config: Configuration) -> bool:
    """Whether a small query runs as a job although Spark would run it: its rows are compared with those of Spark.

    The rows of a small sample then say something of larger inputs. A threshold that is set applies.
    """
    return config.get(SHADOW) != "NO" and config.origin(WHOLE_QUERY_THRESHOLD) == "default"


def plan_says_how(plan: LogicalPlan) -> bool:
    """Whether the user said something at a place of a plan, or gave one of its readers an option.

    Best asked of a plan that is not optimised yet: Spark's optimiser drops a hint below another exchange.
    """
    hints, keys = hints_and_options(plan)
    return bool(hints) or any(key.startswith("scan.") for key in keys)
