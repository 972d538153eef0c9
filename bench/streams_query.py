"""Query process of bench/streams.py: reads a topic, hashes each record, and writes Parquet until it is killed."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import InputPartition

from penstock.connectors.kafka.streaming import KafkaFormat, KafkaStreamReader
from penstock.state import start_query


class PartitionPerTaskReader(KafkaStreamReader):
    """Plans a task for each partition, as Spark's own source does."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        by_partition: dict[int, list[Any]] = {}
        for task in super().partitions(start, end):
            for offsets in task.value:
                by_partition.setdefault(offsets.partition, []).append(offsets)
        return [InputPartition(sorted(ranges)) for ranges in by_partition.values()]


class PerPartitionFormat(KafkaFormat):
    """The Kafka format with a task for each partition."""

    def streamReader(self, schema: Any) -> Any:
        reader = super().streamReader(schema)
        reader.__class__ = PartitionPerTaskReader
        return reader


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("servers")
    parser.add_argument("topic")
    parser.add_argument("folder")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--trigger", required=True, help="interval of the trigger")
    parser.add_argument("--limit", help="maxOffsetsPerTrigger; without it Penstock decides")
    parser.add_argument("--per-partition", action="store_true", help="a task for each partition")
    parser.add_argument("--work", type=int, required=True, help="number of hashes per record")
    arguments = parser.parse_args()
    builder = SparkSession.builder.master(f"local[{arguments.cores}]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.log.level", "ERROR").config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.dataSource.register(PerPartitionFormat if arguments.per_partition else KafkaFormat)
    reader = spark.readStream.format("penstock_kafka").option("kafka.bootstrap.servers", arguments.servers)
    reader = reader.option("subscribe", arguments.topic).option("startingOffsets", "earliest")
    if arguments.limit is None:
        reader = reader.option("scan.batch-interval", arguments.trigger)
    else:
        reader = reader.option("maxOffsetsPerTrigger", arguments.limit)
    hashed = F.col("value").cast("string")
    for _ in range(arguments.work):
        hashed = F.sha2(F.repeat(hashed, 20), 512)
    rows = reader.load().select("partition", "offset", hashed.alias("hash"))
    writer = rows.writeStream.format("parquet").trigger(processingTime=arguments.trigger)
    writer = writer.option("path", f"{arguments.folder}/out")
    start_query(writer, f"{arguments.folder}/checkpoint").awaitTermination()


if __name__ == "__main__":
    main()
