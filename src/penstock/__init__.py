"""Penstock decides every parallelism of a PySpark pipeline while it runs, from the data as it is."""

from penstock.environment import Environment
from penstock.functions import with_parallelism

__version__ = "0.1.0"

__all__ = ["Environment", "__version__", "with_parallelism"]
