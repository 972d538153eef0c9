"""The user's Python functions in the worker of DuckDB: the rows, errors and side effects are those of plain Spark."""

from __future__ import annotations

import datetime as dt
import math
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal, getcontext
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext
from pyspark.sql import functions as F
from pyspark.util import PythonEvalType

from penstock import Environment
from penstock.duckdb.worker.functions import PYSPARK
from penstock.errors import JobError
from penstock.spark.plans.dataframes import with_settings
from tests.support.equality import assert_same_rows
from tests.support.native import compute_all_natively

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

pytestmark = [
    pytest.mark.filterwarnings("ignore:In Python 3.6"),  # the functions have no type hints
    pytest.mark.filterwarnings("ignore:It is preferred to specify type hints"),
]

COUNT = 24_000
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "flag": (pa.bool_(), [True, False, None]),
    "tiny": (pa.int8(), [-128, 127, 0, None]),
    "small": (pa.int16(), [-32768, 32767, None]),
    "number": (pa.int32(), [-(2**31), 2**31 - 1, 0, 7, None]),
    "big": (pa.int64(), [-(2**63), 0, 2**53 + 1, 2**62, None]),
    "single": (pa.float32(), [0.1, -0.0, math.nan, math.inf, None]),
    "double": (pa.float64(), [0.1, -0.0, math.nan, -math.inf, 1e300, None]),
    "text": (pa.string(), ["", "a", "Straße", "\U0001f600", "e\u0301", " x ", None]),
    "price": (pa.decimal128(10, 2), [Decimal("-0.01"), Decimal("12345678.90"), None]),
    "huge": (pa.decimal128(38, 4), [Decimal("9" * 34 + ".9999"), Decimal("0.0000"), None]),
    "day": (pa.date32(), [dt.date(1, 1, 1), dt.date(1582, 10, 15), dt.date(2026, 2, 28), dt.date(9999, 12, 31), None]),
    "instant": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(2026, 3, 29, 0, 59, 59, 999999, dt.UTC), dt.datetime(1901, 1, 1, tzinfo=dt.UTC), None],
    ),
    "local": (pa.timestamp("us"), [dt.datetime(2026, 3, 29, 2, 30), dt.datetime(1901, 1, 1), None]),
}
"""Columns of the table with special values of each type."""
ROWS, BYTES = (f"spark.sql.execution.arrow.max{name}PerBatch" for name in ("Records", "Bytes"))
MANY_STEPS = {"execution.batch.adaptive.whole-query-threshold": 0, "scan.parallelism": 2}


