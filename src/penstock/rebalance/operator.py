"""`penstock.rebalance` and `penstock.rescale`: distribute rows over tasks, evenly or to the least loaded consumer."""

from __future__ import annotations

import logging
import os
import threading
import weakref
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
from penstock.base.location import callers_line
from penstock.config import Configuration
from penstock.config.options import ADAPTIVE_PARTITIONER_IDLE_TIMEOUT
from penstock.connectors.core.base import checked_parallelism
from penstock.errors import NoBarrierError
from penstock.hints.plan_hints import Exchange, PlanHint, Stage, register_stage, with_hint
from penstock.rebalance import network, pandas_function, protocol, pulled, record_writer, rendezvous, task, transport
from penstock.rebalance.pandas_function import PandasFunction
from penstock.rebalance.rendezvous_server import rendezvous_of
from penstock.rebalance.task import ExchangeSpec, ExchangeTask, ReportParam
from penstock.sizing import pointwise
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.bridge.session import penstock_settings
from penstock.spark.plans.python_functions import with_broadcasts
from penstock.spark.run.barrier import BOUNDARY, narrow_partitions, task_slots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark import Accumulator
    from pyspark.sql import DataFrame, SparkSession

    from penstock.rebalance.pandas_function import PandasMapFunction
    from penstock.rebalance.task import MapFunction

    Reports = Accumulator[list[dict[str, Any]]]

log = logging.getLogger("penstock.rebalance")


class Dropped:
    """Placeholder for reports that are no longer needed.

    A task may run again later if its output is lost. PySpark would then stop updating all accumulators, if the task's
    accumulator were not registered.
    """

    def __iadd__(self, reports: object) -> Self:
        del reports
        return self


_DROPPED = Dropped()


def new_reports(spark: SparkSession) -> Reports:
    """Return an accumulator for reports."""
    return spark.sparkContext.accumulator([], ReportParam())


def drop_with(owner: object, reports: Reports) -> None:
    """Release reports once their owner is garbage-collected; PySpark would retain accumulators forever."""
    registry: dict[int, Any] = accumulators._accumulatorRegistry  # noqa: SLF001
    weakref.finalize(owner, registry.__setitem__, reports.aid, _DROPPED)


