"""Runs a job in a process with OpenTelemetry's SDK; prints the collected metrics as JSON."""

from __future__ import annotations

import json
import os
import sys

os.environ["PYSPARK_PYTHON"] = sys.executable

from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock import Environment

reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
env = Environment(spark, config={"execution.batch.adaptive.whole-query-threshold": 0}, progress=False)
env.collect(spark.range(0, 1000, 1, 4).groupBy((F.col("id") % 7).alias("k")).count())
data = reader.get_metrics_data()
assert data is not None
collected = {
    metric.name: {
        "unit": metric.unit,
        "points": {
            "".join(map(str, point.attributes.values())): getattr(point, "value", getattr(point, "sum", None))
            for point in metric.data.data_points
        },
    }
    for resource in data.resource_metrics
    for scope in resource.scope_metrics
    for metric in scope.metrics
}
print(json.dumps(collected))
