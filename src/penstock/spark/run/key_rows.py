"""Join keys of finished results as rows: the leaves of a native engine join them, as it has no Bloom filter.

The expression of a Bloom filter carries the number of its keys (``KeyRows.java``). They are collected for the
first leaf that needs them, and broadcast to the Python workers once.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.bridge.handles import JvmObject, PlanLifetimeMap, Session
from penstock.spark.plans.expressions import Expression

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.core.broadcast import Broadcast

    from penstock.spark.bridge.jvm import Bridge

MAX_ROWS = 4_000_000
"""Larger results are not collected: each task builds a hash table of the keys, a second of work at this size."""
_NUMBERS = itertools.count()


class _BroadcastFile:
    """The file that PySpark writes for a broadcast variable; PySpark never removes it itself."""

    def __init__(self, path: str) -> None:
        weakref.finalize(self, Path(path).unlink, missing_ok=True)


_FILES: PlanLifetimeMap[_BroadcastFile] = PlanLifetimeMap()


def broadcast_table(bridge: Bridge, write: Callable[[str], object]) -> Broadcast[bytes]:
    """Broadcast the Arrow stream that `write` writes to a path; it lives as long as plans refer to it."""
    with tempfile.NamedTemporaryFile(prefix="penstock-build-") as file:
        write(file.name)
        broadcast = bridge.spark.sparkContext.broadcast(file.read())
    _FILES.keep(bridge, int(broadcast._jbroadcast.id()), broadcast._jbroadcast, _BroadcastFile(broadcast._path))
    return broadcast


class KeyRows:
    """The keys of a result as rows; `count` is their estimated number.

    `write` writes the keys to a file as an Arrow stream, if necessary with jobs of a session. `broadcast` is the id of
    the broadcast relation that has the keys, None if they come from another result.
    """

    def __init__(self, count: int, write: Callable[[Session, str], object], broadcast: int | None = None) -> None:
        self._count = count
        self._write = write
        self._broadcast = -1 if broadcast is None else broadcast
        self._number = next(_NUMBERS)
        self._lock = threading.Lock()
        self._broadcast_rows: Broadcast[bytes] | None = None

    def mark(self, bridge: Bridge, condition: Expression, bloom: JvmObject) -> Expression:
        """Return the expression that tests a Bloom filter of these keys, marked with their number.

        The filter value is shared by all copies of the expression, so the keys live as long as any copy.
        """
        marked = bridge.helper("KeyRows").tagged(condition, self._number, self._broadcast, self._count)
        _MARKED.keep(bridge, self._number, bloom, self)
        return Expression(bridge, marked)

    def rows(self, session: Session) -> Broadcast[bytes]:
        """Return the keys as a broadcast Arrow stream with columns ``k0``, ``k1`` and so on."""
        with self._lock:
            if self._broadcast_rows is None:
                self._broadcast_rows = broadcast_table(session._bridge, lambda path: self._write(session, path))
            return self._broadcast_rows


_MARKED: PlanLifetimeMap[KeyRows] = PlanLifetimeMap()


def key_rows(number: int) -> KeyRows | None:
    """Return the keys with a number, None if they have been released."""
    return _MARKED.get(number)
