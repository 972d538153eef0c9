"""Relations of many types, as leaves and as broadcast relations."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import TYPE_CHECKING, Any

from penstock.graph import Side
from penstock.spark.plans import catalyst
from penstock.spark.plans.joins import join_facts
from penstock.spark.plans.nodes import read_plan
from penstock.spark.run import exchange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.bridge.jvm import Bridge


DAY = dt.date(2024, 2, 29)
# name: the schema of the keys, and their rows; a value column is added
RELATIONS = {
    "longs": ("k bigint", [(5,), (7,), (5,), (-1 << 62,)]),
    "ints, which Spark widens": ("k int", [(5,), (7,), (None,), (5,)]),
    "two ints, which Spark packs": ("k int, l int", [(1, 2), (-1, 2), (1, 2), (None, 3), (4, None)]),
    "texts": ("k string", [("a",), ("",), (None,), ("ä" * 99,), ("a",)]),
    "dates and texts": ("k date, l string", [(DAY, "x"), (DAY, "y"), (None, "z"), (DAY, "x")]),
    "decimals": ("k decimal(25,3)", [(decimal.Decimal("1.5"),), (decimal.Decimal(-2),), (decimal.Decimal("1.5"),)]),
    "a single row": ("k bigint", [(3,)]),
    "many": ("k bigint", [(i * 37 % 1009,) for i in range(5000)]),
}


def relation_of(spark: SparkSession, bridge: Bridge, schema: Any, rows: Any) -> Any:
    """Return the right side of a join as a leaf, as a broadcast relation, and the keys of the join."""
    df = spark.createDataFrame([(*row, i) for i, row in enumerate(rows)], f"{schema}, v int").repartition(2)
    names = [column.split()[0] for column in schema.split(", ")]
    joined = df.withColumnRenamed("v", "w").join(df, names)
    plan = read_plan(catalyst.optimized_plan(bridge, joined))
    join = next(node for node in plan.walk() if node.name == "Join")
    keys = join_facts(join).expressions(Side.RIGHT)
    mode = exchange.broadcast_mode(bridge.session, join, Side.RIGHT, keys)
    side = join.children[1]
    return side, exchange.broadcast(exchange.run_for_broadcast(bridge.session, side), mode), keys
