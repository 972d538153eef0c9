"""Makes an archive of the classes that Spark loads, with which the Spark processes of tests start in half the time.

It is a dynamic archive of the JVM (JEP 350). The JVM ignores one of another release of Java or Spark.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.services import CLASSES, SHORT_LIVED_JAVA

QUERIES = ("1", "3", "13")
"""Of TPC-H: a scan with an aggregate, joins, an outer join."""


def run_queries(data: Path) -> None:
    """Run a few queries, on Spark and through Penstock."""
    from pyspark.sql import SparkSession

    from penstock import Environment

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    for file in (data / "tpch-0.1").glob("*.parquet"):
        spark.read.parquet(str(file)).createOrReplaceTempView(file.stem)
    env = Environment(spark, config={"execution.batch.adaptive.whole-query-threshold": 0}, progress=False)
    queries = json.loads((data / "queries" / "tpch.json").read_text())
    for number in QUERIES:
        spark.sql(queries[number]).collect()
        env.collect(spark.sql(queries[number]))
    spark.stop()


def make_archive(data: Path) -> None:
    """Run the queries in a process of their own, whose JVM leaves the archive when it ends."""
    if CLASSES.exists():
        return
    print(f"Making an archive of Spark's classes: {CLASSES.name}")
    new = CLASSES.with_suffix(f".{os.getpid()}")
    options = f"{SHORT_LIVED_JAVA} -XX:ArchiveClassesAtExit={new} -Xlog:cds*=off"
    command = [sys.executable, "-m", "tools.class_archive", str(data), "--run"]
    # The JVM outlives the process, and holds its output until the archive is written.
    done = subprocess.run(command, check=False, env=os.environ | {"SPARK_SUBMIT_OPTS": options}, capture_output=True)
    if not new.exists():
        print(f"There is no archive; tests run without it, and take longer:\n{done.stderr.decode()}", file=sys.stderr)
        return
    new.rename(CLASSES)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    if sys.argv[2:] == ["--run"]:
        run_queries(folder)
    else:
        make_archive(folder)