@pytest.fixture(autouse=True)
def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    compute_all_natively(monkeypatch)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    columns = {
        name: pa.array([values[i * 7 % len(values)] for i in range(COUNT)], arrow_type)
        for name, (arrow_type, values) in VALUES.items()
    }
    path = tmp_path_factory.mktemp("functions")
    table = pa.table({"id": pa.array(range(COUNT), pa.int64()), **columns})
    for number in range(2):
        pq.write_table(table.slice(number * COUNT // 2, COUNT // 2), path / f"{number}.parquet", row_group_size=5_000)
    return path


@pytest.fixture
def rows(spark: SparkSession, folder: Path) -> DataFrame:
    if spark.version < ".".join(map(str, PYSPARK)):
        pytest.skip("a worker of an older PySpark")
    return spark.read.parquet(str(folder))


def native_calls(df: DataFrame, **config: object) -> list[str]:
    """Compare the rows of a query with plain Spark; return what computed the steps that read files."""
    env = Environment(df.sparkSession, config=MANY_STEPS | config, progress=False)
    assert_same_rows(env.collect(df), df.collect())
    return chosen(env)


def chosen(env: Environment) -> list[str]:
    assert env.last_job is not None
    decisions = env.last_job.decisions
    failed = [decision.outcome["because"] for decision in decisions if "because" in decision.outcome]
    assert failed == []
    return [
        str(decision.chosen)
        for decision in decisions
        if decision.kind == "native" and "in one task" not in str(decision.chosen)
    ]


def pandas_same(kind: str) -> Any:
    return F.pandas_udf(lambda values: values, kind, PythonEvalType.SQL_SCALAR_PANDAS_UDF)


def arrow_same(kind: str) -> Any:
    return F.arrow_udf(lambda values: values, kind, PythonEvalType.SQL_SCALAR_ARROW_UDF)


def python_same(kind: str) -> Any:
    return F.udf(lambda value: value, kind, useArrow=True)


KINDS: dict[str, Callable[[str], Any]] = {"pandas": pandas_same, "Arrow": arrow_same, "Python": python_same}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sample(3)
def test_values_of_each_type(rows: DataFrame, kind: str, name: str) -> None:
    column_type = dict(rows.dtypes)[name]
    result = KINDS[kind](column_type)(name).alias("result")
    df = rows.select(result, "id").groupBy("result").agg(F.count("*"), F.sum("id"))
    if kind == "pandas" and name == "day":  # pandas has no such days
        df = df.where("result > DATE '2000-01-01'")
    assert native_calls(df) == ["DuckDB"]


def batches_of(function: Callable[[Any], Any]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def mapped(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield function(batch)

    return mapped


def in_uneven_batches(values: Iterator[pd.Series]) -> Iterator[pd.Series]:
    for series in values:
        yield series[:7] + 1
        yield series[7:] + 1


def with_partition(values: pd.Series) -> pd.Series:
    context = TaskContext.get()
    assert context is not None
    return values * 0 + context.partitionId()


def names(**values: Any) -> Any:
    """Return a column with the names of the arguments, in the order in which the function gets them."""
    return F.udf(lambda **called: ",".join(called), "string", useArrow=True)(**values)  # type: ignore[call-arg]


QUERIES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "a condition on a result": lambda df: df.where(pandas_same("int")("number") > 3).groupBy("number").count(),
    "a condition below": lambda df: (
        df.where("number > 3").select(python_same("int")("number").alias("r")).groupBy("r").count()
    ),
    "other columns of the row": lambda df: (
        df.withColumn("r", arrow_same("string")("text")).groupBy("r", "text", "number").count()
    ),
    "computed arguments": lambda df: (
        df.select(pandas_same("bigint")(F.col("id") % 5 + 1).alias("r")).groupBy("r").count()
    ),
    "two functions of a kind": lambda df: (
        df.select(pandas_same("int")("number").alias("a"), pandas_same("string")("text").alias("b"))
        .groupBy("a", "b")
        .count()
    ),
    "a function of a function": lambda df: (
        df.select(python_same("int")(python_same("int")("number")).alias("r")).groupBy("r").count()
    ),
    "functions of two kinds": lambda df: (
        df.select(arrow_same("int")(pandas_same("int")("number")).alias("r")).groupBy("r").count()
    ),
    "the same argument twice": lambda df: (
        df.select(
            F.pandas_udf(lambda a, b: a + b, "bigint", PythonEvalType.SQL_SCALAR_PANDAS_UDF)("id", "id").alias("r")
        )
        .groupBy()
        .sum("r")
    ),
    "arguments by name, in the order of the call": lambda df: (
        df.select(names(b=F.col("text"), alpha=F.lit(1), zeta=F.col("id")).alias("r")).groupBy("r").count()
    ),
    "an iterator with other batches": lambda df: (
        df.select(
            "id", F.pandas_udf(in_uneven_batches, "bigint", PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF)("id").alias("r")
        )
        .groupBy((F.col("r") - F.col("id")).alias("difference"))
        .count()
    ),
    "mapInArrow": lambda df: (
        df.select("id", "text")
        .mapInArrow(batches_of(lambda batch: batch.filter(pc.greater(batch["id"], 9))), "id bigint, text string")
        .groupBy("text")
        .sum("id")
    ),
    "large strings": lambda df: (
        df.select("text")
        .mapInArrow(
            batches_of(lambda batch: pa.record_batch([batch["text"].cast(pa.large_string())], ["text"])), "text string"
        )
        .groupBy("text")
        .count()
    ),
    "ten functions of each other": lambda df: (
        reduce(
            lambda rows, _: rows.select(
                F.pandas_udf(in_uneven_batches, "bigint", PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF)("id").alias("id")
            ),
            range(10),
            df,
        )
        .groupBy(F.col("id") % 7)
        .count()
    ),
    "mapInPandas": lambda df: (
        df.select("id", "text")
        .mapInPandas(batches_of(lambda frame: pd.concat([frame, frame])), "id bigint, text string")
        .groupBy("text")
        .sum("id")
    ),
    "no rows": lambda df: df.where("id < 0").select(pandas_same("int")("number").alias("r")).groupBy("r").count(),
    "a repeated query": lambda df: (
        df.join(df.select(pandas_same("bigint")("id").alias("id"), F.lit(1).alias("one")).distinct(), "id")
        .groupBy("one")
        .count()
    ),
}


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.sample(4)
def test_rows_are_those_of_spark(rows: DataFrame, name: str) -> None:
    assert "DuckDB" in native_calls(QUERIES[name](rows))


DECLINED: dict[str, tuple[Callable[[], Column], str]] = {
    "no Arrow": (lambda: F.udf(lambda v: v, "int", useArrow=False)("number"), "BatchEvalPython"),
    "not deterministic": (
        lambda: F.udf(lambda v: v, "int", useArrow=True).asNondeterministic()("number"),
        "not deterministic",
    ),
    "no argument": (lambda: F.udf(lambda: 7, "int", useArrow=True)(), "without arguments"),
    "a nested type": (lambda: F.size(F.udf(lambda v: [v], "array<int>", useArrow=True)("number")), "array<int>"),
}


@pytest.mark.parametrize("case", DECLINED)
def test_other_functions_are_called_by_spark(rows: DataFrame, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call, reason = DECLINED[case]
    df = rows.withColumn("r", call()).groupBy("r").agg(F.sum("id"))
    monkeypatch.undo()
    monkeypatch.setattr("penstock.duckdb.part_facts.MIN_VALUES", 0)
    env = Environment(df.sparkSession, config=MANY_STEPS | {"execution.native": True}, progress=False)
    assert_same_rows(env.collect(df), df.collect())
    assert env.last_job is not None
    reasons = [decision.reason for decision in env.last_job.decisions if decision.kind == "native"]
    assert any(reason in text for text in reasons), reasons


@pytest.mark.parametrize(
    ("option", "is_local", "expected"),
    [(False, True, []), (None, True, ["DuckDB"]), (None, False, []), (True, False, ["DuckDB"])],
)
@pytest.mark.sample(2)
def test_when_functions_are_called_by_duckdb(
    rows: DataFrame, monkeypatch: pytest.MonkeyPatch, option: bool | None, is_local: bool, expected: list[str]
) -> None:
    monkeypatch.setattr("penstock.spark.run.jobs.is_local", lambda _: is_local)
    df = rows.select(pandas_same("int")("number").alias("r")).groupBy("r").count()
    config = {} if option is None else {"execution.native": option}
    assert native_calls(df, **config) == expected


def test_without_the_option_spark_computes_steps_without_functions(rows: DataFrame) -> None:
    assert native_calls(rows.groupBy("number").count()) == []


def test_broadcast_variables_and_accumulators(spark: SparkSession, rows: DataFrame) -> None:
    offset, calls = spark.sparkContext.broadcast([5]), spark.sparkContext.accumulator(0)

    def shifted(value: int) -> int:
        calls.add(1)
        return value + offset.value[0]

    df = rows.select(F.udf(shifted, "bigint", useArrow=True)("id").alias("r")).groupBy().sum("r")
    env = Environment(spark, config=MANY_STEPS, progress=False)
    assert env.collect(df)[0][0] == sum(range(COUNT)) + 5 * COUNT
    assert chosen(env) == ["DuckDB"]
    assert calls.value == COUNT


def test_functions_see_their_task(spark: SparkSession, rows: DataFrame) -> None:
    partition = F.pandas_udf(with_partition, "bigint", PythonEvalType.SQL_SCALAR_PANDAS_UDF)
    env = Environment(spark, config=MANY_STEPS, progress=False)
    assert sorted(env.collect(rows.select(partition("id").alias("r")).distinct())) == [(0,), (1,)]
    assert chosen(env) == ["DuckDB"]


def test_functions_run_in_the_main_thread_and_keep_its_state(spark: SparkSession, rows: DataFrame) -> None:
    """State of the thread, such as the precision of decimals, lasts from a batch to the next."""

    def states(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        getcontext().prec = 50
        for batch in batches:
            is_main = threading.current_thread() is threading.main_thread()
            yield pd.DataFrame({"state": [f"{is_main} {getcontext().prec}"] * len(batch)})

    env = Environment(spark, config=MANY_STEPS, progress=False)
    df = rows.select("id").mapInPandas(states, "state string").groupBy("state").count()
    assert env.collect(df) == [("True 50", COUNT)]
    assert chosen(env) == ["DuckDB"]


@pytest.mark.parametrize(
    ("settings", "largest"),
    [({ROWS: "1000"}, 1000), ({BYTES: "8000"}, 984), ({ROWS: "20000", BYTES: "1g"}, 12_000)],
)
@pytest.mark.sample(1)
def test_batches_have_the_size_that_the_user_sets(
    spark: SparkSession, rows: DataFrame, settings: dict[str, str], largest: int
) -> None:
    size = F.pandas_udf(lambda ids: ids * 0 + len(ids), "bigint", PythonEvalType.SQL_SCALAR_PANDAS_UDF)
    df = rows.select(size("id").alias("size")).groupBy().max("size")
    env = Environment(spark, config=MANY_STEPS, progress=False)
    with with_settings(spark, settings):
        assert env.collect(df) == [(largest,)]
    assert chosen(env) == ["DuckDB"]


def test_functions_are_called_for_rows_that_a_join_drops(spark: SparkSession, rows: DataFrame) -> None:
    calls = spark.sparkContext.accumulator(0)

    def counted(value: int) -> int:
        calls.add(1)
        return value

    called = rows.select(F.udf(counted, "bigint", useArrow=True)("id").alias("id"), "number")
    dropped = rows.where("text = 'no such text'").select("id")
    env = Environment(spark, config=MANY_STEPS | {"execution.native": True}, progress=False)
    assert env.collect(called.join(F.broadcast(dropped), "id").groupBy("number").count()) == []
    assert calls.value % COUNT == 0  # for none, or for all, also if Spark repeats the stage


@pytest.mark.parametrize("text", ["this unit is not supported", "No module named 'pyarrow'"])
@pytest.mark.sample(1)
def test_the_error_of_a_function_is_no_failure_of_duckdb(
    rows: DataFrame, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    def fails(values: Any) -> Any:
        raise ModuleNotFoundError(text)

    call = F.pandas_udf(fails, "bigint", PythonEvalType.SQL_SCALAR_PANDAS_UDF)
    env = Environment(rows.sparkSession, config=MANY_STEPS, progress=False)
    with pytest.raises(JobError):
        env.collect(rows.select(call("id").alias("r")).groupBy("r").count())
    assert "a Python function raised ModuleNotFoundError" in caplog.text
    assert text not in caplog.text
    assert native_calls(rows.select(pandas_same("int")("number").alias("r")).groupBy("r").count()) == ["DuckDB"]


FAILURES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "an error": (lambda values: values.no_such_method(), "no_such_method"),
    "too few values": (lambda values: values[1:], "RESULT_ROWS_MISMATCH|length|rows"),
    "values of another type": (lambda values: values.astype(str) + "x", "x"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_errors_are_those_of_spark(rows: DataFrame, case: str) -> None:
    function, message = FAILURES[case]
    call = F.pandas_udf(function, "bigint", PythonEvalType.SQL_SCALAR_PANDAS_UDF)
    df = rows.select(call("id").alias("r")).groupBy("r").count()
    with pytest.raises(Exception, match=message) as expected:
        df.collect()
    env = Environment(df.sparkSession, config=MANY_STEPS, progress=False)
    with pytest.raises(JobError) as error:
        env.collect(df)
    cause = error.value.__cause__
    assert type(cause) is type(expected.value)
    assert str(cause).splitlines()[-1] == str(expected.value).splitlines()[-1]


@pytest.mark.parametrize("zone", ["UTC", "America/St_Johns"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sample(1)
def test_functions_see_times_in_the_zone_of_the_session(rows: DataFrame, kind: str, zone: str) -> None:
    def text_of(value: Any) -> Any:
        return str(value)

    calls = {
        "pandas": F.pandas_udf(lambda values: values.map(text_of), "string", PythonEvalType.SQL_SCALAR_PANDAS_UDF),
        "Arrow": F.arrow_udf(
            lambda values: pa.array([str(values.type)] * len(values)), "string", PythonEvalType.SQL_SCALAR_ARROW_UDF
        ),
        "Python": F.udf(text_of, "string", useArrow=True),
    }
    rows.sparkSession.conf.set("spark.sql.session.timeZone", zone)
    try:
        df = rows.select(calls[kind]("instant").alias("a"), calls[kind]("local").alias("b")).groupBy("a", "b").count()
        assert native_calls(df) == ["DuckDB"]
    finally:
        rows.sparkSession.conf.unset("spark.sql.session.timeZone")
