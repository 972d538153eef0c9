"""The keys of finished results as rows, for leaves that DuckDB computes: it joins them, as it has no Bloom filter.

A Bloom filter's expression tells the number of its keys (``java/NativeKeys.java``). They are fetched when the first
leaf wants them, and broadcast to the Python workers once.
"""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING

from penstock.spark.expressions import Expression
from penstock.spark.lifetimes import KeptByPlans
from penstock.spark.native_builds import broadcast_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.core.broadcast import Broadcast

    from penstock.spark.handles import JvmObject, Session
    from penstock.spark.jvm import Bridge

MOST_ROWS = 4_000_000
"""Keys of more rows are not fetched: each task makes a hash table of them, of about a second for so many."""
_NO_BROADCAST = -1
_NUMBERS = itertools.count()


class KeyRows:
    """The keys of a result.

    Parameters
    ----------
    count
        How many there are, about.
    write
        Writes them to a file as a stream of Arrow's, with jobs of a session if they take any.
    broadcast
        The number of the broadcast relation that they come from, None if they come from another result.
    """

    def __init__(self, count: int, write: Callable[[Session, str], object], broadcast: int | None = None) -> None:
        self._count = count
        self._write = write
        self._broadcast = _NO_BROADCAST if broadcast is None else broadcast
        self._number = next(_NUMBERS)
        self._lock = threading.Lock()
        self._made: Broadcast[bytes] | None = None

    def mark(self, bridge: Bridge, condition: Expression, bloom: JvmObject) -> Expression:
        """Return the expression that asks a Bloom filter of these keys, marked with their number.

        All copies of the expression share the filter itself, so the keys are kept as long as there is one.
        """
        marked = bridge.helper("NativeKeys").tagged(condition, self._number, self._broadcast, self._count)
        _MARKED.keep(bridge, self._number, bloom, self)
        return Expression(bridge, marked)

    def rows(self, session: Session) -> Broadcast[bytes]:
        """Return them as a stream of Arrow's; its columns are called ``k0``, ``k1`` and so on."""
        with self._lock:
            if self._made is None:
                self._made = broadcast_table(session._bridge, lambda path: self._write(session, path))
            return self._made


_MARKED: KeptByPlans[KeyRows] = KeptByPlans()


def key_rows(number: int) -> KeyRows | None:
    """Return the keys with a number, None if there are none."""
    return _MARKED.get(number)
