"""Copies numbers into a table of a database, and may exit around the commit; run by tests of faults.

Arguments: the JDBC URL, user, password, driver, jars, the table, a token, and when to exit relative to the commit: no,
before or after.
"""

import os
import sys

url, user, password, driver, jars, table, token, exit_time = sys.argv[1:]
os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

from penstock import Environment
from penstock.connectors import JdbcSink
from penstock.spark.io.jdbc import JdbcConnection

commit = JdbcConnection.commit


def commit_and_exit(connection):
    if exit_time == "before":
        os._exit(9)
    commit(connection)
    if exit_time == "after":
        os._exit(9)


JdbcConnection.commit = commit_and_exit
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.jars", jars)
env = Environment(builder.config("spark.log.level", "ERROR").getOrCreate(), progress=False)
numbers = env.spark.range(0, 2000, 1, 4).selectExpr("cast(id as int) as id", "id * 2 as v")
env.write(numbers, JdbcSink(url, table, {"user": user, "password": password, "driver": driver}, token=token))
env.execute("copy")
