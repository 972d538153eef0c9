"""What a client of bench/connect.py runs; it needs PySpark's thin client only.

It says "ready", waits for a line, and then prints a line for each query that has ended: its name, its seconds, and a hash of its rows.
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


def hash_of(rows: list) -> str:
    """Return a hash of rows in any order."""
    return hashlib.sha256("\n".join(comparable(rows)).encode()).hexdigest()[:16]


def from_file(spark: SparkSession, arguments: argparse.Namespace) -> Iterator[tuple[str, DataFrame]]:
    for file in sorted(arguments.data.glob("*.parquet")):
        spark.read.parquet(str(file)).createOrReplaceTempView(file.stem)
    texts = json.loads((arguments.data.parent / "queries" / f"{arguments.data.name.split('-')[0]}.json").read_text())
    for name in arguments.names.split(","):
        yield name, spark.sql(texts[name])


def small(spark: SparkSession, arguments: argparse.Namespace) -> Iterator[tuple[str, DataFrame]]:
    """Queries that are alike but for a number, so that Spark generates code for each."""
    spark.conf.set("spark.penstock.execution.batch.adaptive.whole-query-threshold", "0")
    for number in range(arguments.small):
        few = spark.range(1000).withColumn("k", F.col("id") % 7 + number)
        yield str(number), few.groupBy("k").agg(F.sum(F.col("id") + number).alias("s")).orderBy("k")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address")
    parser.add_argument("--data", type=Path, help="a folder of parquet files; queries lie in its neighbour 'queries'")
    parser.add_argument("--names", help="of the queries, in their order, with commas between them")
    parser.add_argument("--small", type=int, help="run so many small queries instead")
    arguments = parser.parse_args()
    spark = SparkSession.builder.remote(arguments.address).getOrCreate()
    queries = small(spark, arguments) if arguments.small else from_file(spark, arguments)
    spark.range(1).collect()
    print(json.dumps("ready"), flush=True)
    sys.stdin.readline()
    started = time.monotonic()
    for name, df in queries:
        rows = df.collect()
        ended = time.monotonic()
        print(json.dumps([name, ended - started, hash_of(rows)]), flush=True)
        started = ended


if __name__ == "__main__":
    main()
