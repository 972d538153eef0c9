"""Limit on the connections to a server that are not authenticated yet."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LIMIT = 512
"""The maximum number of unauthenticated connections of a server."""
SECONDS = 10.0
"""The timeout of a handshake."""


class Handshakes:
    """The unauthenticated connections of a server.

    If there are too many, the oldest is closed. As the handshake of a task takes a single round trip, an attacker that
    opens many connections cannot keep tasks from connecting.
    """

    def __init__(self) -> None:
        self._writers: dict[asyncio.StreamWriter, None] = {}

    @asynccontextmanager
    async def limited(self, writer: asyncio.StreamWriter) -> AsyncIterator[None]:
        """Track a connection as unauthenticated during the block; raise `TimeoutError` after `SECONDS`."""
        if len(self._writers) >= LIMIT:
            oldest = next(iter(self._writers))
            del self._writers[oldest]
            oldest.transport.abort()
        self._writers[writer] = None
        try:
            async with asyncio.timeout(SECONDS):
                yield
        finally:
            self._writers.pop(writer, None)
