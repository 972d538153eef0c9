"""The options of a job that determine numbers of tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.config.options import (
    AUTO_PARALLELISM_ENABLED,
    DATA_VOLUME_PER_TASK,
    DEFAULT_SOURCE_PARALLELISM,
    MAX_PARALLELISM,
    MIN_PARALLELISM,
    PARALLELISM_DEFAULT,
    SKEWED_FACTOR,
    SKEWED_THRESHOLD,
)
from penstock.sizing.parallelism import PENSTOCKS_DEFAULT, Bounds, global_maximum

if TYPE_CHECKING:
    from penstock.config import Configuration


@dataclass(frozen=True, slots=True)
class ParallelismSettings:
    """The parallelism options, read once for a job.

    Parameters
    ----------
    fixed
        The number of tasks if automatic parallelism is off, else None.
    user_maximum
        The maximum that the user has set, or None.
    source_default
        The default maximum of tasks for sources that infer their parallelism, or None.
    cores
        How many tasks the cluster runs at a time.
    skew_factor, skew_threshold
        Thresholds for skewed subpartitions, see `optimizer.skew.skew_threshold`.
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
        """Read the options; `cores` is how many tasks the cluster runs at a time."""
        default, user_maximum = config.maybe_integer(PARALLELISM_DEFAULT), config.maybe_integer(MAX_PARALLELISM)
        minimum = config.integer(MIN_PARALLELISM)
        maximum = global_maximum(user_maximum, default, cores)
        user_limits = {MAX_PARALLELISM.key: user_maximum, PARALLELISM_DEFAULT.key: default}
        maximum_from = next((key for key, number in user_limits.items() if number), PENSTOCKS_DEFAULT)
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
