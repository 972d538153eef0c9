"""Relations of many types, as a leaf and as Spark broadcasts them."""

import datetime as dt
import decimal

from penstock.graph import Side
from penstock.spark import catalyst, exchange
from penstock.spark.joins import join_facts
from penstock.spark.plans import read_plan

DAY = dt.date(2024, 2, 29)
# name: the types of the keys, and rows of a third column behind them
RELATIONS = {
    "longs": ("k bigint", [(5,), (7,), (5,), (-1 << 62,)]),
    "ints, which Spark widens": ("k int", [(5,), (7,), (None,), (5,)]),
    "two ints, which Spark packs": ("k int, l int", [(1, 2), (-1, 2), (1, 2), (None, 3), (4, None)]),
    "texts": ("k string", [("a",), ("",), (None,), ("ä" * 99,), ("a",)]),
    "dates and texts": ("k date, l string", [(DAY, "x"), (DAY, "y"), (None, "z"), (DAY, "x")]),
    "decimals": ("k decimal(25,3)", [(decimal.Decimal("1.5"),), (decimal.Decimal(-2),), (decimal.Decimal("1.5"),)]),
    "one row": ("k bigint", [(3,)]),
    "many": ("k bigint", [(i * 37 % 1009,) for i in range(5000)]),
}


def relation_of(spark, bridge, schema, rows):
    """Return the right side of a join as a leaf, as a broadcast relation, and the keys of the join."""
    df = spark.createDataFrame([(*row, i) for i, row in enumerate(rows)], f"{schema}, v int").repartition(2)
    names = [column.split()[0] for column in schema.split(", ")]
    joined = df.withColumnRenamed("v", "w").join(df, names)
    plan = read_plan(bridge, catalyst.optimized_plan(joined))
    join = next(node for node in plan.walk() if node.name == "Join")
    keys = join_facts(bridge, join).handles(Side.RIGHT)
    mode = exchange.broadcast_mode(bridge, bridge.session, join, Side.RIGHT, keys)
    side = join.children[1].handle
    return side, exchange.broadcast(bridge, bridge.session, side, mode), keys
