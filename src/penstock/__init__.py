"""Penstock decides the parallelism of every step of a PySpark pipeline while it runs, from measured data."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.base.masking import mask_logs

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from penstock.entry.environment import Environment
    from penstock.entry.functions import with_parallelism
    from penstock.extension import disable, enable, enabled
    from penstock.rebalance.operator import rebalance, rescale

__version__ = "0.2.0"

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

_MODULES = {
    "Environment": "penstock.entry.environment",
    "disable": "penstock.extension",
    "enable": "penstock.extension",
    "enabled": "penstock.extension",
    "rebalance": "penstock.rebalance.operator",
    "rescale": "penstock.rebalance.operator",
    "with_parallelism": "penstock.entry.functions",
}
"""The module of each public name, imported on first access so that `penstock --help` does not import PySpark."""

mask_logs()

# The first import of the subpackage `rebalance` sets an attribute of that name, which would hide the public function.
# So import the subpackage now and remove the attribute: later imports do not set it, so `__getattr__` is called.
import_module("penstock.rebalance")
globals().pop("rebalance")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value
    module = f"{__name__}.{name}"  # users may access a submodule that they have not imported
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def load_ipython_extension(ipython: InteractiveShell) -> None:
    """Enable Penstock for the active Spark session, or start a session; called by ``%load_ext penstock``."""
    from penstock.integrations.notebook import load

    load(ipython)


def unload_ipython_extension(ipython: InteractiveShell) -> None:
    """Disable Penstock for the active session; called by ``%unload_ext penstock``."""
    from penstock.integrations.notebook import unload

    unload(ipython)
