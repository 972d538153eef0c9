"""A job that writes records to a topic in four parts; with "die" it is killed after two parts.

Arguments: the brokers, the topic, an empty folder for the warehouse, and die or live.
"""

import os
import signal
import sys

servers, topic, folder, action = sys.argv[1:]
os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

from penstock import Environment
from penstock.connectors import KafkaSink
from penstock.connectors.kafka import commit as parts

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.log.level", "OFF")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.warehouse.dir", folder)
    .getOrCreate()
)
original = parts.write_parts


def write_two_parts(bridge, destination, staging, files):
    """Write two parts, and die."""
    assert len(files) == 4
    original(bridge, destination, staging, files[:2])
    os.killpg(0, signal.SIGKILL)


if action == "die":
    parts.write_parts = write_two_parts
env = Environment(spark, config={"execution.batch.adaptive.whole-query-threshold": 0}, progress=False)
rows = spark.range(0, 1000, 1, 4).selectExpr("cast(id as string) as value")
env.write(rows, KafkaSink(servers, topic, token="day", transactions=4))
env.execute()
