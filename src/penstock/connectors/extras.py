"""Optional libraries of connectors, and which of their properties may be kept in a file."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

from penstock.errors import SinkError
from penstock.masking import MASK, is_secret, may_be_kept

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.commit import Access
    from penstock.errors import PenstockError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def needs(module: str, extra: str, error: type[PenstockError]) -> None:
    """Raise an error that says how to install a module, if it is not there."""
    if find_spec(module) is None:
        raise error(f"{module} is not installed", hint=f"pip install 'penstock[{extra}]'")


def absolute(path: str) -> str:
    """Return a path that means the same wherever a later process runs; a URI stays as it is."""
    return path if _SCHEME.match(path) else os.path.abspath(path)  # noqa: PTH100 - links stay


def address_of(place: str, *who: str | None) -> str:
    """Return by which the secrets of a client are found: at one place every user, or warehouse, has its own."""
    return ", ".join((place, *(one for one in who if one)))


def without_secrets(properties: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the properties of a client as they may be kept in a file: of what may be a secret only the name."""
    return tuple((key, str(value) if may_be_kept(key, str(value)) else MASK) for key, value in properties.items())


def given_for(access: Access, *addresses: str) -> Mapping[str, str]:
    """Return what was given for the first of some addresses for which there is anything."""
    return next((access.secrets[one] for one in addresses if one in access.secrets), {})


def with_secrets(kept: Iterable[tuple[str, str]], given: Mapping[str, str]) -> dict[str, str]:
    """Return properties that were kept, with those that could not be as they are given now.

    Raises
    ------
    SinkError
        If one is not given that may lead somewhere else. A client without its password says so itself.
    """
    known = {key: value for key, value in kept if value != MASK}
    names = {key.lower() for key in known}
    found = {**known, **{key: value for key, value in given.items() if key.lower() not in names}}
    names = {key.lower() for key in found}
    missing = [key for key, value in kept if value == MASK and key.lower() not in names and not is_secret(key)]
    if missing:
        raise SinkError(
            f"the properties {', '.join(missing)} are not known",
            cause="they may be secrets, so journals do not keep them",
            hint="give them: run the job again, or see `penstock recover --help`",
        )
    return found


def secrets_of(sinks: Iterable[Mapping[str, Mapping[str, str]]]) -> dict[str, Mapping[str, str]]:
    """Return the secrets of several sinks together.

    Raises
    ------
    SinkError
        If two have others for one address, as records could not tell them apart.
    """
    found: dict[str, Mapping[str, str]] = {}
    for secrets in sinks:
        for address, properties in secrets.items():
            if address in found and _withheld(found[address]) != _withheld(properties):
                raise SinkError(
                    f"two sinks of the job reach {address} with other properties",
                    cause="they differ in what may be a secret, and their commits could not be told apart",
                    hint="give both the same properties, or write them by two jobs",
                )
            found[address] = properties
    return found


def _withheld(properties: Mapping[str, str]) -> dict[str, str]:
    return {key.lower(): str(value) for key, value in properties.items() if not may_be_kept(key, str(value))}
