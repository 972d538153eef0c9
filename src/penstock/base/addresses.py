"""Classification of network addresses."""

from __future__ import annotations

import ipaddress


def is_loopback(address: str) -> bool:
    """Return whether only this machine can reach an address; False for every host name except ``localhost``.

    >>> [is_loopback(address) for address in ("localhost", "127.0.0.5", "::1", "0.0.0.0", "db.example")]
    [True, True, True, False, False]
    """
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
