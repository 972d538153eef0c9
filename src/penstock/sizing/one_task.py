"""Whether one task that computes a query with all cores of its executor beats many tasks that exchange rows."""

from __future__ import annotations

PACE = 100_000_000
"""Bytes of Parquet files that a core computes in a second, in DuckDB (TPC-H at scale 10: 60 to 500 million)."""
SAVED = 1.0
"""Seconds that a query takes at least where its steps are planned and begun one by one, and exchange rows (TPC-H)."""

FEWEST_EXCHANGES = 2.0
"""A small query with so many exchanges is computed sooner by DuckDB than by Spark.

At scale 0.1 on two cores, 83 queries of TPC-DS have so many, and ten of them lose (geometric mean of all ratios 1.84).
With three instead, 50 have them, and eight lose (1.56); with none, 97 and 16 (1.79).
"""


def largest_for_one_task(executor_cores: int, cores: int) -> int | None:
    """Return up to how many bytes a query should be computed by one task.

    That task computes with the cores of one executor, so it takes longer than all of them would. The bound is where
    that is as much as is saved.

    Parameters
    ----------
    executor_cores, cores
        The cores of an executor, and of all.

    Returns
    -------
    int or None
        The bytes; None if there is no bound, as one executor has all cores.

    Examples
    --------
    >>> largest_for_one_task(2, 2)
    >>> largest_for_one_task(4, 8)
    800000000
    """
    if executor_cores >= cores:
        return None
    return int(PACE * SAVED * executor_cores * cores / (cores - executor_cores))
