"""Limits for running a query as a single task with all cores of an executor, without exchanges."""

from __future__ import annotations

BYTES_PER_CORE_SECOND = 100_000_000
"""Bytes of Parquet files that DuckDB processes per core and second (TPC-H at scale 10: 60 to 500 million)."""
OVERHEAD_SECONDS = 1.0
"""Minimum seconds of a query that runs in several steps, each planned and started separately (measured with TPC-H)."""

MIN_EXCHANGES = 2.0
"""The minimum number of exchanges with which a small query runs in DuckDB instead of Spark.

TPC-DS at scale 0.1 on two cores: 83 queries have at least 2 exchanges, and 10 of them become slower (geometric mean of
all speedups 1.84). With a limit of 3: 50 queries, 8 slower (1.56); without a limit: 97 queries, 16 slower (1.79).
"""


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
