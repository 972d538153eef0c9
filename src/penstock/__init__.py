"""Penstock decides the parallelism of every step of a PySpark pipeline while it runs, from measured data."""

from penstock.environment import Environment
from penstock.extension import disable, enable, enabled
from penstock.functions import with_parallelism
from penstock.rebalance.operator import rebalance, rescale


def load_ipython_extension(ipython: object) -> None:
    """Serve the active Spark session, or an embedded one, for ``%load_ext penstock``."""
    del ipython
    enable()


def unload_ipython_extension(ipython: object) -> None:
    """Let Spark run the queries of the active session again, for ``%unload_ext penstock``."""
    del ipython
    disable()


__version__ = "0.1.0"

__all__ = [
    "Environment",
    "__version__",
    "disable",
    "enable",
    "enabled",
    "rebalance",
    "rescale",
    "with_parallelism",
]
