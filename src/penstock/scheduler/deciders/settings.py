"""What the options of a job say about numbers of tasks."""

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
    """The options, read once for a job.

    Parameters
    ----------
    bounds
        The bounds of all decisions.
    fixed
        The number of tasks where none is decided from data, else None.
    default
        The default parallelism of the job, or None.
    own_maximum
        The maximum that the user gave, or None.
    source_default
        The most tasks of a source that is asked, where nothing else is said; or None.
    cores
        How many tasks the cluster runs at a time.
    skew_factor, skew_threshold
        When a subpartition is skewed, see `optimizer.skew.skew_threshold`.
    """

    bounds: Bounds
    fixed: int | None
    default: int | None
    own_maximum: int | None
    source_default: int | None
    cores: int
    skew_factor: float
    skew_threshold: int

    @classmethod
    def of(cls, config: Configuration, cores: int) -> ParallelismSettings:
        """Read them; `cores` is how many tasks the cluster runs at a time."""
        default, own_maximum = config.maybe_integer(PARALLELISM_DEFAULT), config.maybe_integer(MAX_PARALLELISM)
        minimum = config.integer(MIN_PARALLELISM)
        maximum = global_maximum(own_maximum, default, cores)
        given = {MAX_PARALLELISM.key: own_maximum, PARALLELISM_DEFAULT.key: default}
        maximum_from = next((key for key, number in given.items() if number), PENSTOCKS_DEFAULT)
        if minimum > maximum:
            maximum, maximum_from = minimum, MIN_PARALLELISM.key
        factor = config.get(SKEWED_FACTOR)
        assert isinstance(factor, float)
        return cls(
            bounds=Bounds(minimum, maximum, config.integer(DATA_VOLUME_PER_TASK), maximum_from),
            fixed=None if config.flag(AUTO_PARALLELISM_ENABLED) else default or maximum,
            default=default,
            own_maximum=own_maximum,
            source_default=config.maybe_integer(DEFAULT_SOURCE_PARALLELISM),
            cores=cores,
            skew_factor=factor,
            skew_threshold=config.integer(SKEWED_THRESHOLD),
        )
