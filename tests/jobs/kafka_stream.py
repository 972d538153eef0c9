"""Reads a topic until it is killed: brokers, topic, checkpoint, the folder to write to, and offsets of the partitions.

A batch with a record at or after these offsets takes seconds, so that it can be killed before it ends.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.connectors.kafka.streaming import KafkaFormat

servers, topic, checkpoint, out, *late_offsets = sys.argv[1:]


def delay_late(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        records = zip(batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True)
        if any(offset >= int(late_offsets[partition]) for partition, offset in records):
            time.sleep(5)
        yield batch


builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.log.level", "ERROR").getOrCreate()
spark.dataSource.register(KafkaFormat)
stream = spark.readStream.format("penstock_kafka").option("kafka.bootstrap.servers", servers)
stream = stream.option("subscribe", topic).option("startingOffsets", "earliest").option("scan.batch-interval", "10 s")
rows = stream.load()
writer = rows.mapInArrow(delay_late, rows.schema).writeStream.format("parquet").option("checkpointLocation", checkpoint)
writer.start(out).awaitTermination()
