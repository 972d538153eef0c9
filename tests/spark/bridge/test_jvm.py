"""References to the JVM are freed with their last owner, without the garbage collector."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

from penstock.spark.bridge.jvm import Bridge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_bridge_is_in_no_cycle(spark: SparkSession) -> None:
    gc.disable()
    try:
        bridge = Bridge(spark)
        session = bridge.session
        assert session._bridge is bridge
        reference = weakref.ref(bridge)
        del bridge
        assert reference() is not None  # the session needs it
        del session
        assert reference() is None
    finally:
        gc.enable()
