"""Runs a streaming query with `start_query` until there is a file named "end" in its output folder.

Arguments: folder of input, checkpoint, folder of output, the name of the query in tests.state.queries, additional seconds per
batch, and n: it dies by SIGKILL at the n-th change to files after the start of a rescale; with n = 0 it does not die.
"""

import os
import signal
import sys
import time
from pathlib import Path

from penstock.spark.bridge.session import embedded_session
from penstock.spark.io.filesystem import HadoopPath
from penstock.spark.plans.dataframes import with_settings
from penstock.state import start_query
from tests.state.queries import BASE, BY_NAME, SCHEMA

input_folder, checkpoint, output = (Path(argument) for argument in sys.argv[1:4])
query, batch_delay, deadly = BY_NAME[sys.argv[4]], float(sys.argv[5]), int(sys.argv[6])
changes = 0


def die_at(name):
    original = getattr(HadoopPath, name)

    def change(self, *arguments, **options):
        global changes
        started = (output / "started").exists()  # a start also locks the checkpoint
        if (started and "_penstock_rescale" in str(self)) or (changes and "_penstock_requests" not in str(self)):
            changes += 1
        if changes == deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, *arguments, **options)

    setattr(HadoopPath, name, change)


if deadly:
    for method in ("make", "write", "copy_to", "move_to", "delete"):
        die_at(method)


def keep(df, batch):
    rows = sorted((tuple(row) for row in df.collect()), key=str)
    time.sleep(batch_delay)
    with (output / "batches.txt").open("a") as file:  # not idempotent, so that repeated batches are visible
        file.write("".join(f"{batch}\t{row}\n" for row in rows))


spark = embedded_session("local[2]", {"spark.ui.enabled": "false", "spark.log.level": "OFF"})
with with_settings(spark, BASE | query.settings):
    source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(input_folder / "*.parquet"))
    writer = query.build(source).writeStream.outputMode(query.mode).trigger(processingTime="200 milliseconds")
    config = {} if checkpoint.exists() else {"pipeline.max-parallelism": 4}
    stream = start_query(writer.foreachBatch(keep), str(checkpoint), config=config)
(output / "started").touch()
while not (output / "end").exists() and stream.isActive:
    time.sleep(0.05)
if stream.isActive:
    stream.processAllAvailable()
    stream.stop()
stream.awaitTermination()
