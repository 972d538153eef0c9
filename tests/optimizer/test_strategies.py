"""Every strategy on real Spark: the rows are plain Spark's, and the stages that ran show what was changed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

import pytest
from pyspark.sql import functions as F

from penstock import with_parallelism
from penstock.connectors import DynamicFilteringInfo, FileSource, KeyFilter
from penstock.connectors.core.base import DynamicParallelismInference
from penstock.errors import JobError
from penstock.graph import StreamEdgeUpdateRequest
from penstock.graph.partitioner import BROADCAST, ForwardForUnspecifiedPartitioner, HashPartitioner
from penstock.optimizer import StreamGraphOptimizationStrategy
from tests.support.equality import assert_as_plain_spark, assert_same_rows
from tests.support.stages import stages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock import Environment


ROWS = 200_000
JOIN = "table.optimizer.adaptive__broadcast__join.strategy"
THRESHOLD = "table.optimizer.join.broadcast__threshold"
VOLUME = "execution.batch.adaptive.auto__parallelism.avg__data__volume__per__task"
FILTERING = "table.optimizer.dynamic__filtering"
SKEW = "table.optimizer.skewed__join__optimization"
SMALL = {VOLUME: "64 kb", JOIN: "RUNTIME_ONLY"}


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A table of facts in 4 files and by day, five dimensions, and one with a hot key."""
    folder = tmp_path_factory.mktemp("star")
    facts = spark.range(0, ROWS, 1, 4).selectExpr(
        "id",
        *(f"if(id % 97 = 0, null, pmod(hash(id, {d}), 1000)) as d{d}" for d in range(5)),
        "id % 20 as day",
        "id * 3 as v",
    )
    facts.write.parquet(str(folder / "facts"))
    facts.repartition(4, "day").write.partitionBy("day").parquet(str(folder / "by_day"))
    for d in range(5):
        names = f"id as k{d}", f"id % 10 as a{d}", f"concat('name ', id) as n{d}"
        spark.range(0, 1000, 1, 2).selectExpr(*names).write.parquet(str(folder / f"dim{d}"))
    hot = spark.range(0, ROWS, 1, 8).selectExpr("if(id % 10 < 6, 7, id % 1000) as k", "id as v", "uuid(7) as pad")
    hot.write.parquet(str(folder / "hot"))
    return {path.name: spark.read.parquet(str(path)) for path in folder.iterdir()}


def dimension(tables: Any, d: Any, below: int = 1) -> Any:
    return tables[f"dim{d}"].where(F.col(f"a{d}") < below)


def star(tables: Any, how: str = "inner", dimensions: int = 5) -> Any:
    joined = tables["facts"]
    for d in range(dimensions):
        joined = joined.join(dimension(tables, d, 9), F.col(f"d{d}") == F.col(f"k{d}"), how)
    return joined.groupBy("day").agg(F.sum("v").alias("v"), F.max(f"n{dimensions - 1}").alias("n"))


def check(env: Environment, df: DataFrame) -> Any:
    assert_as_plain_spark(env, df)
    return env.last_job


def chosen(job: Any, kind: Any) -> list[str]:
    return [str(decision.chosen) for decision in job.decisions if decision.kind.value == kind]


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_star_join_is_a_single_vertex_without_shuffling_facts(
    spark: SparkSession, make_env: Callable[..., Environment], tables: Any, how: str
) -> None:
    job = check(make_env(**SMALL), star(tables, how))
    (vertex,) = (execution.vertex for execution in job.vertices if "facts" in execution.vertex.name)
    assert vertex.name.count("Join") == 5
    finished = stages(spark, job, "facts")
    assert sum(stage.input_records for stage in finished) == ROWS
    assert sum(stage.shuffle_written for stage in finished) <= 20 * max(
        stage.tasks for stage in finished
    )  # partial sums by day


