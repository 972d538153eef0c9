"""A job that sends rows to a service and whose worker dies once; prints the decision of its sink as JSON.

Arguments: the address of the service, and the task whose worker dies: "first" is the task that sends the first rows, many of
which are equal, "second" is one of two tasks that send distinct rows.
"""

import json
import os
import sys

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

from penstock import Environment
from penstock.connectors import HttpSink
from penstock.connectors.http import sending
from penstock.decisions.log import DecisionKind

spark = (
    SparkSession.builder.master("local[2,4]")  # local[2] does not repeat failed tasks
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.log.level", "OFF")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
env = Environment(spark, config={"execution.batch.adaptive.whole-query-threshold": 0}, progress=False)
original = sending.send_function
is_first = sys.argv[2] == "first"


def dying_sender(*arguments, **options):
    """Return the sender of the sink; the worker of a task dies once after a batch."""
    send = original(*arguments, **options)
    if options.get("only_first", False) != is_first:
        return send

    def work(batches):
        from pyspark import TaskContext

        def first_batches():
            for number, batch in enumerate(batches):
                task = TaskContext.get()
                if number and task.partitionId() == (0 if is_first else 1) and not task.attemptNumber():
                    os._exit(9)
                yield batch

        yield from send(first_batches())

    return work


from penstock.connectors.http import sink as sending_job

sending_job.send_function = dying_sender
spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "5" if is_first else "20")
if is_first:
    env.write(spark.range(0, 1000, 1, 1).selectExpr("id div 250 as id"), HttpSink(sys.argv[1]))
else:
    env.write(spark.range(0, 400, 1, 4), HttpSink(sys.argv[1], max_requests_per_second=100, parallelism=2))
job = env.execute()
(summary,) = [decision for decision in job.decisions if decision.kind is DecisionKind.SINK_STAGE]
print("DECISION", json.dumps({"chosen": summary.chosen, "reason": summary.reason}), flush=True)
spark.stop()
