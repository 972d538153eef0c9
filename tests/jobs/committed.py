"""Writes numbers to two folders and a Delta table, and dies, with its JVM, at a step of the commit; run by tests.

Arguments: a folder, and a name of a step and how often it happens before the end, such as move_to:2; or no.
"""

import os
import signal
import sys

folder, dies = sys.argv[1:]
os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

from penstock import Environment
from penstock.connectors import DeltaSink, FileSink
from penstock.spark.filesystem import Folder

if dies != "no":
    name, _, count = dies.partition(":")
    original, left = getattr(Folder, name), [int(count)]

    def last(*args, **kwargs):
        result = original(*args, **kwargs)
        left[0] -= 1
        if left[0] == 0:
            os.killpg(os.getpgrp(), signal.SIGKILL)
        return result

    setattr(Folder, name, last)

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
env = Environment(builder.getOrCreate(), progress=False)
rows = env.spark.range(0, 1000, 1, 4).selectExpr("id", "id % 3 as p")
env.write(rows, FileSink(f"{folder}/whole", mode="overwrite"))
env.write(rows, FileSink(f"{folder}/parts", mode="append", partition_by=["p"], token="t"))
env.write(rows, DeltaSink(f"{folder}/delta", token="t"))
env.execute("committed")
