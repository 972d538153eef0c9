"""Optional client libraries of connectors, and the secrets among their properties."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

from penstock.base.masking import MASK, can_be_stored, is_secret
from penstock.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.commit import Access
    from penstock.errors import PenstockError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def needs(module: str, extra: str, error: type[PenstockError]) -> None:
    """Raise an error with the install command if a module is not installed."""
    if find_spec(module) is None:
        raise error(f"{module} is not installed", hint=f"pip install 'penstock[{extra}]'")


def absolute(path: str) -> str:
    """Return an absolute path, valid in a process with another working directory; a URI is returned unchanged."""
    return path if _SCHEME.match(path) else os.path.abspath(path)  # noqa: PTH100 - keeps symbolic links


def client_key(address: str, *qualifiers: str | None) -> str:
    """Return the key of a client's secrets: its address, qualified by a user or warehouse with secrets of its own."""
    return ", ".join((address, *filter(None, qualifiers)))


def without_secrets(properties: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return a client's properties for storage in a file, with values that may be secrets replaced by `MASK`."""
    return tuple((key, str(value) if can_be_stored(key, str(value)) else MASK) for key, value in properties.items())


def secrets_for(access: Access, *keys: str) -> Mapping[str, str]:
    """Return the secrets of the first key that has any; empty if none has."""
    return next((access.secrets[key] for key in keys if key in access.secrets), {})


def with_secrets(stored: Iterable[tuple[str, str]], secrets: Mapping[str, str]) -> dict[str, str]:
    """Return stored properties, with masked ones filled in from the current secrets.

    Raise `SinkError` if a masked property is missing that may select another server. A missing password is left to the
    client, which reports it itself.
    """
    plain = {key: value for key, value in stored if value != MASK}
    names = {key.lower() for key in plain}
    properties = {**plain, **{key: value for key, value in secrets.items() if key.lower() not in names}}
    names = {key.lower() for key in properties}
    missing = [key for key, value in stored if value == MASK and key.lower() not in names and not is_secret(key)]
    if missing:
        raise SinkError(
            f"the properties {', '.join(missing)} are missing",
            cause="they may be secrets, so journals do not keep them",
            hint="give them: run the job again, or see `penstock recover --help`",
        )
    return properties


def secrets_of(sinks: Iterable[Mapping[str, Mapping[str, str]]]) -> dict[str, Mapping[str, str]]:
    """Return the secrets of several sinks, merged by address.

    Raise `SinkError` if two sinks have different secrets for an address: commit records could not distinguish them.
    """
    merged: dict[str, Mapping[str, str]] = {}
    for secrets in sinks:
        for address, properties in secrets.items():
            if address in merged and _masked(merged[address]) != _masked(properties):
                raise SinkError(
                    f"two sinks of the job reach {address} with other properties",
                    cause="they differ in what may be a secret, and their commits could not be distinguished",
                    hint="give both the same properties, or write them by two jobs",
                )
            merged[address] = properties
    return merged


def _masked(properties: Mapping[str, str]) -> dict[str, str]:
    return {key.lower(): str(value) for key, value in properties.items() if not can_be_stored(key, str(value))}
