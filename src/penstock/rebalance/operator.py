"""`penstock.rebalance` and `penstock.rescale`: distribute rows over tasks, evenly or to the least loaded consumer."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, cast

from pyspark import accumulators, cloudpickle
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock import errors
from penstock.base import channel
from penstock.base.arguments import check_data_frame, check_type
from penstock.base.hashing import hash_int
from penstock.base.location import current_user_line
from penstock.config import Configuration
from penstock.config.options import ADAPTIVE_PARTITIONER_IDLE_TIMEOUT
from penstock.connectors.core.base import require_positive
from penstock.errors import NoBarrierError
from penstock.hints.plan_hints import ConsumerStage, PlanHint, RequestedExchange, register_consumer_stage, with_hint
from penstock.rebalance import (
    channel_selector,
    network,
    pandas_function,
    protocol,
    pull_task,
    rendezvous,
    task,
    transport,
)
from penstock.rebalance.pandas_function import PandasFunction
from penstock.rebalance.pull_task import PullTask
from penstock.rebalance.rendezvous_server import rendezvous_of
from penstock.rebalance.task import ExchangeSpec, ExchangeTask, ReportParam
from penstock.sizing import pointwise
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.bridge.session import penstock_settings
from penstock.spark.plans.catalyst import analyzed_plan
from penstock.spark.plans.dataframes import dataframe
from penstock.spark.plans.python_functions import with_broadcasts
from penstock.spark.run.barrier import BARRIER_COLUMN, narrow_task_count, task_slots, with_output
from penstock.spark.run.pulled_rows import ticket_leaf

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import DataFrame, SparkSession

    from penstock.rebalance.pandas_function import PandasMapFunction
    from penstock.rebalance.task import MapFunction
    from penstock.spark.bridge.handles import InternalRows
    from penstock.spark.plans.logical_plan import LogicalPlan
    from penstock.spark.plans.nodes import LogicalNode

    Reports = Accumulator[list[dict[str, Any]]]  # the fields of each task's `SubtaskReport`, and "stage"

log = logging.getLogger("penstock.rebalance")


class DroppedReports:
    """Placeholder for reports that are no longer needed.

    A task may run again later if its output is lost. If the accumulator of the reports were not registered then,
    PySpark would stop updating all accumulators.
    """

    def __iadd__(self, reports: object) -> Self:
        del reports
        return self


def report_accumulator(spark: SparkSession) -> Reports:
    """Return an accumulator for the reports of tasks."""
    return spark.sparkContext.accumulator([], ReportParam())


def release_with_owner(owner: object, reports: Reports) -> None:
    """Release reports once their owner is garbage-collected; PySpark would retain accumulators forever."""
    registry: dict[int, Any] = accumulators._accumulatorRegistry  # noqa: SLF001
    weakref.finalize(owner, registry.__setitem__, reports.aid, DroppedReports())


def rebalance(
    df: DataFrame,
    parallelism: int | None = None,
    adaptive: bool | None = None,  # noqa: FBT001 - the order of parameters is part of the API
    max_traverse_size: int | None = None,
) -> Rebalanced:
    """Distribute the rows of a DataFrame over tasks, evenly or to the least loaded consumer.

    >>> balanced = penstock.rebalance(spark.range(10), parallelism=3).dataframe()
    >>> env.count(balanced), balanced.rdd.getNumPartitions()
    (10, 3)

    Parameters
    ----------
    df
        A DataFrame, which may be streaming.
    parallelism
        The number of consumers, on plain Spark too. If None: as many as can run at the same time if the exchange is
        adaptive or a function consumes the rows, else as many as the job decides.
    adaptive
        Whether each consumer gets as many rows as it can process. If None: yes if `max_traverse_size` is set, else
        according to the option ``taskmanager.network.adaptive-partitioner.enabled``.
    max_traverse_size
        How many consumers are compared for each batch. If None, the option ``...max-traverse-size`` applies.

    Returns
    -------
    Rebalanced
        Call `Rebalanced.map_in_arrow`, `Rebalanced.map_in_pandas` or `Rebalanced.dataframe` on it.

    Raises
    ------
    SourceError
        If `parallelism` is not a whole number of at least 1.
    RebalanceError
        If `max_traverse_size` is less than 2.
    """
    return _create_rebalanced(df, parallelism, RequestedExchange(adaptive, max_traverse_size))


def rescale(
    df: DataFrame,
    parallelism: int | None = None,
    adaptive: bool | None = None,  # noqa: FBT001 - the order of parameters is part of the API
    max_traverse_size: int | None = None,
) -> Rebalanced:
    """Distribute rows as `rebalance` does, but from each task to a few neighbouring consumers only.

    >>> env.count(penstock.rescale(spark.range(10), parallelism=2).dataframe())
    10
    """
    return _create_rebalanced(df, parallelism, RequestedExchange(adaptive, max_traverse_size, pointwise=True))


def _create_rebalanced(df: DataFrame, parallelism: int | None, exchange: RequestedExchange) -> Rebalanced:
    check_data_frame(df, "rescale" if exchange.pointwise else "rebalance")
    check_type(exchange.adaptive, (bool, type(None)), "adaptive", "True, False or None")
    number = None if parallelism is None else require_positive(parallelism, "rebalance")
    return Rebalanced(df, number, exchange)


@dataclass(frozen=True)
class Rebalanced:
    """A DataFrame whose rows will be distributed over tasks; `rebalance` and `rescale` return it."""

    df: DataFrame
    parallelism: int | None
    exchange: RequestedExchange

    def map_in_arrow(self, function: MapFunction, schema: StructType | str) -> DataFrame:
        """Return the output of a function over the rows, as ``DataFrame.mapInArrow`` does.

        The function takes an iterator of ``pyarrow.RecordBatch`` and returns another; every consumer calls it once.

        >>> def count_rows(batches):
        ...     yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})
        >>> env.collect(rebalance(spark.range(9), 3).map_in_arrow(count_rows, "rows long").groupBy().sum())
        [Row(sum(rows)=9)]
        """
        return self._apply(replace(self.exchange, function=function, schema=schema))

    def map_in_pandas(self, function: PandasMapFunction, schema: StructType | str) -> DataFrame:
        """Return the output of a function over the rows, as ``DataFrame.mapInPandas`` does.

        The function takes an iterator of ``pandas.DataFrame`` and returns another; every consumer calls it once. Raise
        `RebalanceError` if the exchange is adaptive and a column has a nested type, which has several forms in pandas.

        >>> rows = rebalance(spark.range(3)).map_in_pandas(lambda frames: (frame * 2 for frame in frames), "id long")
        >>> sorted(env.collect(rows))
        [Row(id=0), Row(id=2), Row(id=4)]
        """
        return self._apply(replace(self.exchange, function=function, schema=schema, is_pandas=True))

    def dataframe(self) -> DataFrame:
        """Return the distributed rows, unchanged."""
        return self._apply(self.exchange)

    def _apply(self, exchange: RequestedExchange) -> DataFrame:
        settings = penstock_settings(Bridge(self.df.sparkSession))
        config = Configuration.load(spark_conf=settings, environ=os.environ)
        hint = PlanHint(self.parallelism, "Rebalance", exchange=exchange, location=current_user_line())
        if exchange.resolve_options(config, self.parallelism)[0]:
            try:
                return barrier_stage(self.df, hint, config)
            except NoBarrierError as error:
                log.info("consumers pull chunks of the rows because no barrier stage can run: %s", error)
        return _apply_function(with_hint(self.df, hint, self.parallelism), exchange)


def _apply_function(df: DataFrame, exchange: RequestedExchange) -> DataFrame:
    if exchange.function is None:
        return df
    assert exchange.schema is not None
    if exchange.is_pandas:
        return df.mapInPandas(exchange.function, exchange.schema)
    return df.mapInArrow(exchange.function, exchange.schema)


def barrier_stage(df: DataFrame, hint: PlanHint, config: Configuration) -> DataFrame:
    """Return the output of an adaptive exchange and its function; raise `NoBarrierError` if no barrier stage can run.

    The output passes another shuffle, the boundary: Spark does not retry a barrier stage at the end of a query, and
    refuses limits, unions and coalescing in it.
    """
    assert hint.exchange is not None
    rows, spec = _with_enough_tasks(df, hint.parallelism, ExchangeSpec(readers=1, pointwise=hint.exchange.pointwise))
    output = _stage_over(rows, hint, spec, config).withColumn(BARRIER_COLUMN, F.spark_partition_id())
    return output.repartition(spec.readers, F.col(BARRIER_COLUMN)).drop(BARRIER_COLUMN)


def _stage_over(rows: DataFrame, hint: PlanHint, spec: ExchangeSpec, config: Configuration) -> DataFrame:
    """Return the output of an adaptive exchange over rows that have as many tasks as the stage needs."""
    exchange = hint.exchange
    assert exchange is not None
    spec = _resolve_spec(spec, hint, config)
    schema = rows.schema if exchange.schema is None else exchange.schema
    function = _arrow_function(exchange, rows.schema, rows.sparkSession)
    reports = report_accumulator(rows.sparkSession)
    rendezvous = rendezvous_of(rows.sparkSession)  # where the tasks learn each other's addresses
    mapped = _apply_task(rows, ExchangeTask(spec, function, reports, rendezvous), exchange, schema, barrier=True)

    def with_options(job_config: Configuration) -> Callable[[DataFrame], DataFrame] | None:
        """Return a function that builds the exchange with the options of a job; None if they do not change it."""
        if not exchange.resolve_options(job_config, hint.parallelism)[0]:
            return lambda new_rows: _apply_function(with_hint(new_rows, hint, hint.parallelism), exchange)
        if _resolve_spec(spec, hint, job_config) == spec:
            return None
        return lambda new_rows: _stage_over(new_rows, hint, spec, job_config)

    adaptive_exchange = replace(exchange, adaptive=True, max_traverse_size=spec.max_traverse_size)
    stage_hint = replace(hint, parallelism=spec.readers, exchange=adaptive_exchange)
    stage = ConsumerStage(stage_hint, lambda: list(reports.value), with_options)
    release_with_owner(stage, reports)
    register_consumer_stage(mapped, stage)
    return mapped


def _resolve_spec(spec: ExchangeSpec, hint: PlanHint, config: Configuration) -> ExchangeSpec:
    assert hint.exchange is not None
    _, max_traverse_size = hint.exchange.resolve_options(config, hint.parallelism)
    timeout = config.seconds(ADAPTIVE_PARTITIONER_IDLE_TIMEOUT)
    return replace(spec, max_traverse_size=max_traverse_size, idle_timeout=timeout)


@dataclass(frozen=True, slots=True)
class PulledConsumer:
    """A user's function whose tasks (consumers) pull the rows of an exchange in chunks, and add to the `reports`."""

    node: LogicalNode
    """The operator of the function in Spark's plan (``MapInArrow``, ``MapInPandas``)."""
    exchange: RequestedExchange
    columns: StructType
    """The input columns of the function."""
    reports: Reports

    def plan_over(self, bridge: Bridge, chunks: InternalRows, tasks: int) -> LogicalPlan:
        """Return the plan of the function over chunks of rows; each of `tasks` tasks gets a ticket (see `PullTask`)."""
        tickets = dataframe(bridge.session, ticket_leaf(bridge.session, self.columns, chunks, tasks))
        task = PullTask(_arrow_function(self.exchange, self.columns, bridge.spark), self.reports)
        assert self.exchange.schema is not None
        mapped = _apply_task(tickets, task, self.exchange, self.exchange.schema)
        return with_output(analyzed_plan(bridge, mapped), self.node.output)


