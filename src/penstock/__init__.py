"""Penstock decides the parallelism of every step of a PySpark pipeline while it runs, from measured data."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.log_masking import mask_logs

if TYPE_CHECKING:
    from penstock.environment import Environment
    from penstock.extension import disable, enable, enabled
    from penstock.functions import with_parallelism
    from penstock.rebalance.operator import rebalance, rescale

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

_HOMES = {
    "Environment": "penstock.environment",
    "disable": "penstock.extension",
    "enable": "penstock.extension",
    "enabled": "penstock.extension",
    "rebalance": "penstock.rebalance.operator",
    "rescale": "penstock.rebalance.operator",
    "with_parallelism": "penstock.functions",
}
"""Where the names are, which are imported when they are asked for: `penstock --help` must not wait for PySpark."""

mask_logs()

# A package is bound to its name when it is first imported, and never again. So `rebalance` stays the function's.
import_module("penstock.rebalance")
globals().pop("rebalance")


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        found = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return found
    room = f"{__name__}.{name}"
    try:
        return import_module(room)
    except ModuleNotFoundError as error:
        if error.name != room:
            raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def load_ipython_extension(ipython: object) -> None:
    """Serve the active Spark session, or an embedded one, for ``%load_ext penstock``."""
    from penstock.extension import enable

    del ipython
    enable()


def unload_ipython_extension(ipython: object) -> None:
    """Let Spark run the queries of the active session again, for ``%unload_ext penstock``."""
    from penstock.extension import disable

    del ipython
    disable()
