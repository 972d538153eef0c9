"""Broadcast tables of DuckDB joins: each executor receives them once, as Arrow streams.

Uses ``HashedRelation`` and ``ArrowConverters.toBatchWithSchemaIterator`` (``java/NativeJoin.java``).
"""

from __future__ import annotations

import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.lifetimes import PlanLifetimeMap

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.core.broadcast import Broadcast

    from penstock.spark.jvm import Bridge


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


def broadcast_build(bridge: Bridge, leaf: Any, number: int) -> Broadcast[bytes]:
    """Broadcast a join side of a leaf by its number."""
    return broadcast_table(bridge, lambda path: bridge.helper("NativeParts").writeBuild(leaf, number, path))
