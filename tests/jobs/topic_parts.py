"""A job that writes records to a topic by four parts, and dies with its JVM when two of them are there, or does not.

Arguments: the brokers, the topic, an empty folder for the warehouse, and die or live.
"""

import os
import signal
import sys

servers, topic, folder, what = sys.argv[1:]
os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

from penstock import Environment
from penstock.connectors import KafkaSink
from penstock.connectors.kafka import parts

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.log.level", "OFF")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.warehouse.dir", folder)
    .getOrCreate()
)
plainly = parts.write_parts


def some(bridge, place, staging, files):
    """Write two parts, and die."""
    assert len(files) == 4
    plainly(bridge, place, staging, files[:2])
    os.killpg(0, signal.SIGKILL)


if what == "die":
    parts.write_parts = some
env = Environment(spark, config={"execution.batch.adaptive.whole-query-threshold": 0}, progress=False)
rows = spark.range(0, 1000, 1, 4).selectExpr("cast(id as string) as value")
env.write(rows, KafkaSink(servers, topic, token="day", transactions=4))
env.execute()
