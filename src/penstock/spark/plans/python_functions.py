"""Pickled Python functions in Spark's plans (``SimplePythonFunction``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.bridge.jvm import Bridge, with_fields
from penstock.spark.plans.catalyst import analyzed_plan
from penstock.spark.plans.dataframes import dataframe
from penstock.spark.plans.logical_plan import LogicalPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def is_ordinary(plan: LogicalPlan) -> bool:
    """Whether a ``MapInArrow`` or ``MapInPandas`` runs in ordinary tasks: without barrier or resource profile."""
    return not plan._handle.isBarrier() and bool(plan._handle.profile().isEmpty())


def pickled_function(plan: LogicalPlan) -> bytes:
    """Return the function of a ``MapInArrow`` or ``MapInPandas``, pickled with its return type for workers."""
    of_bytes = plan._bridge.companion("scala.reflect.ClassTag").Byte()
    return bytes(_function(plan).command().toArray(of_bytes))


def with_broadcasts(df: DataFrame, origin: LogicalPlan) -> DataFrame:
    """Return a ``mapInArrow`` DataFrame whose workers also receive the broadcast variables of another function."""
    bridge = Bridge(df.sparkSession)
    plan = analyzed_plan(bridge, df)
    ours, theirs = _function(plan), _function(origin)
    if not theirs.broadcastVars().size():
        return df
    broadcasts = bridge.find("java.util.ArrayList")(ours.broadcastVars())
    broadcasts.addAll(theirs.broadcastVars())
    worker = ours.command(), ours.envVars(), ours.pythonIncludes(), ours.pythonExec(), ours.pythonVer()
    simple_function = bridge.find("org.apache.spark.api.python.SimplePythonFunction")
    function = simple_function(*worker, broadcasts, ours.accumulator())
    call = with_fields(bridge, plan._handle.productElement(0), func=function)
    name = str(plan._handle.productElementName(0))  # it differs between releases
    return dataframe(bridge.session, LogicalPlan(bridge, with_fields(bridge, plan._handle, **{name: call})))


def _function(plan: LogicalPlan) -> Any:
    return plan._handle.productElement(0).func()
