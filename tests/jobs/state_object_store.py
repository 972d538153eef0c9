"""Rescales a checkpoint on an object store. CLASSES is the folder of the classes of tests/java.

CLASSES ENDPOINT kill LOCAL STORE N    copies a checkpoint to the store and rescales it; the JVM exits before the N-th change
                                       of an object; with N = 0 it does not exit, and prints the number of changes
CLASSES ENDPOINT go-on NAME INPUT STORE...    resumes, aborts or restarts each copy, and prints the rows of the query
"""

import json
import sys

from penstock.errors import StateError
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.bridge.session import embedded_session
from penstock.spark.io.filesystem import HadoopPath
from penstock.spark.plans.dataframes import with_settings
from penstock.state import abort, inspect, rescale, start_query
from penstock.state.journal import STAGING_FOLDER, Journal
from tests.state.queries import BASE, BY_NAME, SCHEMA

classes, endpoint, command, *arguments = sys.argv[1:]
conf = {
    "spark.ui.enabled": "false",
    "spark.log.level": "OFF",
    "spark.driver.extraClassPath": classes,
    "spark.hadoop.fs.weed.impl": "ObjectStore",
    "spark.hadoop.fs.weed.endpoint": endpoint,
}
spark = embedded_session("local[2]", conf)
bridge = Bridge(spark)


def kill(local, store, change):
    HadoopPath(bridge, local).copy_to(HadoopPath(bridge, store))
    objects = bridge.find("ObjectStore")
    objects.dieBefore(int(change))
    rescale(store, 8, spark=spark)
    print("changes", objects.changes())


def later(query, folder, checkpoint):
    """Run the query over new input, and return the rows of each non-empty batch."""
    batches = []

    def keep(df, _):
        rows = sorted((tuple(row) for row in df.collect()), key=str)
        if rows:
            batches.append(rows)

    with with_settings(spark, BASE | query.settings):
        source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"{folder}/*.parquet")
        writer = query.build(source).writeStream.outputMode(query.mode).foreachBatch(keep).trigger(availableNow=True)
        start_query(writer, checkpoint, spark=spark).awaitTermination()
    return batches


def go_on(name, folder, *stores):
    for store in stores:
        for action in ("resume", "abort", "restart"):
            checkpoint = f"{store}-{action}"
            HadoopPath(bridge, store).copy_to(HadoopPath(bridge, checkpoint))
            location = HadoopPath(bridge, checkpoint)
            journal = Journal.load(location)
            committed = location.child("commits/2").exists()
            if action == "resume" and not (committed and journal is None):
                rescale(checkpoint, 8, spark=spark)
            if action == "abort":
                try:
                    abort(checkpoint, spark=spark)
                except StateError as error:
                    assert committed
                    assert "complete" in str(error)
            number = inspect(checkpoint, spark=spark).max_parallelism
            batches = later(BY_NAME[name], folder, checkpoint)
            after = inspect(checkpoint, spark=spark)
            print(
                json.dumps(
                    {
                        "store": store,
                        "what": action,
                        "phase": None if journal is None else str(journal.phase),
                        "committed": committed,
                        "number": number,
                        "after": after.max_parallelism,
                        "left": location.child(STAGING_FOLDER).exists(),
                        "batches": str(batches),
                    }
                ),
                flush=True,
            )


{"kill": kill, "go-on": go_on}[command](*arguments)
