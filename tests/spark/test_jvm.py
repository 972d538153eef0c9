"""What reaches into the JVM goes away with the last who holds it, without the garbage collector."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

from penstock.spark.jvm import Bridge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_bridge_is_in_no_cycle(spark: SparkSession) -> None:
    gc.disable()
    try:
        bridge = Bridge(spark)
        session = bridge.session
        assert session._bridge is bridge
        gone = weakref.ref(bridge)
        del bridge
        assert gone() is not None  # the session needs it
        del session
        assert gone() is None
    finally:
        gc.enable()
