"""Create an archive of the classes that Spark loads, which halves the start-up time of the tests' Spark processes.

It is a dynamic archive of the JVM (JEP 350). The JVM ignores it if the release of Java or Spark differs.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.services import CLASS_ARCHIVE, SHORT_LIVED_JAVA_OPTIONS

QUERIES = ("1", "3", "13")
"""Numbers of TPC-H queries: a scan with an aggregate, joins, an outer join."""


def run_queries(data: Path) -> None:
    """Run the queries with plain Spark and with Penstock."""
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
    """Run the queries in a new process, whose JVM writes the archive at exit."""
    if CLASS_ARCHIVE.exists():
        return
    print(f"Creating an archive of Spark's classes: {CLASS_ARCHIVE.name}")
    archive = CLASS_ARCHIVE.with_suffix(f".{os.getpid()}")
    options = f"{SHORT_LIVED_JAVA_OPTIONS} -XX:ArchiveClassesAtExit={archive} -Xlog:cds*=off"
    command = [sys.executable, "-m", "tools.class_archive", str(data), "--run"]
    environ = os.environ | {"SPARK_SUBMIT_OPTS": options}
    # The JVM outlives the Python process, and closes its output only after writing the archive.
    completed = subprocess.run(command, check=False, env=environ, capture_output=True)
    if not archive.exists():
        error = completed.stderr.decode()
        print(f"The JVM wrote no archive; tests run without it, and take longer:\n{error}", file=sys.stderr)
        return
    archive.rename(CLASS_ARCHIVE)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    if sys.argv[2:] == ["--run"]:
        run_queries(folder)
    else:
        make_archive(folder)
