"""FLIP-469: the plan changes while the job runs, from what its finished part has measured.

1. A join side turns out to be small, so it is broadcast. The large side is never shuffled.
2. A side is too large for that, but its keys filter the large side before its shuffle.
3. A strategy of your own, here a function, changes the part of the plan that has not started.
"""

from __future__ import annotations

from collections.abc import Callable
from tempfile import TemporaryDirectory

from measure import measure, start_spark
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock import Environment
from penstock.decisions.log import DecisionKind
from penstock.graph import StreamNodeUpdateRequest
from penstock.optimizer import OperatorsFinished, StrategyContext

SMALL_DATA = {
    "execution.batch.adaptive.whole-query-threshold": 0,  # otherwise, Spark runs small queries unchanged
    "execution.native": False,  # otherwise, DuckDB computes small queries in a single task
}
NO_BROADCAST = {"table.optimizer.join.broadcast-threshold": "-1"}
SMALL_TASKS = {"execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task": "1 mb"}  # by default 16 MiB


def few_rows_per_task(finished: OperatorsFinished, context: StrategyContext) -> bool:
    """Let each task that reads an exchange process at least 500 000 rows."""
    changed = False
    for node_id, result in finished.results.items():
        for edge in context.stream_graph.out_edges(node_id):
            limit = max(1, (result.rows or 0) // 500_000)
            node = context.stream_graph.node(edge.target_id)
            if result.rows is None or edge.is_forward or (node.max_parallelism or limit + 1) <= limit:
                continue
            request = StreamNodeUpdateRequest(node.id, max_parallelism=limit)
            reason = f"it reads {result.rows} rows"
            changed |= context.change([request], DecisionKind.VERTEX_PARALLELISM, node, limit, reason)
    return changed


def compare(query: Callable[[], DataFrame], environments: dict[str, Environment], kind: DecisionKind) -> None:
    """Run a query on plain Spark and in environments; print its shuffles, and the decisions of a kind."""
    spark = query().sparkSession
    plain = measure(spark, lambda: sorted(query().collect()))
    print(f"  plain Spark: {plain.shuffled_mib:.2f} MiB shuffled, tasks of its stages {plain.tasks}")
    for name, env in environments.items():
        run = measure(spark, lambda env=env: sorted(env.collect(query())))
        assert run.result == plain.result
        print(f"  {name}: {run.shuffled_mib:.2f} MiB shuffled, tasks of its stages {run.tasks}")
        for decision in env.last_job.decisions:
            if decision.kind is kind:
                print(f"    {decision.displayed.sentence}")


def main() -> None:
    spark = start_spark()
    with TemporaryDirectory() as folder:
        sales = ["id", "pmod(hash(id), 200000) AS product", "pmod(hash(id, 1), 1000) AS price"]
        spark.range(2_000_000).selectExpr(*sales).write.parquet(f"{folder}/sales")
        products = ["id AS product", "sha1(string(id)) AS name", "sha2(string(id), 512) AS description"]
        spark.range(200_000).selectExpr(*products).write.parquet(f"{folder}/products")

        def revenue() -> DataFrame:
            chosen = spark.read.parquet(f"{folder}/products").where("name LIKE '00%'")
            joined = spark.read.parquet(f"{folder}/sales").join(chosen, "product")
            return joined.groupBy("name").agg(F.sum("price").alias("revenue"))

        def prices() -> DataFrame:
            return spark.read.parquet(f"{folder}/sales").groupBy("price", "product").count().groupBy("price").count()

        def penstock(*strategies: Callable[..., bool], **options: str) -> Environment:
            return Environment(spark, config=SMALL_DATA | options, strategies=strategies)

        print("1. A side is broadcast")
        compare(revenue, {"Penstock": penstock()}, DecisionKind.BROADCAST)
        print("2. A side filters the other")
        compare(revenue, {"Penstock": penstock(**NO_BROADCAST)}, DecisionKind.DYNAMIC_FILTER)
        print("3. A strategy of your own")
        with_strategy = {"Penstock": penstock(**SMALL_TASKS), "with it": penstock(few_rows_per_task, **SMALL_TASKS)}
        compare(prices, with_strategy, DecisionKind.VERTEX_PARALLELISM)
    spark.stop()


if __name__ == "__main__":
    main()
