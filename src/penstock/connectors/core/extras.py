"""Optional client libraries of connectors, and the secrets among the properties of clients."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from penstock.base.masking import MASK, can_be_stored, is_secret
from penstock.errors import SinkError

if TYPE_CHECKING:
    from penstock.commit import Access
    from penstock.errors import PenstockError

PACKAGES = {
    "delta": "deltalake",
    "http": "httpx tenacity",
    "iceberg": "'pyiceberg[pyarrow,sql-sqlite]' pyiceberg-core",
    "kafka": "confluent-kafka",
}
"""The packages of each extra with a client library, as arguments of ``pip install``."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def require_module(module: str, extra: str, error: type[PenstockError]) -> None:
    """Raise `error`, with the command that installs the packages of an extra, if a module is not installed."""
    if find_spec(module) is None:
        raise error(f"{module} is not installed", hint=f"pip install {PACKAGES[extra]}")


def absolute_path(path: str) -> str:
    """Return the absolute path, which is valid in any working directory; a URI is returned unchanged."""
    return path if _SCHEME.match(path) else os.path.abspath(path)  # noqa: PTH100 - keeps symbolic links


def client_key(address: str, *qualifiers: str | None) -> str:
    """Return the key of a client's secrets in `Access.secrets`: its address, then its user or warehouse, if any."""
    return ", ".join((address, *filter(None, qualifiers)))


def without_secrets(properties: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return a client's properties for storage in a file, with values that may be secrets replaced by `MASK`."""
    return tuple((key, str(value) if can_be_stored(key, str(value)) else MASK) for key, value in properties.items())


def secrets_for(access: Access, *keys: str) -> Mapping[str, str]:
    """Return the secrets of the first of `keys` for which `access` has secrets; empty if there is no such key."""
    return next((access.secrets[key] for key in keys if key in access.secrets), {})


def with_secrets(stored: Iterable[tuple[str, str]], secrets: Mapping[str, str]) -> dict[str, str]:
    """Return the stored properties that are not masked, and all other properties of the current `secrets`.

    Raise `SinkError` if `secrets` lacks a masked property: without the property, the client might connect to another
    server. A missing password (or token) is not an error here, because the client itself reports it.
    """
    plain = {key: value for key, value in stored if value != MASK}
    names = {key.lower() for key in plain}
    properties = {**plain, **{key: value for key, value in secrets.items() if key.lower() not in names}}
    names = {key.lower() for key in properties}
    missing = [key for key, value in stored if value == MASK and key.lower() not in names and not is_secret(key)]
    if missing:
        raise SinkError(
            f"the properties {', '.join(missing)} are missing",
            cause="they may be secrets, so journals do not store them",
            hint="run the job again, or pass them to `penstock recover`, see its --help",
        )
    return properties


def merge_secrets(secrets_of_sinks: Iterable[Mapping[str, Mapping[str, str]]]) -> dict[str, Mapping[str, str]]:
    """Return the secrets of several sinks, merged by address.

    Raise `SinkError` if two sinks have different secrets for an address: commit records look secrets up by address.
    """
    merged: dict[str, Mapping[str, str]] = {}
    for secrets in secrets_of_sinks:
        for address, properties in secrets.items():
            if address in merged and _possible_secrets(merged[address]) != _possible_secrets(properties):
                raise SinkError(
                    f"two sinks of the job connect to {address} with different properties",
                    cause="they differ in what may be a secret, so recovery could not distinguish their commits",
                    hint="give both the same properties, or write them by two jobs",
                )
            merged[address] = properties
    return merged


def _possible_secrets(properties: Mapping[str, str]) -> dict[str, str]:
    return {key.lower(): str(value) for key, value in properties.items() if not can_be_stored(key, str(value))}
