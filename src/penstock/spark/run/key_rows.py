"""Join keys of finished results as rows: a native engine has no Bloom filters, so it joins its leaves with the keys.

The expression of a Bloom filter has a tag with the number of its key set (``KeyRows.java``). The keys are collected for
the first leaf that needs them, and broadcast to the Python workers once.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.bridge.handles import JvmObject, PlanLifetimeMap, Session
from penstock.spark.plans.expressions import Expression

if TYPE_CHECKING:
    from pyspark.core.broadcast import Broadcast

    from penstock.spark.bridge.jvm import Bridge

MAX_ROWS = 4_000_000
"""Keys of larger results do not become rows: each task would need a second to build their hash table."""
_NUMBERS = itertools.count()


class _BroadcastFile:
    """The file that PySpark writes for a broadcast variable and never deletes; it is deleted with this object."""

    def __init__(self, path: str) -> None:
        weakref.finalize(self, Path(path).unlink, missing_ok=True)


_FILES: PlanLifetimeMap[_BroadcastFile] = PlanLifetimeMap()


def broadcast_table(bridge: Bridge, write: Callable[[str], object]) -> Broadcast[bytes]:
    """Broadcast the Arrow stream that `write` writes to a path; PySpark's file is deleted with the variable."""
    with tempfile.NamedTemporaryFile(prefix="penstock-build-") as file:
        write(file.name)
        broadcast = bridge.spark.sparkContext.broadcast(file.read())
    _FILES.keep(bridge, int(broadcast._jbroadcast.id()), broadcast._jbroadcast, _BroadcastFile(broadcast._path))
    return broadcast


class KeyRows:
    """The keys of a result as rows; `count` is their estimated number.

    `write` gets a session and a path, and writes the keys as an Arrow stream to that file, if necessary by Spark jobs.
    `broadcast_id` is the id of the broadcast relation that has the keys, None if they come from another result.
    """

    def __init__(self, count: int, write: Callable[[Session, str], object], broadcast_id: int | None = None) -> None:
        self._count = count
        self._write = write
        self._broadcast_id = -1 if broadcast_id is None else broadcast_id
        self._number = next(_NUMBERS)
        self._lock = threading.Lock()
        self._broadcast_rows: Broadcast[bytes] | None = None

    def tag_filter(self, bridge: Bridge, condition: Expression, bloom: JvmObject) -> Expression:
        """Return `condition`, which tests a Bloom filter of these keys, with the number of the keys as a tag.

        All copies of the expression share the filter `bloom`, so the keys live as long as any copy.
        """
        tagged = bridge.helper("KeyRows").tagged(condition, self._number, self._broadcast_id, self._count)
        _TAGGED_KEYS.keep(bridge, self._number, bloom, self)
        return Expression(bridge, tagged)

    def rows(self, session: Session) -> Broadcast[bytes]:
        """Return the keys as a broadcast Arrow stream with columns ``k0``, ``k1`` and so on."""
        with self._lock:
            if self._broadcast_rows is None:
                self._broadcast_rows = broadcast_table(session._bridge, lambda path: self._write(session, path))
            return self._broadcast_rows


_TAGGED_KEYS: PlanLifetimeMap[KeyRows] = PlanLifetimeMap()


def key_rows(number: int) -> KeyRows | None:
    """Return the keys whose number `tag_filter` stored in the tag of a filter; None if no plan has the filter now."""
    return _TAGGED_KEYS.get(number)
