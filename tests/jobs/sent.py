"""A job that sends rows to a service, and whose worker dies once half-way; prints what its record says, as JSON.

Arguments: the address of the service, and whose worker dies: "first" is the task that sends the first rows, many of
which are equal, "second" is one of the two that send rows which are all different.
"""

import json
import os
import sys

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

from penstock import Environment
from penstock.connectors import HttpSink
from penstock.connectors.http import sending
from penstock.decisions import DecisionKind

spark = (
    SparkSession.builder.master("local[2,4]")  # on local[2] a task that fails fails its job
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.log.level", "OFF")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
env = Environment(spark, config={"execution.batch.adaptive.whole-query-threshold": 0}, progress=False)
plain = sending.sender
is_first = sys.argv[2] == "first"


def dying(*given, **more):
    """As the sink's own, but the worker of a task dies after some rows, once."""
    send = plain(*given, **more)
    if more.get("only_first", False) != is_first:
        return send

    def work(batches):
        from pyspark import TaskContext

        def some():
            for number, batch in enumerate(batches):
                task = TaskContext.get()
                if number and task.partitionId() == (0 if is_first else 1) and not task.attemptNumber():
                    os._exit(9)
                yield batch

        yield from send(some())

    return work


from penstock.connectors.http import job as sending_job

sending_job.sender = dying
spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "5" if is_first else "20")
if is_first:
    env.write(spark.range(0, 1000, 1, 1).selectExpr("id div 250 as id"), HttpSink(sys.argv[1]))
else:
    env.write(spark.range(0, 400, 1, 4), HttpSink(sys.argv[1], max_requests_per_second=100, parallelism=2))
job = env.execute()
(told,) = [decision for decision in job.decisions if decision.kind is DecisionKind.SINK_STAGE]
print("SAID", json.dumps({"chosen": told.chosen, "reason": told.reason}), flush=True)
spark.stop()