@pytest.mark.thorough
def test_the_most_reducing_dimension_comes_first(make_env: Callable[..., Environment], tables: Any) -> None:
    joined = tables["facts"]
    for d, below in ((0, 9), (1, 5), (2, 1)):
        joined = joined.join(dimension(tables, d, below), F.col(f"d{d}") == F.col(f"k{d}"))
    df = joined.select("day", "n0", "n2", "v").groupBy("n0").agg(F.sum("v"), F.max("n2"), F.max("day"))
    job = check(make_env(**SMALL), df)
    (order,) = chosen(job, "join order")[-1:]
    assert [part.split("(")[1] for part in order.split(", ")] == ["keeps 10.0%)", "keeps 50.0%)", "keeps 90.0%)"]


@pytest.mark.thorough
def test_a_join_before_broadcast_joins_becomes_a_broadcast_join(
    spark: SparkSession, make_env: Callable[..., Environment], tables: Any
) -> None:
    """The dimensions are measured first, and their joins are reordered; the join of the sums is measured later."""
    sums = [tables[name].where("day < 3 and v % 7 <> 1") for name in ("facts", "by_day")]
    ours, theirs = (df.groupBy("d0", "day").agg(F.sum("v").alias("v"), F.max("d1").alias("m")) for df in sums)
    joined = ours.join(theirs.select("d0", F.col("v").alias("w")), "d0")
    for key, d, below in (("d0", 0, 9), ("m", 1, 5)):
        joined = joined.join(dimension(tables, d, below), F.col(key) == F.col(f"k{d}").cast("int"))
    job = check(make_env(**SMALL), joined.groupBy("n1").agg(F.sum("v"), F.sum("w"), F.max("n0")))
    assert len(chosen(job, "broadcast")) == 3
    (vertex,) = (execution.vertex for execution in job.vertices if "Join" in execution.vertex.name)
    assert vertex.name.count("Join") == 3


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("groups", "early"),
    [
        ("rollup(a0, n0)", True),
        ("cube(n0, a0)", True),
        ("grouping sets ((a0), (n0), ())", True),
        ("rollup(day, a0)", False),  # a column of the facts: the number of days is unknown
        ("rollup(n0, n1, n2)", False),  # as many groups as rows
    ],
)
def test_early_aggregation_applies_before_grouping_sets_with_few_groups(
    spark: SparkSession, make_env: Callable[..., Environment], tables: Any, groups: str, early: bool
) -> None:
    for name, table in tables.items():
        table.createOrReplaceTempView(name)
    columns = ", ".join(sorted(set(re.findall("[an][0-9]|day", groups))))
    text = f"""select {columns}, sum(d3), avg(v), count(*)
               from facts join dim0 on d0 = k0 join dim1 on d1 = k1 join dim2 on d2 = k2
               where a0 < 5 and a2 < 9 group by {groups}"""
    job = check(make_env(**SMALL | {VOLUME: "4 mb"}), spark.sql(text))
    assert chosen(job, "early aggregation") == ["before rows are copied for each grouping set"] * early


@pytest.mark.thorough
def test_a_star_join_without_broadcasts_is_shuffled(
    spark: SparkSession, make_env: Callable[..., Environment], tables: Any
) -> None:
    job = check(make_env(**SMALL | {VOLUME: "1 mb", THRESHOLD: "-1", f"{FILTERING}.enabled": False}), star(tables))
    assert sum(stage.shuffle_written for stage in stages(spark, job, "facts")) > ROWS / 2
    assert not {"left", "right"} & set(chosen(job, "broadcast"))


JOINS = [
    "inner",
    "left",
    *(pytest.param(how, marks=pytest.mark.slow) for how in ("right", "full", "left_semi", "left_anti")),
]


