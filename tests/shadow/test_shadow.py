"""Shadow mode: equal rows are reported as equal, and every injected difference is detected."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

import pytest
from pyspark.sql import functions as F

from penstock import Environment
from penstock.connectors import FileSink, Sink
from penstock.connectors.core.base import SinkJob
from penstock.errors import ConfigError, JobCancelledError, JobError, PenstockError, RowsDifferError, SinkError
from penstock.shadow.compare import error_class
from penstock.shadow.comparison import Comparison, Engine, Verdict
from penstock.shadow.sinks import ShadowedSink, ShadowedSinkJob
from penstock.spark.plans.dataframes import with_settings
from tests.spark.run.test_fingerprint import CHANGED, TYPES, table
from tests.support.equality import assert_same_rows
from tests.support.outcomes import mostly_slow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


REPORT = {"execution.shadow": "report"}


pytestmark = pytest.mark.usefixtures("interpreted", "small")


@pytest.fixture(scope="module")
def small(spark: SparkSession) -> Iterator[None]:
    with with_settings(spark, {"spark.sql.timeType.enabled": "true", "spark.sql.shuffle.partitions": "3"}):
        yield


@pytest.fixture(scope="module")
def shadow(spark: SparkSession) -> Any:
    return Environment(spark, progress=False, verify="rows")


@pytest.fixture(scope="module")
def quiet(spark: SparkSession) -> Any:
    return Environment(spark, progress=False, config=REPORT)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that changes the rows of every sink, which simulates a defect."""
    write = ShadowedSinkJob.write

    def break_by(change: Any) -> None:
        monkeypatch.setattr(ShadowedSinkJob, "write", lambda self, df: write(self, change(df)))

    return break_by


class Nowhere(Sink):
    """A sink for rows of any type that calls a function after its write and another on its commit."""

    def __init__(self, then: Any = lambda: None, commit: Any = lambda: None) -> None:
        self.then, self.commit = then, commit

    def open(self, spark: SparkSession) -> Any:
        return NowhereJob(self)


class NowhereJob(SinkJob):
    def __init__(self, sink: Any) -> None:
        self.sink = sink

    def write(self, df: DataFrame) -> None:
        df._jdf.queryExecution().toRdd().count()  # the format "noop" rejects some types
        self.sink.then()

    def commit(self) -> None:
        self.sink.commit()

    def abort(self) -> None:
        pass


def single_comparison(env: Environment) -> Comparison:
    (comparison,) = env.last_job.report.comparisons
    return comparison


def grouped(spark: SparkSession) -> Any:
    return (
        spark.range(0, 5000, 1, 3)
        .selectExpr("id % 7 as k", "id * 0.1D as d")
        .groupBy("k")
        .agg(F.sum("d").alias("d"), F.count("*").alias("n"))
    )


@pytest.mark.thorough
def test_all_actions_are_compared(shadow: Any, spark: SparkSession, tmp_path: Path) -> None:
    df = grouped(spark)
    assert_same_rows(shadow.collect(df), df.collect())
    comparison = single_comparison(shadow)
    assert (comparison.output, comparison.verdict, comparison.rows, comparison.plain_rows) == (
        "collect",
        Verdict.EQUAL,
        7,
        7,
    )
    assert comparison.seconds > 0
    assert comparison.plain_seconds > 0
    assert "test_shadow.py" in comparison.location
    assert shadow.last_job.vertices, "the query is not delegated to Spark, where it would not be compared"
    for action in (shadow.to_pandas, shadow.to_arrow):
        assert len(action(df)) == 7
        assert single_comparison(shadow).verdict is Verdict.EQUAL
    assert shadow.count(df) == 7
    assert (single_comparison(shadow).output, single_comparison(shadow).rows) == ("count", 1)
    assert_same_rows(shadow.materialize(df).collect(), df.collect())
    assert single_comparison(shadow).verdict is Verdict.EQUAL


