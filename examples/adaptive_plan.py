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


def few_tasks_for_few_rows(finished: OperatorsFinished, context: StrategyContext) -> bool:
    """Let each task that reads an exchange process at least 250 000 rows."""
    changed = False
    for node_id, result in finished.results.items():
        for edge in context.stream_graph.out_edges(node_id):
            node = context.stream_graph.node(edge.target_id)
            if edge.is_forward or result.rows is None or node.max_parallelism is not None:
                continue
            limit = max(1, result.rows // 250_000)
            request = StreamNodeUpdateRequest(node.id, max_parallelism=limit)
            reason = f"it reads {result.rows} rows"
            changed |= context.change([request], DecisionKind.STRATEGY, node, f"at most {limit} tasks", reason)
    return changed


def compare(query: Callable[[], DataFrame], environments: dict[str, Environment], kind: DecisionKind) -> None:
    """Run a query on plain Spark and in environments; print its shuffles, and the decisions of a kind."""
    for name, env in {"plain Spark": None, **environments}.items():
        collect = DataFrame.collect if env is None else env.collect
        run = measure(query().sparkSession, lambda collect=collect: collect(query()))
        print(f"  {name}: {run.shuffled_mib:.2f} MiB shuffled, tasks of its stages {run.tasks}, {len(run.result)} rows")
        for decision in env.last_job.decisions if env is not None else []:
            if decision.kind is kind:
                print(f"    {decision.displayed.sentence}")


def main() -> None:
    spark = start_spark()

    def penstock(*strategies: Callable[..., bool], **options: str) -> Environment:
        return Environment(spark, config=SMALL_DATA | options, strategies=strategies, progress=False)

    with TemporaryDirectory() as folder:
        columns = ["id", "pmod(hash(id), 200000) AS product", "pmod(hash(id, 1), 1000) AS price"]
        spark.range(1_000_000).selectExpr(*columns).write.parquet(f"{folder}/sales")
        spark.range(200_000).selectExpr("id AS product", "sha1(string(id)) AS name").write.parquet(f"{folder}/products")
        sales, products = spark.read.parquet(f"{folder}/sales"), spark.read.parquet(f"{folder}/products")

        def revenue() -> DataFrame:
            return sales.join(products.where("name LIKE '00%'"), "product").groupBy("name").agg(F.sum("price"))

        def products_per_price() -> DataFrame:
            return sales.groupBy("price").agg(F.countDistinct("product"))

        print("1. A side turns out to be small")
        compare(revenue, {"Penstock": penstock()}, DecisionKind.BROADCAST)
        print("2. The same without broadcasts")
        compare(revenue, {"Penstock": penstock(**NO_BROADCAST)}, DecisionKind.DYNAMIC_FILTER)
        print("3. A strategy of your own")
        strategy = {"Penstock": penstock(**SMALL_TASKS), "with it": penstock(few_tasks_for_few_rows, **SMALL_TASKS)}
        compare(products_per_price, strategy, DecisionKind.STRATEGY)
    spark.stop()


if __name__ == "__main__":
    main()
