"""Decisions that could not be carried out have the fallback in history and on the pages; the rows are correct."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Never

import pandas as pd
import pytest
from pyspark.sql import functions as F

from penstock.decisions.log import DecisionKind
from penstock.entry.observer import record_of
from penstock.optimizer import StreamGraphOptimizationStrategy
from penstock.spark.run import exchange, filters, layouts
from penstock.web import pages
from penstock.web.listing import JobPageQuery
from tests.support.equality import assert_as_plain_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock import Environment


ROWS = 60_000
SKEW = "table.optimizer.skewed__join__optimization"
THRESHOLD = "table.optimizer.join.broadcast__threshold"
FILTERING = "table.optimizer.dynamic__filtering.enabled"
SMALL = {
    "execution.batch.adaptive.auto__parallelism.avg__data__volume__per__task": "64 kb",
    "table.optimizer.adaptive__broadcast__join.strategy": "RUNTIME_ONLY",
}
SPLIT = SMALL | {THRESHOLD: "-1", FILTERING: False, f"{SKEW}.skewed__threshold": "20 kb"}
WHOLE = "execution.batch.adaptive.whole__query__threshold"


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("records")
    facts = spark.range(0, ROWS, 1, 4).selectExpr("if(id % 10 < 6, 7, id % 1000) as k", "id as v", "uuid(7) as pad")
    facts.write.parquet(str(folder / "facts"))
    spark.range(0, 1000, 1, 2).selectExpr("id as j", "id % 10 as a").write.parquet(str(folder / "small"))
    return spark.read.parquet(str(folder / "facts")), spark.read.parquet(str(folder / "small"))


def joined(tables: Any) -> Any:
    facts, small = tables
    return (
        facts.join(small.where("a < 2"), F.col("k") == F.col("j"))
        .groupBy(F.expr("v % 7"))
        .agg(F.count("*"), F.max("pad"))
    )


def raising(text: str) -> Any:
    def fail(*_: Any, **__: Any) -> Never:
        raise RuntimeError(text)

    return fail


def fallbacks(env: Environment, df: DataFrame, kind: Any) -> Any:
    """Run a query, compare it with plain Spark, and return the decisions of a kind with a fallback that pages show."""
    assert_as_plain_spark(env, df)
    record = record_of(env.last_job)
    decisions = [decision for decision in record.decisions if decision.kind == kind]
    decisions = [decision for decision in decisions if decision.instead]
    for decision in decisions:
        (vertex,) = (vertex for vertex in record.vertices.values() if decision in record.decisions_of(vertex))
        page = pages.vertex(record, vertex, time.time())
        assert decision.instead in page
        assert decision.instead in pages.job(record, time.time(), JobPageQuery(pending=True))
    return decisions


@pytest.mark.thorough
def test_a_failed_broadcast_is_recorded_as_a_shuffle(
    monkeypatch: pytest.MonkeyPatch, make_env: Callable[..., Environment], tables: Any
) -> None:
    monkeypatch.setattr(exchange, "broadcast_staged", raising("OutOfMemory: no room for a table"))
    (decision,) = fallbacks(make_env(**SMALL), joined(tables), "broadcast")
    assert decision.chosen == "right"
    assert decision.instead == "small is shuffled"
    assert "no room for a table" in decision.because
    assert decision.values["outcome"]["tasks"] > 0


def test_keys_that_cannot_be_collected_are_recorded(
    monkeypatch: pytest.MonkeyPatch, make_env: Callable[..., Environment], tables: Any
) -> None:
    monkeypatch.setattr(
        filters, "collect_keys", raising("An error occurred while calling o1.x.\n: the executor is gone")
    )
    (decision,) = fallbacks(make_env(**SMALL | {THRESHOLD: "-1"}), joined(tables), "dynamic filter")
    assert decision.instead == "rows are not filtered"
    assert decision.because == "the keys could not be collected: the executor is gone"


@pytest.mark.thorough
def test_statistics_that_cannot_be_read_are_recorded(
    monkeypatch: pytest.MonkeyPatch, make_env: Callable[..., Environment], tables: Any
) -> None:
    monkeypatch.setattr("penstock.execution.dynamic_filters.row_group_fraction", raising("a footer is broken"))
    (decision,) = fallbacks(make_env(**SMALL | {THRESHOLD: "-1"}), joined(tables), "dynamic filter")
    assert decision.instead == "rows are filtered only after they were read"
    assert "a footer is broken" in decision.because


@pytest.mark.thorough
def test_a_split_that_spark_does_not_plan_is_recorded(
    monkeypatch: pytest.MonkeyPatch, make_env: Callable[..., Environment], tables: Any
) -> None:
    monkeypatch.setattr(layouts, "joins_its_leaves", lambda _: False)
    (decision,) = fallbacks(make_env(**SPLIT), joined(tables), "skew")
    assert decision.instead == "its partitions are not split"
    assert "partitions split" in decision.chosen


@pytest.mark.thorough
def test_a_layout_that_spark_refuses_is_recorded(
    monkeypatch: pytest.MonkeyPatch, make_env: Callable[..., Environment], tables: Any
) -> None:
    refused: list[Any] = []
    write = exchange.write

    def refuse(session: SparkSession, logical: Any, **others: Any) -> Any:
        if not refused and "Join" in logical._handle.toString():
            refused.append(True)
            raise RuntimeError("no other input can be repartitioned like coalesced subpartitions")
        return write(session, logical, **others)

    monkeypatch.setattr(exchange, "write", refuse)
    options = SMALL | {THRESHOLD: "-1", FILTERING: False}
    (decision,) = fallbacks(make_env(**options), joined(tables), "vertex parallelism")
    assert decision.instead == "its inputs are shuffled inside the step"


def sum_values(pdf: pd.DataFrame) -> pd.DataFrame:
    return pdf.groupby("k", as_index=False).v.sum()


HOT = {
    "collect_list": (lambda df: df.groupBy("k").agg(F.sort_array(F.collect_list("v")).alias("l")), "Aggregate"),
    "percentile": (lambda df: df.groupBy("k").agg(F.expr("percentile(v, 0.5)")), "Aggregate"),
    "grouped map": (lambda df: df.groupBy("k").applyInPandas(sum_values, "k bigint, v bigint"), "k"),
    "window": (lambda df: df.selectExpr("k", "v", "row_number() over (partition by k order by v) as r"), "Window"),
    "count": (lambda df: df.groupBy("k").count(), None),
}


@pytest.mark.thorough
@pytest.mark.parametrize("threshold", ["0", "64 mb"])
@pytest.mark.parametrize("name", HOT)
def test_a_hot_key_that_cannot_be_split_is_recorded(
    make_env: Callable[..., Environment], tables: Any, name: str, threshold: str
) -> None:
    make, operator = HOT[name]
    env = make_env(**SPLIT | {WHOLE: threshold})
    df = make(tables[0])
    assert_as_plain_spark(env, df)
    record = record_of(env.last_job)
    decisions = [decision for decision in record.decisions if decision.kind == "skew"]
    assert bool(decisions) is (operator is not None)
    for decision in decisions:
        assert decision.chosen == "not split"
        assert decision.values["reason"].startswith(("it ", "a split "))
        (vertex,) = (vertex for vertex in record.vertices.values() if decision in record.decisions_of(vertex))
        assert decision.values["outcome"]["tasks"] == vertex.tasks


class RecordingStrategy(StreamGraphOptimizationStrategy):
    """Strategy that records decisions about every join, by node and by name, and changes nothing."""

    def initialize(self, context: Any) -> None:
        for node in context.stream_graph:
            if node.kind == "Join":
                context.decide(DecisionKind.STRATEGY, node, "by node", "it is a join")
                context.decide(DecisionKind.STRATEGY, node.name, "by name", "it is a join")

    def on_operators_finished(self, finished: Any, context: Any) -> bool:
        return False


@pytest.mark.thorough
@pytest.mark.parametrize("threshold", ["0", "64 mb"])
def test_a_strategys_decision_belongs_to_its_vertex_and_gets_an_outcome(
    spark: SparkSession, tables: Any, threshold: str
) -> None:
    from penstock import Environment

    options = {key.replace("__", "-"): value for key, value in (SPLIT | {WHOLE: threshold}).items()}
    env = Environment(spark, config=options, progress=False, strategies=[RecordingStrategy])
    env.collect(joined(tables))
    record = record_of(env.last_job)
    (vertex,) = (vertex for vertex in record.vertices.values() if "Join" in vertex.name)
    own = {(decision.kind, decision.chosen): decision for decision in record.decisions_of(vertex)}
    for key in (("strategy", "by node"), ("strategy", "by name")):
        measured = {"tasks": vertex.tasks, "rows": vertex.rows_out, "bytes": vertex.bytes_out}
        assert own[key].values["outcome"] == {name: figure for name, figure in measured.items() if figure is not None}
    assert {kind for kind, _ in own} >= {"strategy", "vertex parallelism", "skew"}
    for execution in env.last_job.vertices:
        if execution.parallelism:
            assert "parallelism" in " ".join(
                decision.kind for decision in record.decisions_of(record.vertices[execution.vertex.id])
            )


def test_a_decision_has_the_tasks_of_its_stage(spark: SparkSession, make_env: Callable[..., Environment]) -> None:
    """A limit in the middle of a vertex needs an additional exchange, so a single task returns the vertex's rows."""
    rows = spark.range(0, 20_000, 1, 2).selectExpr("id % 5000 as k", "id")
    df = rows.groupBy("k").agg(F.max("id").alias("id")).limit(50).repartition(3)
    env = make_env(**SMALL | {"execution.batch.adaptive.auto__parallelism.avg__data__volume__per__task": "16 kb"})
    assert len(env.collect(df)) == 50
    job = env.last_job
    assert job is not None
    (limited,) = (snapshot for snapshot in job.vertices if "GlobalLimit" in snapshot.vertex.name)
    (decision,) = job.decisions.of(limited.vertex.node_ids, DecisionKind.VERTEX_PARALLELISM)
    assert decision.chosen == decision.outcome["tasks"] > 1
    assert limited.tasks == 1


def test_a_broadcast_planned_by_spark_is_recorded_with_its_figures(
    tables: Any, make_env: Callable[..., Environment]
) -> None:
    facts, small = tables
    env = make_env()
    assert_as_plain_spark(env, facts.join(small, F.col("k") == F.col("j")).groupBy("a").count())
    job = env.last_job
    assert job is not None
    (decision,) = (decision for decision in job.decisions if decision.kind is DecisionKind.BROADCAST)
    assert decision.chosen == "right"
    assert "Spark's statistics say" in decision.reason
    assert decision.reason.endswith("the limit is 10.0 MiB (spark.sql.autoBroadcastJoinThreshold)")
    assert 0 < decision.figures["bytes"] < decision.figures["limit"] == 10 << 20
    assert decision.outcome["tasks"] > 0


@pytest.mark.thorough
def test_an_unknown_size_is_not_shown_as_zero(spark: SparkSession, make_env: Callable[..., Environment]) -> None:
    env = make_env()
    env.collect(spark.createDataFrame([(number,) for number in range(10)], "k int").groupBy("k").count())
    job = env.last_job
    assert job is not None
    assert job.vertices[0].bytes_in is None
    assert "input of unknown size" in " ".join(decision.reason for decision in job.decisions)