def _apply_task(
    df: DataFrame, task: MapFunction, exchange: RequestedExchange, schema: StructType | str, *, barrier: bool = False
) -> DataFrame:
    """Apply a task, which calls the function of an exchange, to the partitions of a DataFrame; return the output."""
    with _pickled_by_value():
        mapped = df.mapInArrow(task, schema, barrier=barrier)
    return mapped if exchange.function_operator is None else with_broadcasts(mapped, exchange.function_operator)


def _arrow_function(exchange: RequestedExchange, input_schema: StructType, spark: SparkSession) -> MapFunction:
    """Return the function of an exchange as a function of Arrow batches."""
    if exchange.function is None:
        return lambda batches: batches
    if not exchange.is_pandas:
        return cast("MapFunction", exchange.function)
    time_zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    schema = StructType.fromDDL(exchange.schema) if isinstance(exchange.schema, str) else exchange.schema
    assert isinstance(schema, StructType)
    return PandasFunction.of(exchange.function, input_schema, schema, time_zone)


_PICKLING_LOCK = threading.RLock()
_PICKLED_MODULES = (
    errors,
    channel,
    channel_selector,
    network,
    pandas_function,
    pointwise,
    protocol,
    pull_task,
    rendezvous,
    task,
    transport,
)


@contextmanager
def _pickled_by_value() -> Iterator[None]:
    """Pickle `_PICKLED_MODULES` by value in the block.

    Executors then do not need Penstock, and their Python processes do not spend a second importing it.
    """
    with _PICKLING_LOCK:  # the registration is global to all threads
        for module in _PICKLED_MODULES:
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            for module in _PICKLED_MODULES:
                cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _with_enough_tasks(df: DataFrame, parallelism: int | None, spec: ExchangeSpec) -> tuple[DataFrame, ExchangeSpec]:
    """Return a DataFrame with as many tasks as the stage needs and can run, and the spec with its numbers of tasks."""
    slots = task_slots(Bridge(df.sparkSession), parallelism or 1)
    readers = slots if parallelism is None else parallelism
    if readers > slots or not slots:
        raise NoBarrierError(f"{readers} tasks need {readers} cores at the same time, and the cluster has {slots}")
    tasks = narrow_task_count(df)
    if parallelism is None and tasks is not None:
        readers = min(slots, max(tasks, 1)) if spec.pointwise else slots  # a rescale adds no tasks
    spec = replace(spec, readers=readers)
    if tasks is None or tasks > slots:
        return df.repartition(slots), replace(spec, tasks=slots)
    if tasks >= readers:
        return df, replace(spec, tasks=tasks)
    if tasks == 0:
        return df.repartition(readers), replace(spec, tasks=readers)
    # Every reader needs a task, so there are more tasks than partitions with rows; those with rows come first.
    return _fill_first(df, tasks, readers), replace(spec, writers=tasks, tasks=readers)


def _fill_first(df: DataFrame, filled_partitions: int, partitions: int) -> DataFrame:
    """Return a DataFrame with more partitions, of which only the first have rows."""
    salts = _salts(filled_partitions, partitions)
    salt = F.element_at(F.array(*map(F.lit, salts)), F.spark_partition_id() + 1)
    return df.withColumn(BARRIER_COLUMN, salt).repartition(partitions, F.col(BARRIER_COLUMN)).drop(BARRIER_COLUMN)


def _salts(filled_partitions: int, partitions: int) -> list[int]:
    """Return numbers that Spark's hash partitioning sends to partitions 0, 1, 2 ..."""
    salts: dict[int, int] = {}
    number = 0
    while len(salts) < filled_partitions:
        partition = hash_int(number) % partitions
        if partition < filled_partitions:
            salts.setdefault(partition, number)
        number += 1
    return [salts[partition] for partition in range(filled_partitions)]
