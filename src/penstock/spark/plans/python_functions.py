"""Pickled Python functions in Spark's plans (``SimplePythonFunction``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.bridge.jvm import Bridge, with_fields
from penstock.spark.plans.catalyst import analyzed_plan
from penstock.spark.plans.dataframes import dataframe
from penstock.spark.plans.logical_plan import LogicalPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def runs_in_ordinary_tasks(plan: LogicalPlan) -> bool:
    """Whether a ``MapInArrow`` or ``MapInPandas`` runs in ordinary tasks: without barrier or resource profile."""
    return not plan._handle.isBarrier() and bool(plan._handle.profile().isEmpty())


def pickled_function(plan: LogicalPlan) -> bytes:
    """Return the function of a ``MapInArrow`` or ``MapInPandas``, pickled with its return type, as workers load it."""
    byte_tag = plan._bridge.companion("scala.reflect.ClassTag").Byte()
    return bytes(_function(plan).command().toArray(byte_tag))


def with_broadcasts(df: DataFrame, origin: LogicalPlan) -> DataFrame:
    """Return a ``mapInArrow`` DataFrame whose workers also receive the broadcast variables of `origin`'s function."""
    bridge = Bridge(df.sparkSession)
    plan = analyzed_plan(bridge, df)
    function, other_function = _function(plan), _function(origin)
    if not other_function.broadcastVars().size():
        return df
    broadcasts = bridge.find("java.util.ArrayList")(function.broadcastVars())
    broadcasts.addAll(other_function.broadcastVars())
    python = function.pythonIncludes(), function.pythonExec(), function.pythonVer()
    simple_function = bridge.find("org.apache.spark.api.python.SimplePythonFunction")
    new_function = simple_function(function.command(), function.envVars(), *python, broadcasts, function.accumulator())
    call = with_fields(bridge, plan._handle.productElement(0), func=new_function)
    name = str(plan._handle.productElementName(0))  # the name depends on the release
    return dataframe(bridge.session, LogicalPlan(bridge, with_fields(bridge, plan._handle, **{name: call})))


def _function(plan: LogicalPlan) -> Any:
    return plan._handle.productElement(0).func()
