"""What a cluster offers to hash tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.options import BROADCAST_THRESHOLD, DATA_VOLUME_PER_TASK
from penstock.optimizer import Resources
from penstock.spark import jobs
from penstock.spark.session import broadcast_threshold

if TYPE_CHECKING:
    from penstock.config import Configuration
    from penstock.spark.jvm import Bridge

_EXECUTION_SHARE = 0.6
"""The part of a heap that Spark uses for execution and storage, by default."""


def resources_of(bridge: Bridge, config: Configuration) -> Resources:
    """Return the limits of strategies.

    A broadcast table may take an eighth of what Spark uses of the smallest heap, as several lie there at a time and the
    driver holds each twice while it is built; a table within a task a quarter of the task's share.
    """
    driver, executor = jobs.heap_bytes(bridge)
    tasks = max(jobs.cluster_cores(bridge) // jobs.executor_count(bridge), 1)
    given = config.maybe_integer(BROADCAST_THRESHOLD)
    own = broadcast_threshold(bridge, at_run_time=True)
    threshold, option = own if given is None else (given, BROADCAST_THRESHOLD.key)
    return Resources(
        broadcast_threshold=threshold,
        broadcast_memory=int(min(driver, executor) * _EXECUTION_SHARE / 8),
        task_memory=int(executor * _EXECUTION_SHARE / tasks / 4),
        volume_per_task=config.integer(DATA_VOLUME_PER_TASK),
        cores=jobs.cluster_cores(bridge),
        broadcast_option=option,
    )
