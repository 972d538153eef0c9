"""Python functions that generated pipelines call by name. Import this module after starting a Spark session."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pandas as pd
from pyspark import TaskContext, cloudpickle
from pyspark.sql import functions as F

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers may not find this package

plus = F.udf(lambda x: None if x is None else x + 1, "bigint")
plus_arrow = F.udf(lambda x: None if x is None else x + 1, "bigint", useArrow=True)
shout = F.udf(lambda s: None if s is None else s.upper() + "!", "string")
is_odd = F.udf(lambda x: x is not None and x % 2 == 1, "boolean")
pair = F.udf(lambda x: None if x is None else (x % 3, f"p{x % 5}"), "struct<a:int,b:string>")
local_property = F.udf(lambda x: (TaskContext.get().getLocalProperty("generated.word") or "none") + str(x), "string")


def _picky(x):
    if x is not None and x % 50 == 49:
        raise ValueError("picky does not like it")
    return x


picky = F.udf(_picky, "bigint")


@F.pandas_udf("bigint")
def twice(x: pd.Series) -> pd.Series:
    return x.astype("Int64") * 2


@F.pandas_udf("boolean")
def is_even(x: pd.Series) -> pd.Series:
    return x.fillna(1) % 2 == 0


@F.pandas_udf("bigint")
def thrice(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
    for batch in batches:
        yield batch.astype("Int64") * 3


@F.pandas_udf("bigint")
def spread_of(x: pd.Series) -> int:
    values = x.dropna()
    return int(values.max() - values.min()) if len(values) else 0


if hasattr(F, "arrow_udf"):  # from Spark 4.1 on
    import pyarrow.compute as pc

    negated = F.arrow_udf(lambda x: pc.negate(x), "bigint")
else:
    negated = plus_arrow


def same(batches):
    """Return the rows unchanged, for mapInPandas and mapInArrow."""
    yield from batches


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a row per group of (k, v): the key, the number of rows and the sum."""
    return pd.DataFrame({"k": [_whole(rows["k"].iloc[0])], "n": [len(rows)], "t": [int(rows["v"].fillna(0).sum())]})


def summary_arrow(table):
    """Return the `summary` of an Arrow table."""
    import pyarrow as pa

    rows = summary(table.to_pandas())
    return pa.table({"k": pa.array(rows["k"], pa.int64(), from_pandas=True), "n": rows["n"], "t": rows["t"]})


def meet(key, left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    """Return a row per group of two tables."""
    sums = (int(rows["v"].fillna(0).sum()) for rows in (left, right))
    return pd.DataFrame([[_whole(key[0]), len(left), len(right), sum(sums)]], columns=["k", "n", "n2", "t"])


def _whole(value):
    return None if value is None or pd.isna(value) else int(value)


_SHOWN = {
    "date": "unix_date({})",
    "timestamp": "unix_micros({})",
    "string": "if(is_valid_utf8({0}), {0}, hex({0}))",
    "timestamp_ntz": "cast({} as string)",
    "binary": "hex({})",
}
"""Expressions for values that Python cannot represent, or not fully."""


def shown(df):
    """Return a DataFrame whose values Python can represent."""
    texts = [_SHOWN.get(field.dataType.simpleString(), "{}").format(f"`{field.name}`") for field in df.schema]
    return df.selectExpr(*[f"{text} as `{field.name}`" for text, field in zip(texts, df.schema, strict=True)])


class Spread:
    """A table function that returns up to three rows per argument."""

    def eval(self, x: int):
        for i in range(0 if x is None else x % 3 + 1):
            yield i, (x or 0) + i


class SumBy:
    """A table function of a partitioned table that returns a row per partition."""

    def __init__(self):
        self.key, self.total, self.rows = None, 0, 0

    def eval(self, row):
        self.key = row["k"]
        self.total += row["v"] or 0
        self.rows += 1

    def terminate(self):
        yield self.key, self.rows, self.total


def register(spark) -> None:
    """Register the functions for SQL."""
    spark.udtf.register("spread", F.udtf(Spread, returnType="i int, y bigint"))
    spark.udtf.register("spread_arrow", F.udtf(Spread, returnType="i int, y bigint", useArrow=True))
    spark.udtf.register("sum_by", F.udtf(SumBy, returnType="k bigint, n bigint, t bigint"))
    spark.udf.register("plus_one", plus)
    spark.udf.register("twice", twice)
    spark.udf.register("spread_of", spread_of)
    spark.udf.register("odd_one", is_odd)
    spark.udf.register("picky", picky)
    spark.udf.register("any_word", F.udf(lambda x: f"w{x}", "string").asNondeterministic())
