"""A REST catalogue of Iceberg whose requests do not wait without end, as pyiceberg's own do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.utils.config import Config, merge_config
from requests import Timeout
from requests.adapters import HTTPAdapter

from penstock.connectors.timeouts import timeout
from penstock.errors import SourceTimeoutError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from requests import PreparedRequest, Response, Session


class _Bounded(HTTPAdapter):
    """Gives up a request that is not answered."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        if not args and kwargs.get("timeout") is None:
            kwargs["timeout"] = self._seconds
        try:
            return super().send(request, *args, **kwargs)
        except Timeout as error:
            url = urlsplit(str(request.url))
            what = f"{request.method} {url.path}"
            raise SourceTimeoutError.of(f"the catalogue at {url.netloc}", what, self._seconds) from error


class BoundedRestCatalog(RestCatalog):
    """A REST catalogue for reading: a commit must not be given up, as it may have been made."""

    def _create_session(self) -> Session:
        session = super()._create_session()
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Bounded(timeout()))
        return session


def rest_catalog(name: str, properties: Mapping[str, str]) -> BoundedRestCatalog | None:
    """Return a catalogue, None if these are not the properties of a REST catalogue."""
    found: dict[str, Any] = merge_config(Config().get_catalog_config(name) or {}, dict(properties))
    kind, uri = str(found.get("type") or ""), str(found.get("uri") or "")
    is_rest = kind.lower() == "rest" or (not kind and uri.startswith("http"))
    return BoundedRestCatalog(name, **found) if is_rest and "py-catalog-impl" not in found else None