@pytest.mark.parametrize("how", JOINS)
def test_keys_filter_the_other_side_before_its_shuffle(
    spark: SparkSession, make_env: Callable[..., Environment], tables: Any, how: Any
) -> None:
    small = dimension(tables, 0)  # a tenth of the keys
    df = tables["facts"].join(small, F.col("d0") == F.col("k0"), how)
    df = df.groupBy("d0").agg(F.count("*").alias("n"), F.sum("v").alias("v"))
    off = check(make_env(**SMALL | {THRESHOLD: "-1", f"{FILTERING}.enabled": False}), df)
    on = check(make_env(**SMALL | {THRESHOLD: "-1"}), df)
    written = [sum(s.shuffle_written for s in stages(spark, job, "Source: facts")) for job in (off, on)]
    if how in {"inner", "right", "left_semi"}:  # facts without a match are not in the result
        assert written[1] < 0.2 * written[0]
    else:
        assert written[1] == written[0] >= ROWS * 0.9


@pytest.mark.thorough
def test_a_filter_reaches_through_joins_projections_and_aggregates(
    spark: SparkSession, make_env: Callable[..., Environment], tables: Any
) -> None:
    renamed = tables["facts"].selectExpr("d0 as x", "d1 as y", "d3 as w").groupBy("x", "y").agg(F.sum("w").alias("w"))
    other = tables["hot"].selectExpr("k as z", "v").groupBy("z").agg(F.max("v").alias("m"))
    df = renamed.join(other, F.col("y") == F.col("z")).join(dimension(tables, 0), F.col("x") == F.col("k0"))
    job = check(make_env(**SMALL | {THRESHOLD: "-1"}), df.groupBy("k0").agg(F.sum("w"), F.max("m")))
    ran = stages(spark, job, "Source: facts")
    assert sum(stage.input_records for stage in ran) == ROWS
    assert sum(stage.shuffle_written for stage in ran) < 0.2 * ROWS


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("key", "is_filtered"),
    [("d0 + 0", False), ("cast(d0 as bigint)", True), ("coalesce(d0, 7)", False), ("-d0", False)],
)
def test_keys_are_filtered_through_safe_casts_only(
    spark: SparkSession, make_env: Callable[..., Environment], tables: Any, key: str, is_filtered: bool
) -> None:
    """A computed key is filtered only if the computation is a cast that cannot fail."""
    small = dimension(tables, 0).selectExpr(f"cast(k0 as {'bigint' if 'bigint' in key else 'int'}) as k0")
    df = tables["facts"].selectExpr(f"{key} as x", "v").join(small, F.col("x") == F.col("k0"), "left_semi")
    job = check(make_env(**SMALL | {THRESHOLD: "-1"}), df.groupBy("x").agg(F.sum("v")))
    assert bool(chosen(job, "dynamic filter")) is is_filtered
    assert (sum(stage.shuffle_written for stage in stages(spark, job, "Source: facts")) < 0.2 * ROWS) is is_filtered


@pytest.mark.parametrize("threshold", ["10 mb", "-1"])
def test_only_the_partitions_of_the_keys_are_read(
    spark: SparkSession, make_env: Callable[..., Environment], tables: Any, threshold: str
) -> None:
    days = (
        spark.range(0, 20, 1, 1).selectExpr("cast(id as int) as d", "id % 10 as name").where("pmod(hash(name), 3) = 0")
    )
    df = tables["by_day"].join(days, F.col("day") == F.col("d")).groupBy("name").agg(F.sum("v"))
    expected = tables["by_day"].where(F.col("day").isin([row.d for row in days.collect()])).count()
    assert 0 < expected < ROWS / 2
    # Spark's pruning is off, to test Penstock's.
    spark.conf.set("spark.sql.optimizer.dynamicPartitionPruning.enabled", "false")
    try:
        job = check(make_env(**SMALL | {THRESHOLD: threshold}), df)
    finally:
        spark.conf.unset("spark.sql.optimizer.dynamicPartitionPruning.enabled")
    ran = [stage for stage in stages(spark, job, "Source: by_day") if stage.input_records > 100]
    assert sum(stage.input_records for stage in ran) == expected
    (decision,) = (
        (d for d in job.decisions if d.kind.value == "source parallelism" and "by_day" in str(d.subject))
        if threshold == "-1"
        else (d for d in job.decisions if "by_day" in str(d.subject) and "volume per task" in d.figures)
    )
    assert sum(stage.tasks for stage in ran) == decision.chosen


