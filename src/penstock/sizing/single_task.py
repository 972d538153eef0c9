"""Limits for running a query as a single task with all cores of an executor, without exchanges."""

from __future__ import annotations

BYTES_PER_CORE_SECOND = 100_000_000
"""Bytes of Parquet files that DuckDB processes per core and second (TPC-H at scale 10: 60 to 500 million)."""
OVERHEAD_SECONDS = 1.0
"""Minimum seconds of a query that runs in several steps, each planned and started separately (measured with TPC-H)."""

_MIN_EXCHANGES_OF_TASK = 2.0
"""TPC-DS at scale 0.1 on two cores, in tasks of Spark: 83 queries have at least 2 exchanges, and 10 of them become
slower (geometric mean of all speedups 1.84). With a limit of 3: 50 queries, 8 slower (1.56); without a limit: 97
queries, 16 slower (1.79)."""
_MIN_EXCHANGES_OF_PROCESS = 1.0
"""A process beside the driver needs no Spark job, which costs about as much as an exchange."""


def min_exchanges(*, is_local: bool) -> float:
    """Return the number of exchanges from which a small query runs in DuckDB instead of Spark."""
    return _MIN_EXCHANGES_OF_PROCESS if is_local else _MIN_EXCHANGES_OF_TASK


def largest_single_task_input(executor_cores: int, cores: int) -> int | None:
    """Return the largest input, in bytes, for which a query should run as a single task; None if there is no bound.

    That task uses the cores of a single executor. At the bound, the time lost by using fewer cores equals
    `OVERHEAD_SECONDS`. There is no bound if one executor has all cores.

    >>> largest_single_task_input(2, 2)
    >>> largest_single_task_input(4, 8)
    800000000
    """
    if executor_cores >= cores:
        return None
    return int(BYTES_PER_CORE_SECOND * OVERHEAD_SECONDS * executor_cores * cores / (cores - executor_cores))
