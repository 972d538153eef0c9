"""FLINK-5052: change the number of key groups (state partitions) of a streaming query after its first start.

Spark fixes the number when the query first starts. From then on, it ignores ``spark.sql.shuffle.partitions``.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from measure import start_spark
from pyspark.sql import DataFrame
from pyspark.sql.streaming import DataStreamWriter

from penstock import state

CUSTOMERS, ROUNDS = 1000, 3


def main() -> None:
    spark = start_spark()
    totals: dict[int, int] = {}
    with TemporaryDirectory() as name:
        folder = Path(name)
        checkpoint = f"{folder}/checkpoint"

        def add_orders() -> None:
            """Write a file with an order of each customer."""
            spark.range(CUSTOMERS).selectExpr("id AS customer").write.mode("append").parquet(f"{folder}/orders")

        def collect(updates: DataFrame, _: int) -> None:
            totals.update({row.customer: row["count"] for row in updates.collect()})

        def writer() -> DataStreamWriter:
            orders = spark.readStream.schema("customer long").parquet(f"{folder}/orders")
            counts = orders.groupBy("customer").count()
            return counts.writeStream.outputMode("update").trigger(availableNow=True).foreachBatch(collect)

        def report(title: str) -> None:
            inspection = state.inspect(checkpoint, count=True, spark=spark)
            keys = list(inspection.stores[0].rows)
            print(f"{title}: {inspection.max_parallelism} key groups with {keys} keys, {sum(totals.values())} orders")

        add_orders()
        state.start_query(writer(), checkpoint, config={"pipeline.max-parallelism": 4}, spark=spark).awaitTermination()
        report("First start with 4")

        add_orders()
        spark.conf.set("spark.sql.shuffle.partitions", 8)
        writer().option("checkpointLocation", checkpoint).start().awaitTermination()
        report("Plain Spark, set to 8")

        started = time.perf_counter()
        rescale = state.rescale(checkpoint, 8, spark=spark)
        assert rescale is not None
        seconds = time.perf_counter() - started
        print(f"state.rescale: from {rescale.old} to {rescale.new} key groups in {seconds:.1f} s")

        add_orders()
        state.start_query(writer(), checkpoint, spark=spark).awaitTermination()
        report("Started again")
        assert set(totals.values()) == {ROUNDS}
    spark.stop()


if __name__ == "__main__":
    main()