class RecordingInference(FileSource, DynamicParallelismInference):
    """Files whose inference records the dynamic filters, and the number of listed files."""

    calls: list[Any] = []

    def infer_parallelism(self, context: Any) -> int:
        info = context.dynamic_filtering_info
        assert isinstance(info, DynamicFilteringInfo)
        assert self.listing is not None
        if isinstance(info, KeyFilter):
            self.calls.append((info.columns, info.predicate, len(self.listing().sizes)))
        return 2


@pytest.mark.parametrize("threshold", ["0", "64 mb"])
def test_inference_of_a_user_defined_source_gets_dynamic_filters(
    spark: SparkSession, make_env: Callable[..., Environment], tables: Any, threshold: str
) -> None:
    days = (
        spark.range(0, 20, 1, 1).selectExpr("cast(id as int) as d", "id % 10 as name").where("pmod(hash(name), 3) = 0")
    )
    env = make_env(**SMALL | {THRESHOLD: "-1", "execution.batch.adaptive.whole__query__threshold": threshold})
    RecordingInference.calls.clear()
    path = tables["by_day"].inputFiles()[0].split("/day=")[0]
    df = env.read(RecordingInference(path)).join(days, F.col("day") == F.col("d")).groupBy("name").agg(F.sum("v"))
    spark.conf.set("spark.sql.optimizer.dynamicPartitionPruning.enabled", "false")
    try:
        job = check(env, df)
    finally:
        spark.conf.unset("spark.sql.optimizer.dynamicPartitionPruning.enabled")
    assert len(RecordingInference.calls) == 1, "a call with the filter"
    ((columns, predicate, files),) = RecordingInference.calls
    joined_days = [row.d for row in days.collect()]
    assert columns == ("day",)
    assert {
        day for day in range(20) if spark.sql(f"select {predicate} as p from (select {day} as day)").first().p
    } == set(joined_days)
    assert 0 < files < len(tables["by_day"].inputFiles())
    (scan,) = [execution for execution in job.vertices if "by_day" in execution.vertex.name]
    assert scan.parallelism == 2


def test_row_groups_of_sorted_data_are_pruned(
    spark: SparkSession, make_env: Callable[..., Environment], tmp_path: Path
) -> None:
    sorted_facts = spark.range(0, 400_000, 1, 1).selectExpr("id as k", "id * 2 as v")
    sorted_facts.write.option("parquet.block.size", 200_000).option("parquet.page.row.count.limit", 5000).parquet(
        str(tmp_path / "t")
    )
    facts = spark.read.parquet(str(tmp_path / "t"))
    few = spark.range(0, 400_000, 1, 2).where("id between 1000 and 3000 and id % 7 = 0").selectExpr("id as j")
    df = facts.join(few, F.col("k") == F.col("j")).groupBy().agg(F.sum("v"), F.count("*"))
    job = check(make_env(**SMALL | {THRESHOLD: "-1"}), df)
    read = sum(stage.input_records for stage in stages(spark, job, "Source: t "))
    assert 0 < read < 200_000


@pytest.mark.thorough
def test_an_empty_build_side_prunes_the_other_side(
    spark: SparkSession, make_env: Callable[..., Environment], tables: Any
) -> None:
    none = tables["dim0"].where("a0 > 100 and n0 <> 'x'")
    df = tables["facts"].join(none, F.col("d0") == F.col("k0"))
    for threshold in ("10 mb", "-1"):
        check(make_env(**SMALL | {THRESHOLD: threshold}), df.groupBy("day").count())
    job = check(make_env(**SMALL | {THRESHOLD: "-1"}), df.groupBy("d1").count())
    assert sum(stage.input_records for stage in stages(spark, job, "Source: facts")) == 0
    check(make_env(**SMALL), tables["facts"].join(none, F.col("d0") == F.col("k0"), "left_anti").groupBy("day").count())


