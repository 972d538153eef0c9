"""What a cluster offers to hash tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.options import BROADCAST_THRESHOLD, DATA_VOLUME_PER_TASK
from penstock.execution.context import BroadcastBounds
from penstock.optimizer import Resources
from penstock.planner.planner import planned_broadcast_threshold
from penstock.scheduler.deciders.settings import ParallelismSettings
from penstock.spark import jobs
from penstock.spark.session import broadcast_threshold

if TYPE_CHECKING:
    from penstock.config import Configuration
    from penstock.spark.jvm import Bridge

_EXECUTION_SHARE = 0.6
"""The part of a heap that Spark uses for execution and storage, by default."""


_GROWN = 10
"""A broadcast is stopped at so many times the bytes that a side may have: less is sooner broadcast than begun anew."""


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


def broadcast_bounds(bridge: Bridge, config: Configuration, resources: Resources) -> BroadcastBounds:
    """Return when a broadcast is stopped that Spark's estimates asked for, and how its rows are exchanged then."""
    planned, _ = planned_broadcast_threshold(bridge, config)
    settings = ParallelismSettings.of(config, resources.cores)
    return BroadcastBounds(
        limit=max(planned, min(_GROWN * planned, resources.broadcast_memory)),
        memory=resources.broadcast_memory,
        volume_per_task=resources.volume_per_task,
        most_subpartitions=max(settings.bounds.maximum, settings.fixed or 1),
    )
