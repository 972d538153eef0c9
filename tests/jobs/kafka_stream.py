"""Reads a topic until it is killed: brokers, topic, checkpoint, and the folder to write to."""

from __future__ import annotations

import os
import sys

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

from pyspark.sql import SparkSession

from penstock.connectors.kafka.streaming import KafkaFormat

servers, topic, checkpoint, out = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.log.level", "ERROR").getOrCreate()
spark.dataSource.register(KafkaFormat)
stream = spark.readStream.format("penstock_kafka").option("kafka.bootstrap.servers", servers)
stream = stream.option("subscribe", topic).option("startingOffsets", "earliest").option("scan.batch-interval", "10 s")
writer = stream.load().writeStream.format("parquet").option("checkpointLocation", checkpoint)
writer.start(out).awaitTermination()
