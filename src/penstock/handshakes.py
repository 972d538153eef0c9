"""A limit on the connections whose other end has not yet proven to know the secret of a server."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LIMIT = 512
"""The most unproven connections of a server at a time."""
SECONDS = 10.0
"""How long a handshake may take."""


class Handshakes:
    """The unproven connections of one server.

    If there are too many, the oldest is closed. The handshake of a task takes one round trip, so a stranger who opens
    many connections keeps no task out.
    """

    def __init__(self) -> None:
        self._writers: dict[asyncio.StreamWriter, None] = {}

    @asynccontextmanager
    async def limited(self, writer: asyncio.StreamWriter) -> AsyncIterator[None]:
        """Count a connection as unproven during the block.

        Raises
        ------
        TimeoutError
            If the block takes too long.
        """
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
