"""Tables that every task of a leaf of DuckDB has: they reach the Python workers once per executor, as Arrow.

Uses ``HashedRelation`` and ``ArrowConverters.toBatchWithSchemaIterator`` (``java/NativeJoin.java``).
"""

from __future__ import annotations

import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.lifetimes import KeptByPlans

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.core.broadcast import Broadcast

    from penstock.spark.jvm import Bridge


class _BroadcastFile:
    """The file that PySpark makes of a broadcast variable, and never removes by itself."""

    def __init__(self, path: str) -> None:
        weakref.finalize(self, Path(path).unlink, missing_ok=True)


_FILES: KeptByPlans[_BroadcastFile] = KeptByPlans()


def broadcast_table(bridge: Bridge, write: Callable[[str], object]) -> Broadcast[bytes]:
    """Broadcast what is written to a file, a stream of Arrow's; plans that need it keep it."""
    with tempfile.NamedTemporaryFile(prefix="penstock-build-") as file:
        write(file.name)
        made = bridge.spark.sparkContext.broadcast(file.read())
    _FILES.keep(bridge, int(made._jbroadcast.id()), made._jbroadcast, _BroadcastFile(made._path))
    return made


def broadcast_build(bridge: Bridge, leaf: Any, number: int) -> Broadcast[bytes]:
    """Broadcast the rows of a side of a leaf's joins."""
    return broadcast_table(bridge, lambda path: bridge.helper("NativeParts").writeBuild(leaf, number, path))
