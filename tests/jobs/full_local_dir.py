"""Shuffles more than the disk of spark.local.dir can hold, and prints the error."""

from __future__ import annotations

import logging
import sys

from pyspark.sql import SparkSession

from penstock import Environment
from penstock.errors import JobError

logging.basicConfig(level=logging.WARNING)
folder = sys.argv[1]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.local.dir", folder)
    .config("spark.ui.enabled", "false")
    .config("spark.log.level", "OFF")
    .getOrCreate()
)
env = Environment(spark, config={"execution.batch.adaptive.whole-query-threshold": 0}, progress=False)
rows = spark.range(1_000_000).selectExpr("id", "uuid() as text", "uuid() as other")
try:
    env.count(rows.repartition(4, "text").where("text != other").distinct())
except JobError as error:
    print(error)
spark.stop()