@pytest.mark.thorough
def test_a_side_larger_than_estimated_is_not_broadcast(make_env: Callable[..., Environment], tables: Any) -> None:
    """Spark estimates a selectivity of one percent, but the filter drops nothing."""
    same = tables["facts"].where("length(concat(id, 'x')) > 0").selectExpr("id as i", "v as w")
    df = tables["facts"].join(same, F.col("id") == F.col("i")).groupBy("day").agg(F.sum("w"))
    job = check(make_env(**SMALL | {THRESHOLD: "20 kb"}), df)
    assert chosen(job, "broadcast") == ["not the left side", "not the right side"] or chosen(job, "broadcast") == [
        "not the right side",
        "not the left side",
    ]


@pytest.mark.thorough
def test_a_table_too_large_for_a_broadcast_is_shuffled(
    spark: SparkSession, make_env: Callable[..., Environment], tables: Any
) -> None:
    expected = star(tables, dimensions=2).collect()
    spark.conf.set("spark.sql.maxBroadcastTableSize", "1kb")
    env = make_env(**SMALL)
    try:
        assert_same_rows(env.collect(star(tables, dimensions=2)), expected)
    finally:
        spark.conf.unset("spark.sql.maxBroadcastTableSize")
    instead = [d.outcome.get("instead") for d in env.last_job.decisions if d.kind.value == "broadcast"]
    assert any("is shuffled" in (text or "") for text in instead), instead


@pytest.mark.thorough
def test_a_failed_broadcast_with_an_exchanged_other_side_returns_the_rows_of_spark(
    spark: SparkSession, make_env: Callable[..., Environment], tables: Any
) -> None:
    """Both sides start at once, so the large side is hashed, which must not be assumed of the other side."""
    df = tables["facts"].join(tables["dim0"], F.col("d0") == F.col("k0")).groupBy("a0").agg(F.sum("v"), F.max("n0"))
    expected = df.collect()
    spark.conf.set("spark.sql.maxBroadcastTableSize", "1kb")
    try:
        env = make_env(**SMALL)
        assert_same_rows(env.collect(df), expected)
    finally:
        spark.conf.unset("spark.sql.maxBroadcastTableSize")
    assert {"left", "right"} & set(chosen(env.last_job, "broadcast"))


class Careless(StreamGraphOptimizationStrategy):
    """Strategy that broadcasts without updating later operators, whose rows are then no longer hashed."""

    def on_operators_finished(self, finished: Any, context: Any) -> Any:
        for node_id, result in finished.results.items():
            for build in context.stream_graph.out_edges(node_id):
                inputs = context.stream_graph.in_edges(build.target_id)
                probe = next((edge for edge in inputs if edge.id != build.id), None)
                if (
                    len(inputs) == 2
                    and all(isinstance(e.partitioner, HashPartitioner) for e in inputs)
                    and result.rows < 2000
                ):
                    requests = [StreamEdgeUpdateRequest(build.id, BROADCAST)]
                    requests.append(StreamEdgeUpdateRequest(probe.id, ForwardForUnspecifiedPartitioner()))
                    return context.modify_stream_edge(requests)
        return False


@pytest.mark.thorough
def test_a_careless_strategy_costs_an_exchange_but_rows_are_correct(spark: SparkSession, tables: Any) -> None:
    from penstock import Environment
    from tests.conftest import OFF

    config = OFF | {
        "table.optimizer.join.broadcast-threshold": "-1",
        "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task": "64 kb",
    }
    env = Environment(spark, config=config, progress=False, strategies=[Careless])
    hot = tables["hot"].selectExpr("k", "v as w").where("v < 30000")
    joined = (
        tables["facts"].join(dimension(tables, 0, 5), F.col("d0") == F.col("k0")).join(hot, F.col("d0") == F.col("k"))
    )
    df = joined.groupBy("d0").agg(F.count("*"), F.sum("w"))
    careless = check(env, df)
    careful = check(Environment(spark, config=config, progress=False), df)
    assert "BROADCAST" in {str(edge.partitioner) for edge in careless.graphs.manager.graph.edges}
    costs = [sum(stage.shuffle_written for stage in stages(spark, job)) for job in (careless, careful)]
    assert costs[0] > 0


