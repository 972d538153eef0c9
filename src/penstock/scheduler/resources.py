"""The limits of a job, from its options and its cluster: numbers of tasks, sizes of broadcasts and hash tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.config.options import (
    AUTO_PARALLELISM_ENABLED,
    BROADCAST_THRESHOLD,
    DATA_VOLUME_PER_TASK,
    DEFAULT_SOURCE_PARALLELISM,
    MAX_PARALLELISM,
    MIN_PARALLELISM,
    PARALLELISM_DEFAULT,
    SKEWED_FACTOR,
    SKEWED_THRESHOLD,
)
from penstock.execution.context import BroadcastBounds
from penstock.optimizer import Resources
from penstock.planner.planner import planned_broadcast_threshold
from penstock.sizing.parallelism import PENSTOCK_DEFAULT, Bounds, global_maximum
from penstock.spark.bridge.session import broadcast_threshold
from penstock.spark.run import jobs

if TYPE_CHECKING:
    from penstock.config import Configuration
    from penstock.spark.bridge.jvm import Bridge


@dataclass(frozen=True, slots=True)
class ParallelismSettings:
    """The parallelism options, read once for a job.

    `fixed` is the number of tasks if automatic parallelism is off, else None. `default` and `user_maximum` are the
    options for the default and the maximum parallelism, None if unset. `source_default` is the default maximum of tasks
    for sources that infer their parallelism, or None. `cores` is the number of tasks that the cluster runs at a time.
    `skew_factor` and `skew_threshold` define skewed subpartitions, see `optimizer.skew.skew_threshold`.
    """

    bounds: Bounds
    fixed: int | None
    default: int | None
    user_maximum: int | None
    source_default: int | None
    cores: int
    skew_factor: float
    skew_threshold: int

    @classmethod
    def of(cls, config: Configuration, cores: int) -> ParallelismSettings:
        """Read the options."""
        default, user_maximum = config.maybe_integer(PARALLELISM_DEFAULT), config.maybe_integer(MAX_PARALLELISM)
        minimum = config.integer(MIN_PARALLELISM)
        maximum = global_maximum(user_maximum, default, cores)
        user_limits = {MAX_PARALLELISM.key: user_maximum, PARALLELISM_DEFAULT.key: default}
        maximum_from = next((key for key, number in user_limits.items() if number), PENSTOCK_DEFAULT)
        if minimum > maximum:
            maximum, maximum_from = minimum, MIN_PARALLELISM.key
        factor = config.get(SKEWED_FACTOR)
        assert isinstance(factor, float)
        return cls(
            bounds=Bounds(minimum, maximum, config.integer(DATA_VOLUME_PER_TASK), maximum_from),
            fixed=None if config.flag(AUTO_PARALLELISM_ENABLED) else default or maximum,
            default=default,
            user_maximum=user_maximum,
            source_default=config.maybe_integer(DEFAULT_SOURCE_PARALLELISM),
            cores=cores,
            skew_factor=factor,
            skew_threshold=config.integer(SKEWED_THRESHOLD),
        )


_MEMORY_FRACTION = 0.6
"""The fraction of a heap that Spark uses for execution and storage (default of ``spark.memory.fraction``)."""

_BROADCAST_TOLERANCE = 10
"""A broadcast is stopped above this multiple of the threshold; below, completing it costs less than a shuffle."""


def resources_of(bridge: Bridge, config: Configuration) -> Resources:
    """Return the limits that optimizer strategies apply, such as the maximum size of a broadcast table.

    A broadcast table may take an eighth of Spark's share of the smaller heap (driver or executor): several tables may
    exist at a time, and the driver builds each in two copies. A task's hash table may take a quarter of its share.
    """
    driver_heap, executor_heap = jobs.heap_bytes(bridge)
    tasks_per_executor = max(jobs.cluster_cores(bridge) // jobs.executor_count(bridge), 1)
    threshold, option = broadcast_threshold(bridge, at_run_time=True)
    user_threshold = config.maybe_integer(BROADCAST_THRESHOLD)
    if user_threshold is not None:
        threshold, option = user_threshold, BROADCAST_THRESHOLD.key
    return Resources(
        broadcast_threshold=threshold,
        broadcast_memory=int(min(driver_heap, executor_heap) * _MEMORY_FRACTION / 8),
        task_memory=int(executor_heap * _MEMORY_FRACTION / tasks_per_executor / 4),
        volume_per_task=config.integer(DATA_VOLUME_PER_TASK),
        cores=jobs.cluster_cores(bridge),
        broadcast_option=option,
    )


def broadcast_bounds(bridge: Bridge, config: Configuration, resources: Resources) -> BroadcastBounds:
    """Return the run-time limits of broadcasts that were chosen because of Spark's size estimates."""
    threshold, _ = planned_broadcast_threshold(bridge, config)
    settings = ParallelismSettings.of(config, resources.cores)
    return BroadcastBounds(
        limit=max(threshold, min(_BROADCAST_TOLERANCE * threshold, resources.broadcast_memory)),
        memory=resources.broadcast_memory,
        volume_per_task=resources.volume_per_task,
        max_subpartitions=max(settings.bounds.maximum, settings.fixed or 1),
    )
