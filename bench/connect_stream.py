"""Client process of bench/connect.py; needs only PySpark's thin client.

It prints "ready", waits for a line of input, and then prints name, seconds and row hash of each finished query.
"""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rows import comparable


def row_hash(rows: list) -> str:
    """Return a hash that does not depend on the order of the rows."""
    return hashlib.sha256("\n".join(comparable(rows)).encode()).hexdigest()[:16]


def benchmark_queries(spark: SparkSession, arguments: argparse.Namespace) -> Iterator[tuple[str, DataFrame]]:
    for file in sorted(arguments.data.glob("*.parquet")):
        spark.read.parquet(str(file)).createOrReplaceTempView(file.stem)
    texts = json.loads((arguments.data.parent / "queries" / f"{arguments.data.name.split('-')[0]}.json").read_text())
    for name in arguments.names.split(","):
        yield name, spark.sql(texts[name])


def small_queries(spark: SparkSession, arguments: argparse.Namespace) -> Iterator[tuple[str, DataFrame]]:
    """Yield queries that differ only by a number, so that Spark generates code for each."""
    spark.conf.set("spark.penstock.execution.batch.adaptive.whole-query-threshold", "0")
    for number in range(arguments.small):
        numbers = spark.range(1000).withColumn("k", F.col("id") % 7 + number)
        yield str(number), numbers.groupBy("k").agg(F.sum(F.col("id") + number).alias("s")).orderBy("k")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address")
    parser.add_argument("--data", type=Path, help="a folder of parquet files; the queries are in '../queries'")
    parser.add_argument("--names", help="names of the queries in the order of execution, separated by commas")
    parser.add_argument("--small", type=int, help="run this number of small queries instead")
    arguments = parser.parse_args()
    spark = SparkSession.builder.remote(arguments.address).getOrCreate()
    queries = small_queries(spark, arguments) if arguments.small else benchmark_queries(spark, arguments)
    spark.range(1).collect()
    print(json.dumps("ready"), flush=True)
    sys.stdin.readline()
    started = time.monotonic()
    for name, df in queries:
        rows = df.collect()
        ended = time.monotonic()
        print(json.dumps([name, ended - started, row_hash(rows)]), flush=True)
        started = ended


if __name__ == "__main__":
    main()
