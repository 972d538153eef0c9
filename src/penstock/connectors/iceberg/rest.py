"""A REST catalog of Iceberg with timeouts, which pyiceberg's own catalog lacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.utils.config import Config, merge_config
from requests import Timeout
from requests.adapters import HTTPAdapter

from penstock.connectors.core.timeouts import timeout
from penstock.errors import SourceTimeoutError

if TYPE_CHECKING:
    from requests import PreparedRequest, Response, Session


class _TimeoutAdapter(HTTPAdapter):
    """HTTP adapter with a default timeout."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        if not args and kwargs.get("timeout") is None:  # the library `requests` passes all arguments by name
            kwargs["timeout"] = self._seconds
        try:
            return super().send(request, *args, **kwargs)
        except Timeout as error:
            url = urlsplit(str(request.url))
            operation = f"{request.method} {url.path}"
            raise SourceTimeoutError.of(f"the catalog at {url.netloc}", operation, self._seconds) from error


class TimeoutRestCatalog(RestCatalog):
    """A REST catalog for reading only: a commit must not time out, as its outcome would be unknown."""

    def _create_session(self) -> Session:
        session = super()._create_session()
        for scheme in ("http://", "https://"):
            session.mount(scheme, _TimeoutAdapter(timeout()))
        return session


def rest_catalog(name: str, properties: Mapping[str, str]) -> TimeoutRestCatalog | None:
    """Return a REST catalog with timeouts; None if the properties describe another kind of catalog."""
    merged: dict[str, Any] = merge_config(Config().get_catalog_config(name) or {}, dict(properties))
    catalog_type, uri = str(merged.get("type") or ""), str(merged.get("uri") or "")
    is_rest = catalog_type.lower() == "rest" or (not catalog_type and uri.startswith("http"))
    return TimeoutRestCatalog(name, **merged) if is_rest and "py-catalog-impl" not in merged else None