@pytest.mark.parametrize("how", JOINS)
def test_a_hot_key_is_split_over_tasks(
    spark: SparkSession, make_env: Callable[..., Environment], tables: Any, how: Any
) -> None:
    small = tables["dim0"].selectExpr("k0", "a0")
    df = (
        tables["hot"]
        .join(small, F.col("k") == F.col("k0"), how)
        .groupBy(F.expr("v % 10"))
        .agg(F.count("*"), F.sum("v"), F.max("pad"))
    )
    options = SMALL | {THRESHOLD: "-1", f"{FILTERING}.enabled": False, f"{SKEW}.skewed__threshold": "100 kb"}
    on, off = (check(make_env(**options | {f"{SKEW}.strategy": strategy}), df) for strategy in ("AUTO", "NONE"))
    most = [
        max(max(stage.shuffle_read_per_task, default=0) for stage in stages(spark, job, "Join")) for job in (on, off)
    ]
    if how in {"right", "full"}:
        assert most[0] == most[1]
        assert how == "full" or "left side not split" in chosen(on, "skew")
    else:
        assert most[1] > 0.6 * ROWS
        assert most[0] < 0.2 * ROWS


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_key_that_is_hot_on_both_sides_is_split(make_env: Callable[..., Environment], tables: Any, how: str) -> None:
    other = tables["hot"].where("v < 800").selectExpr("k as j", "v as w")
    df = tables["hot"].where("v < 8000").join(other, F.col("k") == F.col("j"), how)
    options = SMALL | {
        THRESHOLD: "-1",
        f"{SKEW}.skewed__threshold": "1 b",
        f"{SKEW}.skewed__factor": 1.0,
        VOLUME: "4 kb",
    }
    job = check(make_env(**options), df.groupBy("j").agg(F.count("*"), F.sum("w")))
    assert any("split" in word for word in chosen(job, "skew"))


@pytest.mark.thorough
@pytest.mark.parametrize("smaller", ["left", "right"])
@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_the_smaller_side_of_an_outer_join_is_hashed(
    make_env: Callable[..., Environment], tables: Any, how: str, smaller: str
) -> None:
    small = tables["dim0"].selectExpr("k0 + 500 as a", "n0 as n").where("a % 7 > 0")
    large = tables["hot"].where("v % 3 = 0").selectExpr("k as b", "v", "pad")
    left, right = (small, large) if smaller == "left" else (large, small)
    df = left.join(right, F.col("a") == F.col("b"), how)
    job = check(make_env(**{JOIN: "NONE", THRESHOLD: "-1", f"{FILTERING}.enabled": False, VOLUME: "64 kb"}), df)
    assert chosen(job, "join algorithm") == [f"shuffled hash join, build side {smaller}"]


@pytest.mark.thorough
@pytest.mark.parametrize(("parallelism", "threshold"), [(1, "0"), (3, "0"), (5, "64 mb"), (40, "0")])
def test_with_parallelism_applies_to_a_join_with_split_skew(
    spark: SparkSession, make_env: Callable[..., Environment], tables: Any, parallelism: int, threshold: str
) -> None:
    small = tables["dim0"].selectExpr("k0", "a0")
    joined = with_parallelism(tables["hot"].join(small, F.col("k") == F.col("k0")), parallelism)
    df = joined.groupBy(F.expr("v % 10")).agg(F.count("*"), F.sum("v"), F.max("pad"))
    options = {THRESHOLD: "-1", f"{FILTERING}.enabled": False, f"{SKEW}.skewed__threshold": "100 kb", VOLUME: "64 kb"}
    job = check(make_env(**options | {"execution.batch.adaptive.whole__query__threshold": threshold}), df)
    (join,) = [execution for execution in job.vertices if "Join" in execution.vertex.name]
    assert join.parallelism == parallelism
    # A single task is chained to its reader.
    assert join.tasks == parallelism or (parallelism, join.tasks) == (1, None)
    split = [decision for decision in job.decisions if "partitions split" in str(decision.chosen)]
    assert [decision.outcome["split"] for decision in split] == [1] * len(split)
    assert split or parallelism == 1