@pytest.mark.thorough
def test_several_sinks_are_compared(shadow: Any, spark: SparkSession, tmp_path: Path) -> None:
    df = grouped(spark)
    paths = [str(tmp_path / name) for name in "ab"]
    shadow.write(df, FileSink(paths[0], partition_by=["k"], auto_compaction=True, partition_commit=["success-file"]))
    shadow.write(df.where("k > 2"), FileSink(paths[1], format="json"))
    job = shadow.execute("two")
    assert [(comparison.output, comparison.verdict, comparison.rows) for comparison in job.report.comparisons] == [
        ("a", Verdict.EQUAL, 7),
        ("b", Verdict.EQUAL, 4),
    ]
    assert spark.read.parquet(paths[0]).count() == 7
    assert (tmp_path / "a" / "k=3" / "_SUCCESS").exists()
    assert spark.read.json(paths[1]).count() == 4


def test_unchanged_rows_of_all_types_are_equal(shadow: Any, spark: SparkSession) -> None:
    shadow.write(table(spark, 0).repartition(2, "id"), Nowhere())
    shadow.execute()
    assert (single_comparison(shadow).verdict, single_comparison(shadow).rows) == (Verdict.EQUAL, 3)


@pytest.mark.thorough
def test_changes_of_all_types_are_detected(quiet: Any, spark: SparkSession, broken: Any) -> None:
    other = {name: F.expr(pair[1]) for name, pair in TYPES.items() if name in CHANGED and name != "double"}
    broken(lambda df: df.withColumns(other))
    quiet.write(table(spark, 0).repartition(2, "id"), Nowhere())
    quiet.execute()
    assert single_comparison(quiet).verdict is Verdict.DIFFERENT
    assert set(single_comparison(quiet).columns) == set(other)
    assert len(single_comparison(quiet).examples) == len(single_comparison(quiet).plain_examples) == 3


BREAKAGES = {
    "a row is lost": (lambda df: df.where("k <> 3"), "6 rows, plain Spark returns 7", 0, 1),
    "a row is doubled": (lambda df: df.union(df.where("k = 3")), "8 rows", 1, 0),
    "all rows are doubled": (lambda df: df.union(df), "every row 2 times", 5, 0),
    "a row replaced by another": (lambda df: df.where("k <> 3").union(df.where("k = 4")), "other rows", 1, 1),
    "a value": (lambda df: df.withColumn("n", F.expr("if(k = 3, n + 1, n)")), "other rows", 1, 1),
    "a null": (lambda df: df.withColumn("n", F.expr("nullif(n, 715)")), "other rows", 2, 2),
    "a double": (lambda df: df.withColumn("d", F.expr("if(k = 3, d * 1.00001D, d)")), "doubles or floats", 1, 1),
    "NaN for a double": (lambda df: df.withColumn("d", F.expr("if(k = 3, double('nan'), d)")), "other rows", 1, 1),
    "swapped doubles": (
        lambda df: df.withColumn("d", F.expr("if(k < 2, 178750.0D - 71.5D * k, d)")),
        "doubles or floats",
        2,
        2,
    ),
    "no rows": (lambda df: df.where("k < 0"), "0 rows", 0, 5),
    "another type": (lambda df: df.withColumn("n", F.col("n").cast("int")), "the columns are", 0, 0),
    "another name": (lambda df: df.withColumnRenamed("n", "m"), "the columns are", 0, 0),
}


@pytest.mark.parametrize("case", mostly_slow(BREAKAGES))
def test_an_injected_difference_is_detected(shadow: Any, spark: SparkSession, broken: Any, case: Any) -> None:
    change, reason, examples, plain_examples = BREAKAGES[case]
    broken(change)
    with pytest.raises(RowsDifferError, match="differ from plain Spark") as raised:
        shadow.collect(grouped(spark))
    comparison = single_comparison(shadow)
    assert comparison.verdict is Verdict.DIFFERENT
    assert reason in comparison.reason
    assert (len(comparison.examples), len(comparison.plain_examples)) == (examples, plain_examples)
    assert "is kept" in raised.value.hint
    assert reason in str(raised.value)
    assert shadow.last_job.state.value == "FINISHED"


