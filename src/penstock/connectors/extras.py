"""Optional libraries of connectors."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from penstock.masking import mask_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.errors import PenstockError


def needs(module: str, extra: str, error: type[PenstockError]) -> None:
    """Raise an error that says how to install a module, if it is not there."""
    if find_spec(module) is None:
        raise error(f"{module} is not installed", hint=f"pip install 'penstock[{extra}]'")


def without_secrets(properties: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the properties of a client that may be kept in a file."""
    return tuple((key, str(value)) for key, value in properties.items() if mask_value(key, value) == str(value))


def with_secrets(kept: Iterable[tuple[str, str]], given: Mapping[str, str] | None) -> dict[str, str]:
    """Return properties that were kept with those that could not be, as far as they are known."""
    return {**dict(kept), **(given or {})}
