"""Compare five kinds of Python functions over TPC-H's lineitem on Spark with Arrow, and on Penstock without and with DuckDB.

Each query reads the table, filters it, calls a function for the remaining rows, and aggregates the results.
`compare.py` measures them. A table and a chart are written to bench/results.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from compare import Query, add_arguments, bench_of
from comparison_table import chart, table

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

SYSTEMS_COMPARED = ("spark", "steps", "penstock")


def recent(spark: SparkSession) -> DataFrame:
    """Return the rows that the functions get: about two thirds of the table."""
    return spark.table("lineitem").where("l_shipdate >= DATE '1994-06-01'")


def pandas_function(spark: SparkSession) -> DataFrame:
    """Return the number of rows and the largest days of delay by ship mode; a pandas function computes the days."""

    def delay(received: pd.Series, committed: pd.Series) -> pd.Series:
        return (received - committed).clip(lower=0)

    days = F.pandas_udf(delay, "int", F.PandasUDFType.SCALAR)(F.unix_date("l_receiptdate"), F.unix_date("l_commitdate"))
    rows = recent(spark).select("l_shipmode", days.alias("days"))
    return rows.groupBy("l_shipmode").agg(F.count("*").alias("rows"), F.sum("days").alias("days"), F.max("days"))


def arrow_function(spark: SparkSession) -> DataFrame:
    """Return the number of rows by the first word of the comment; an Arrow function finds the word."""
    from pyspark.util import PythonEvalType

    def first_word(comments: pa.Array) -> pa.Array:
        import pyarrow.compute as pc

        return pc.struct_field(pc.extract_regex(comments, "^(?P<word>[a-z]*)"), "word")

    word = F.arrow_udf(first_word, "string", PythonEvalType.SQL_SCALAR_ARROW_UDF)("l_comment")
    return recent(spark).select(word.alias("word"), "l_quantity").groupBy("word").agg(F.sum("l_quantity"))


def plain_function(spark: SparkSession) -> DataFrame:
    """Return the number of rows by class of part; a plain Python function computes the class of each row."""

    def group(part: int) -> int:
        return part % 97

    rows = recent(spark).select(F.udf(group, "int", useArrow=True)("l_partkey").alias("class"), "l_quantity")
    return rows.groupBy("class").agg(F.count("*").alias("rows"), F.sum("l_quantity"))


def map_in_arrow(spark: SparkSession) -> DataFrame:
    """Return the quantity by ship mode of the rows that a function selects from Arrow batches."""

    def heavy(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow.compute as pc

        for batch in batches:
            yield batch.filter(pc.greater(pc.multiply(batch["l_linenumber"], 7), 10))

    rows = recent(spark).select("l_shipmode", F.col("l_linenumber").cast("bigint"), "l_quantity")
    return rows.mapInArrow(heavy, rows.schema).groupBy("l_shipmode").agg(F.sum("l_quantity"), F.count("*"))


def map_in_pandas(spark: SparkSession) -> DataFrame:
    """Return the number of rows by ship mode and line; a function transforms pandas frames."""

    def numbered(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield frame.assign(line=frame["line"] * 2 + frame["part"] % 2)

    rows = recent(spark).selectExpr("l_suppkey AS part", "CAST(l_linenumber AS bigint) AS line")
    return rows.mapInPandas(numbered, "part bigint, line bigint").groupBy("line").agg(F.count("*"), F.max("part"))


QUERIES: dict[str, Callable[[SparkSession], DataFrame]] = {
    "pandas function": pandas_function,
    "Arrow function": arrow_function,
    "plain function": plain_function,
    "mapInArrow": map_in_arrow,
    "mapInPandas": map_in_pandas,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder with TPC-H's tables, such as data/tpch-10")
    add_arguments(parser)
    arguments = parser.parse_args()
    bench = bench_of(arguments, arguments.data, SYSTEMS_COMPARED)
    queries = {name: Query(query) for name, query in QUERIES.items()}
    saved = arguments.output / "python-functions.json"
    times = bench.measure(queries, arguments.rounds, saved, resume=arguments.resume)
    about = f"lineitem of {arguments.data.name}"
    print(bench.write(arguments.output, saved.stem, about, times, table))
    chart(times, saved.stem, arguments.output / f"{saved.stem}.png")


if __name__ == "__main__":
    main()