EQUAL = {
    "last digits": lambda df: df.withColumn("d", F.expr("d * (1 + 1e-12D)")),
    "minus zero": lambda df: df.withColumn("d", F.expr("d + -0.0D")),
    "another order": lambda df: df.orderBy(F.desc("k")),
}


@pytest.mark.thorough
@pytest.mark.parametrize("case", EQUAL)
def test_equivalent_rows_are_equal(shadow: Any, spark: SparkSession, broken: Any, case: str) -> None:
    broken(EQUAL[case])
    assert len(shadow.collect(grouped(spark))) == 7
    assert single_comparison(shadow).verdict is Verdict.EQUAL
    assert ("doubles with a tolerance of 1e-9" in single_comparison(shadow).reason) is (case == "last digits")


@pytest.mark.thorough
def test_a_difference_is_reported_and_written_rows_remain(
    quiet: Any, shadow: Any, spark: SparkSession, broken: Any, tmp_path: Path
) -> None:
    broken(lambda df: df.where("k <> 3"))
    assert len(quiet.collect(grouped(spark))) == 6
    assert single_comparison(quiet).verdict is Verdict.DIFFERENT
    shadow.write(grouped(spark), FileSink(str(tmp_path / "out")))
    with pytest.raises(RowsDifferError):
        shadow.execute()
    assert spark.read.parquet(str(tmp_path / "out")).count() == 6
    assert single_comparison(shadow).as_dict()["rows"] == {"penstock": 6, "spark": 7}


