"""Optional libraries of connectors."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.errors import PenstockError


def needs(module: str, extra: str, error: type[PenstockError]) -> None:
    """Raise an error that says how to install a module, if it is not there."""
    if find_spec(module) is None:
        raise error(f"{module} is not installed", hint=f"pip install 'penstock[{extra}]'")
