"""Child process of bench/sail.py: Sail's server and a thin client. Arguments: the folder of the tables, and the cores.

It reads the SQL text of a query as a line of JSON, and prints its rows as a line of JSON.
"""

import json
import os
import sys
from pathlib import Path

os.environ["TOKIO_WORKER_THREADS"] = sys.argv[2]
os.environ["SAIL_EXECUTION__DEFAULT_PARALLELISM"] = sys.argv[2]

from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession

from rows import comparable

answers, sys.stdout = sys.stdout, sys.stderr
server = SparkConnectServer(port=0)
server.start(background=True)
_, port = server.listening_address
spark = SparkSession.builder.remote(f"sc://localhost:{port}").getOrCreate()
for file in sorted(Path(sys.argv[1]).glob("*.parquet")):
    spark.read.parquet(str(file)).createOrReplaceTempView(file.stem)
for line in sys.stdin:
    try:
        answer = {"rows": comparable(spark.sql(json.loads(line)).collect())}
    except Exception as error:  # noqa: BLE001 - the benchmark reports it
        answer = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
    print(json.dumps(answer), file=answers, flush=True)