NONDETERMINISTIC = {
    "the time": lambda spark: spark.range(9).selectExpr("id", "current_timestamp() as t"),
    "positions of rows": lambda spark: (
        spark.range(900).groupBy(F.expr("id % 300 as k")).count().select("k", F.monotonically_increasing_id())
    ),
    "a limit": lambda spark: spark.range(0, 900, 1, 5).limit(3),
    "random numbers": lambda spark: spark.range(0, 900, 1, 5).select("id", F.rand(1)),
    "a function marked so": lambda spark: spark.range(9).select(
        "id", F.udf(lambda x: x, "long").asNondeterministic()("id")
    ),
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("case", NONDETERMINISTIC)
def test_nondeterministic_rows_are_not_compared(shadow: Any, spark: SparkSession, broken: Any, case: str) -> None:
    df = NONDETERMINISTIC[case](spark)
    column = df.columns[0]
    broken(lambda df: df.withColumn(column, F.expr(f"{column} + 1")))
    assert shadow.collect(df)
    is_delegated = case == "positions of rows"  # they depend on tasks, so Spark runs the whole query
    assert single_comparison(shadow).verdict is (Verdict.BY_SPARK if is_delegated else Verdict.NOT_COMPARED)
    reasons = {"the time": "in a second run", "positions of rows": "Spark runs this query itself"}
    assert reasons.get(case, "is not deterministic") in single_comparison(shadow).reason


@pytest.mark.thorough
def test_a_sorted_limit_is_compared(quiet: Any, spark: SparkSession, broken: Any) -> None:
    broken(lambda df: df.withColumn("id", F.expr("id + 1")))
    quiet.collect(spark.range(0, 900, 1, 5).orderBy("id").limit(3))
    assert single_comparison(quiet).verdict is Verdict.DIFFERENT


def boom(value):  # type: ignore[no-untyped-def]  # Spark would use annotations
    raise KeyError(value)


SAME_ERRORS = {
    "DIVIDE_BY_ZERO": lambda spark: spark.range(9).selectExpr("1 / (id - 5)"),
    "CAST_INVALID_INPUT": lambda spark: spark.range(9).selectExpr("cast(concat('x', id) as int)"),
    "KeyError": lambda spark: spark.range(9).select(F.udf(boom, "long")("id")),
    "USER_RAISED_EXCEPTION": lambda spark: spark.range(9).select(F.raise_error(F.col("id").cast("string"))),
}


@pytest.mark.parametrize("name", SAME_ERRORS)
def test_equal_errors_are_equal_outcomes(shadow: Any, spark: SparkSession, name: str) -> None:
    with pytest.raises(JobError, match=name):
        shadow.collect(SAME_ERRORS[name](spark))
    assert (single_comparison(shadow).verdict, single_comparison(shadow).reason) == (
        Verdict.EQUAL,
        f"both raise {name}",
    )


@pytest.mark.thorough
def test_an_error_of_penstock_alone_is_a_difference(shadow: Any, spark: SparkSession, broken: Any) -> None:
    broken(lambda df: df.withColumn("n", F.expr("1 / (k - 3)")))
    with pytest.raises(RowsDifferError, match=r"Penstock raises DIVIDE_BY_ZERO.*plain Spark returns 7 rows") as raised:
        shadow.collect(grouped(spark))
    assert isinstance(raised.value.__cause__, JobError)


def test_different_errors_are_a_difference(shadow: Any, spark: SparkSession, broken: Any) -> None:
    broken(lambda df: df.select(F.raise_error(F.lit("no")).alias("x")))
    with pytest.raises(
        RowsDifferError, match=r"Penstock raises USER_RAISED_EXCEPTION.*plain Spark raises DIVIDE_BY_ZERO"
    ):
        shadow.collect(spark.range(9).selectExpr("1 / (id - 5)"))


def raises_once_there(path: Any) -> Any:
    def check(batches: Any) -> Iterator[Any]:
        if path.exists():
            raise ValueError("late")
        yield from batches

    return check


@pytest.mark.thorough
def test_an_error_of_plain_spark_alone_is_a_difference(shadow: Any, spark: SparkSession, tmp_path: Path) -> None:
    df = spark.range(9).mapInPandas(raises_once_there(tmp_path / "now"), "id long")
    shadow.write(df, Nowhere(then=(tmp_path / "now").touch))
    with pytest.raises(RowsDifferError, match="plain Spark raises ValueError, Penstock returns 9 rows"):
        shadow.execute()


@pytest.mark.thorough
def test_an_error_of_a_sink_is_not_a_difference(shadow: Any, spark: SparkSession) -> None:
    def refuse() -> Never:
        raise SinkError("the disk is full")

    for sink in (Nowhere(then=refuse), Nowhere(commit=refuse)):
        shadow.write(grouped(spark), sink)
        with pytest.raises(PenstockError, match="the disk is full"):
            shadow.execute()
        assert (single_comparison(shadow).verdict, single_comparison(shadow).rows) == (Verdict.EQUAL, 7)


@pytest.mark.thorough
def test_an_error_of_another_output_is_not_a_difference(shadow: Any, spark: SparkSession) -> None:
    shadow.write(grouped(spark), Nowhere())
    shadow.write(spark.range(9).selectExpr("1 / (id - 5)"), Nowhere())
    with pytest.raises(JobError, match="DIVIDE_BY_ZERO"):
        shadow.execute()
    good, bad = shadow.last_job.report.comparisons
    assert good.verdict in {Verdict.EQUAL, Verdict.NOT_COMPARED}
    assert bad.reason == "both raise DIVIDE_BY_ZERO"


def test_types_that_cannot_be_hashed_are_not_compared(shadow: Any, spark: SparkSession) -> None:
    df = spark.range(9).selectExpr("named_struct('a', id, 'A', id) as s")
    assert len(shadow.collect(df)) == 9
    assert single_comparison(shadow).verdict is Verdict.NOT_COMPARED
    assert "have equal names" in single_comparison(shadow).reason


@pytest.mark.thorough
def test_a_sink_that_ignores_its_rows_is_equal(shadow: Any, spark: SparkSession, tmp_path: Path) -> None:
    grouped(spark).write.parquet(str(tmp_path / "out"))
    shadow.write(grouped(spark), FileSink(str(tmp_path / "out"), mode="ignore"))
    shadow.execute()
    assert single_comparison(shadow).verdict is Verdict.EQUAL
    assert "ignored all its rows" in single_comparison(shadow).reason


@pytest.mark.thorough
def test_a_job_that_overwrites_its_input_is_compared_with_the_old_input(
    shadow: Any, spark: SparkSession, tmp_path: Path
) -> None:
    """Plain Spark must read what the job read, not what it wrote."""
    path = str(tmp_path / "t")
    spark.range(10).write.parquet(path)
    shadow.write(spark.read.parquet(path).selectExpr("id + 1 as id"), FileSink(path, mode="overwrite"))
    shadow.execute()
    assert single_comparison(shadow).verdict is Verdict.EQUAL
    assert spark.read.schema("id long").parquet(path).agg(F.max("id")).collect()[0][0] == 10


def test_a_query_that_is_delegated_to_spark_is_not_compared(spark: SparkSession) -> None:
    env = Environment(
        spark, progress=False, verify="rows", config={"execution.batch.adaptive.whole-query-threshold": "64 mb"}
    )
    assert len(env.collect(grouped(spark))) == 7
    assert (single_comparison(env).verdict, single_comparison(env).engine) == (Verdict.BY_SPARK, Engine.SPARK)
    assert "Spark runs this query itself" in single_comparison(env).reason


@pytest.mark.thorough
def test_an_asynchronous_job_reports_the_difference_when_waited_for(
    shadow: Any, spark: SparkSession, broken: Any
) -> None:
    broken(lambda df: df.where("k <> 3"))
    shadow.write(grouped(spark), Nowhere())
    job = shadow.execute_async()
    for _ in range(2):
        with pytest.raises(RowsDifferError):
            job.wait()


def test_a_job_cancelled_during_its_comparison_does_not_commit(
    quiet: Any, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = threading.Event()
    quiet.write(grouped(spark), Nowhere(commit=committed.set))
    monkeypatch.setattr("penstock.shadow.job.compare_rows", lambda *_: quiet.last_job.cancel())
    with pytest.raises(JobCancelledError):
        quiet.execute()
    assert not committed.is_set()


def test_two_sinks_of_a_target_are_refused(shadow: Any, spark: SparkSession) -> None:
    class Overwriting(Nowhere):
        location = "a table"

    for _ in range(2):
        shadow.write(spark.range(3), Overwriting())
    with pytest.raises(SinkError, match="a table"):
        shadow.execute()


@pytest.mark.parametrize(
    ("base", "shadowed", "own"),
    [
        (Sink, ShadowedSink, {"parallelism"}),
        # Rows are compared even if there is nothing to write.
        (SinkJob, ShadowedSinkJob, {"calls_python", "nothing_to_write"}),
    ],
)
def test_all_members_of_sinks_are_forwarded(base: type, shadowed: type, own: set[str]) -> None:
    assert {name for name in {*vars(base), *base.__annotations__} if name[0] != "_"} - set(vars(shadowed)) == own


def test_shadow_mode_is_off_by_default(env: Environment, spark: SparkSession) -> None:
    env.count(spark.range(3))
    assert not hasattr(env.last_job, "report")


def test_an_invalid_verify_argument_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="verify"):
        Environment(spark, verify="columns")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            "Job aborted\n: org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division [1] by zero",
            "DIVIDE_BY_ZERO",
        ),
        ("x\nTraceback (most recent call last):\n  File y\nKeyError: 3\n\n\tat org.apache.spark.X", "KeyError"),
        ("x\nTraceback (most recent call last):\n  File y\nmine.Odd\n", "mine.Odd"),
        ("An error occurred\n: java.lang.OutOfMemoryError: heap", "OutOfMemoryError"),
        ("[CANNOT_PARSE_TIMESTAMP.WITH_HINT] Text", "CANNOT_PARSE_TIMESTAMP.WITH_HINT"),
        ("no class", "RuntimeError"),
    ],
)
def test_the_error_class_is_extracted_from_a_message(text: str, name: str) -> None:
    assert error_class(RuntimeError(text)) == name
    try:
        raise JobError("vertex failed") from RuntimeError(text)
    except JobError as error:
        assert error_class(error) == name