def rebalance(
    df: DataFrame,
    parallelism: int | None = None,
    adaptive: bool | None = None,  # noqa: FBT001 - it follows the number of consumers
    max_traverse_size: int | None = None,
) -> Rebalanced:
    """Distribute the rows of a DataFrame over tasks, evenly or to the least loaded consumer.

    Parameters
    ----------
    df
        Any DataFrame, also a streaming one.
    parallelism
        The number of consumers, on plain Spark too. If None: as many as can run at the same time, or as many as the
        job decides.
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
    return _rebalanced(df, parallelism, Exchange(adaptive, max_traverse_size))


def rescale(
    df: DataFrame,
    parallelism: int | None = None,
    adaptive: bool | None = None,  # noqa: FBT001 - it follows the number of consumers
    max_traverse_size: int | None = None,
) -> Rebalanced:
    """Distribute rows as `rebalance` does, but from each task to a few neighbouring consumers only."""
    return _rebalanced(df, parallelism, Exchange(adaptive, max_traverse_size, pointwise=True))


def _rebalanced(df: DataFrame, parallelism: int | None, exchange: Exchange) -> Rebalanced:
    check_data_frame(df, "rescale" if exchange.pointwise else "rebalance")
    check_type(exchange.adaptive, (bool, type(None)), "adaptive", "True, False or None")
    number = None if parallelism is None else checked_parallelism(parallelism, "rebalance")
    return Rebalanced(df, number, exchange)


@dataclass(frozen=True)
class Rebalanced:
    """A DataFrame whose rows will be distributed over tasks; `rebalance` and `rescale` return it."""

    df: DataFrame
    parallelism: int | None
    exchange: Exchange

    def map_in_arrow(self, function: MapFunction, schema: StructType | str) -> DataFrame:
        """Return the output of a function over the rows, as ``DataFrame.mapInArrow`` does.

        The function takes an iterator of ``pyarrow.RecordBatch`` and returns another; it is called once in every
        consumer.
        """
        return self._mapped(replace(self.exchange, function=function, schema=schema))

    def map_in_pandas(self, function: PandasMapFunction, schema: StructType | str) -> DataFrame:
        """Return the output of a function over the rows, as ``DataFrame.mapInPandas`` does.

        The function takes an iterator of ``pandas.DataFrame`` and returns another; it is called once in every consumer.
        Raise `RebalanceError` if the exchange is adaptive and a column is of a nested type, for which pandas has
        several forms.
        """
        return self._mapped(replace(self.exchange, function=function, schema=schema, is_pandas=True))

    def dataframe(self) -> DataFrame:
        """Return the distributed rows, unchanged."""
        return self._mapped(self.exchange)

    def _mapped(self, exchange: Exchange) -> DataFrame:
        settings = penstock_settings(Bridge(self.df.sparkSession))
        config = Configuration.load(spark_conf=settings, environ=os.environ)
        hint = PlanHint(self.parallelism, "Rebalance", exchange=exchange, location=callers_line())
        if exchange.resolved(config, self.parallelism)[0]:
            try:
                return barrier_stage(self.df, hint, config)
            except NoBarrierError as error:
                log.info("consumers pull chunks of the rows because no barrier stage can run: %s", error)
        return _apply_function(with_hint(self.df, hint, self.parallelism), exchange)


def _apply_function(df: DataFrame, exchange: Exchange) -> DataFrame:
    if exchange.function is None:
        return df
    assert exchange.schema is not None
    if exchange.is_pandas:
        return df.mapInPandas(exchange.function, exchange.schema)
    return df.mapInArrow(exchange.function, exchange.schema)


def barrier_stage(df: DataFrame, hint: PlanHint, config: Configuration) -> DataFrame:
    """Return the output of an adaptive exchange and its function; raise `NoBarrierError` for too many consumers."""
    assert hint.exchange is not None
    rows, spec = _with_enough_tasks(df, hint.parallelism, ExchangeSpec(1, pointwise=hint.exchange.pointwise))
    return _behind_shuffle(_stage(rows, hint, spec, config), spec.readers)


def _stage(rows: DataFrame, hint: PlanHint, spec: ExchangeSpec, config: Configuration) -> DataFrame:
    """Return the output of an adaptive exchange over rows that have as many tasks as the stage needs."""
    exchange = hint.exchange
    assert exchange is not None
    spec = _with_options(spec, hint, config)
    schema = rows.schema if exchange.schema is None else exchange.schema
    function = arrow_function(exchange, rows.schema, rows.sparkSession)
    reports = new_reports(rows.sparkSession)
    rendezvous = rendezvous_of(rows.sparkSession)
    mapped = apply_task(rows, ExchangeTask(spec, function, reports, rendezvous), exchange, schema, barrier=True)

    def with_options(other: Configuration) -> Callable[[DataFrame], DataFrame] | None:
        if not exchange.resolved(other, hint.parallelism)[0]:
            return lambda over: _apply_function(with_hint(over, hint, hint.parallelism), exchange)
        if _with_options(spec, hint, other) == spec:
            return None
        return lambda over: _stage(over, hint, spec, other)

    built = replace(exchange, adaptive=True, max_traverse_size=spec.max_traverse_size)
    stage_hint = replace(hint, parallelism=spec.readers, exchange=built)
    stage = Stage(stage_hint, lambda: list(reports.value), with_options)
    drop_with(stage, reports)
    register_stage(mapped, stage)
    return mapped


def _with_options(spec: ExchangeSpec, hint: PlanHint, config: Configuration) -> ExchangeSpec:
    assert hint.exchange is not None
    _, traverse = hint.exchange.resolved(config, hint.parallelism)
    timeout = config.seconds(ADAPTIVE_PARTITIONER_IDLE_TIMEOUT)
    return replace(spec, max_traverse_size=traverse, idle_timeout=timeout)


def apply_task(
    df: DataFrame, task: MapFunction, exchange: Exchange, schema: StructType | str, *, barrier: bool = False
) -> DataFrame:
    """Return the output of a task that calls the function of an exchange."""
    with _pickled_by_value():
        mapped = df.mapInArrow(task, schema, barrier=barrier)
    return mapped if exchange.origin is None else with_broadcasts(mapped, exchange.origin)


def arrow_function(exchange: Exchange, input_schema: StructType, spark: SparkSession) -> MapFunction:
    """Return the function of an exchange as a function of Arrow batches."""
    if exchange.function is None:
        return lambda batches: batches
    if not exchange.is_pandas:
        return cast("MapFunction", exchange.function)
    time_zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    schema = StructType.fromDDL(exchange.schema) if isinstance(exchange.schema, str) else exchange.schema
    assert isinstance(schema, StructType)
    return PandasFunction.of(exchange.function, input_schema, schema, time_zone)


_PICKLING = threading.RLock()
_PICKLED_MODULES = (
    errors,
    channel,
    network,
    pandas_function,
    pointwise,
    protocol,
    pulled,
    record_writer,
    rendezvous,
    task,
    transport,
)


@contextmanager
def _pickled_by_value() -> Iterator[None]:
    """Pickle these modules by value in the block.

    Executors then need no package of ours, and their Python processes do not spend a second importing all of it.
    """
    with _PICKLING:  # the registration is global to all threads
        for module in _PICKLED_MODULES:
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            for module in _PICKLED_MODULES:
                cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _with_enough_tasks(df: DataFrame, parallelism: int | None, spec: ExchangeSpec) -> tuple[DataFrame, ExchangeSpec]:
    """Return a DataFrame with as many tasks as the stage needs, all of which can run at the same time."""
    slots = task_slots(Bridge(df.sparkSession), parallelism or 1)
    readers = slots if parallelism is None else parallelism
    if readers > slots or not slots:
        raise NoBarrierError.too_few_slots(readers, slots)
    tasks = narrow_partitions(df)
    if parallelism is None and tasks is not None:
        readers = min(slots, max(tasks, 1)) if spec.pointwise else slots
    spec = replace(spec, readers=readers)
    if tasks is None or tasks > slots:
        return df.repartition(slots), replace(spec, tasks=slots)
    if tasks >= readers:
        return df, replace(spec, tasks=tasks)
    if tasks == 0:
        return df.repartition(readers), replace(spec, tasks=readers)
    # Every reader needs a task, so there are more tasks than partitions with rows; those with rows come first.
    return _fill_first(df, tasks, readers), replace(spec, writers=tasks, tasks=readers)


def _fill_first(df: DataFrame, filled: int, partitions: int) -> DataFrame:
    """Return a DataFrame with more partitions, of which only the first have rows."""
    salts = _salts(filled, partitions)
    salt = F.element_at(F.array(*map(F.lit, salts)), F.spark_partition_id() + 1)
    return df.withColumn(BOUNDARY, salt).repartition(partitions, F.col(BOUNDARY)).drop(BOUNDARY)


def _salts(filled: int, partitions: int) -> list[int]:
    """Return numbers that Spark's hash partitioning sends to partitions 0, 1, 2 ..."""
    salts: dict[int, int] = {}
    number = 0
    while len(salts) < filled:
        partition = hash_int(number) % partitions
        if partition < filled:
            salts.setdefault(partition, number)
        number += 1
    return [salts[partition] for partition in range(filled)]


def _behind_shuffle(df: DataFrame, partitions: int) -> DataFrame:
    """Return the rows after another shuffle, so that Spark can retry the barrier stage, and use its result freely.

    Spark does not retry a barrier stage at the end of a query, and refuses limits, unions and coalescing in it.
    """
    return df.withColumn(BOUNDARY, F.spark_partition_id()).repartition(partitions, F.col(BOUNDARY)).drop(BOUNDARY)