@pytest.mark.parametrize(("maximum", "is_split"), [(2, False), (7, True)])
def test_the_maximum_bounds_split_vertices(
    spark: SparkSession, make_env: Callable[..., Environment], tables: Any, maximum: int, is_split: bool
) -> None:
    df = (
        tables["hot"]
        .join(tables["dim0"].selectExpr("k0", "a0"), F.col("k") == F.col("k0"))
        .groupBy(F.expr("v % 10"))
        .count()
    )
    most = {"execution.batch.adaptive.auto__parallelism.max__parallelism": maximum, f"{SKEW}.skewed__factor": 1.0}
    options = {THRESHOLD: "-1", f"{FILTERING}.enabled": False, f"{SKEW}.skewed__threshold": "1 kb", VOLUME: "16 kb"}
    job = check(make_env(**options | most), df)
    (join,) = [execution for execution in job.vertices if "Join" in execution.vertex.name]
    assert join.tasks <= maximum
    split = [decision for decision in job.decisions if "partitions split" in str(decision.chosen)]
    assert split, "nothing was split, so the maximum was not tested"
    assert [decision.outcome["split"] > 0 for decision in split] == [is_split] * len(split)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("functions", "is_split"),
    [("count(distinct v) as n, max(pad) as m", True), ("sort_array(collect_list(v)) as n", False)],
)
def test_a_hot_group_is_merged_from_several_tasks(
    spark: SparkSession, make_env: Callable[..., Environment], tables: Any, functions: str, is_split: bool
) -> None:
    df = tables["hot"].repartition("k").groupBy("k").agg(*(F.expr(function) for function in functions.split(", ")))
    options = {
        VOLUME: "64 kb",
        f"{SKEW}.skewed__threshold": "100 kb",
        f"{SKEW}.strategy": "FORCED" if is_split else "AUTO",
    }
    job = check(make_env(**options), df)
    most = max(
        max(stage.shuffle_read_per_task, default=0) for stage in stages(spark, job, "Aggregate" if not is_split else "")
    )
    assert (most < 0.2 * ROWS) is is_split
    assert chosen(job, "skew")[0].startswith("not split") is not is_split


def test_a_join_after_an_aggregate_by_its_key_needs_no_second_shuffle(
    spark: SparkSession, make_env: Callable[..., Environment], tables: Any
) -> None:
    small = tables["dim0"].selectExpr("k0", "a0")
    df = tables["hot"].join(small, F.col("k") == F.col("k0")).groupBy("k").agg(F.count("*").alias("n"))
    job = check(make_env(**SMALL | {THRESHOLD: "-1"}), df)
    assert any("Join" in e.vertex.name and "Aggregate" in e.vertex.name for e in job.vertices)
    assert sum(stage.shuffle_written for stage in stages(spark, job, "Join")) == 0


class Breaks(StreamGraphOptimizationStrategy):
    def on_operators_finished(self, finished: Any, context: Any) -> Never:
        raise RuntimeError("in the middle")


@pytest.mark.thorough
def test_a_strategy_that_raises_is_recorded_and_the_job_continues(spark: SparkSession, tables: Any) -> None:
    from penstock import Environment
    from tests.conftest import OFF

    env = Environment(spark, config=OFF, progress=False, strategies=[Breaks])
    job = check(env, star(tables))
    assert [str(d.subject) for d in job.decisions if d.kind.value == "strategy"] == ["Breaks"]


class Restless(StreamGraphOptimizationStrategy):
    def on_operators_finished(self, finished: Any, context: Any) -> bool:
        return True


def test_a_strategy_without_an_end_fails_the_job(spark: SparkSession, tables: Any) -> None:
    from penstock import Environment
    from penstock.errors import OptimizerError
    from tests.conftest import OFF

    env = Environment(spark, config=OFF, progress=False, strategies=[Restless])
    with pytest.raises((OptimizerError, JobError), match="Restless"):
        env.collect(star(tables))
