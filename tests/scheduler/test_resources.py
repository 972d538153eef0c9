"""Limits for broadcasts by the cluster and the options."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.config import Configuration
from penstock.scheduler.resources import broadcast_bounds, resources_of
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.plans.dataframes import with_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIB = 1 << 20
STATIC, RUN_TIME = "spark.sql.autoBroadcastJoinThreshold", "spark.sql.adaptive.autoBroadcastJoinThreshold"
OPTION = "table.optimizer.join.broadcast-threshold"

# Spark's settings, the options, and the bytes at which a planned broadcast is stopped.
CASES: dict[str, tuple[dict[str, str], dict[str, object], int]] = {
    "ten times the threshold for planning": ({STATIC: "1m"}, {}, 10 * MIB),
    "the threshold for run time is ignored": ({STATIC: "1m", RUN_TIME: "-1"}, {}, 10 * MIB),
    "Penstock's own threshold": ({STATIC: "1m"}, {OPTION: "2 mb"}, 20 * MIB),
    "never less than the threshold": ({STATIC: "100g"}, {}, 100 << 30),
}


@pytest.mark.sample(len(CASES))
@pytest.mark.parametrize("case", CASES)
def test_when_a_broadcast_is_stopped(spark: SparkSession, case: str) -> None:
    settings, options, limit = CASES[case]
    config, bridge = Configuration.load(options), Bridge(spark)
    with with_settings(spark, settings):
        assert broadcast_bounds(bridge, config, resources_of(bridge, config)).limit == limit


def test_a_broadcast_is_limited_by_memory(spark: SparkSession) -> None:
    config, bridge = Configuration.load({OPTION: "50 mb"}), Bridge(spark)
    resources = resources_of(bridge, config)
    most = resources.broadcast_memory
    assert broadcast_bounds(bridge, config, resources).limit == max(50 * MIB, min(500 * MIB, most))


def test_joins_are_decided_by_the_threshold_that_the_user_set_for_run_time(spark: SparkSession) -> None:
    config, bridge = Configuration.load({}), Bridge(spark)
    with with_settings(spark, {STATIC: "1m", RUN_TIME: "5m"}):
        resources = resources_of(bridge, config)
    assert (resources.broadcast_threshold, resources.broadcast_option) == (5 * MIB, RUN_TIME)
