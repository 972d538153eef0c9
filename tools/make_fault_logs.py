"""Write the event logs of programs with seeded faults, and of healthy programs, on plain Spark.

``python -m tools.make_fault_logs FOLDER [NAME ...]`` writes ``FOLDER/NAME/``, a folder with one event log, per program.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tools.fault_programs import FAULTS, HEALTHY, Program

SMALL_FILES = 3000
ORDERS = 3_000_000
CODECS = ("zstd", "lz4", "snappy", "")
"""The compression of the logs, by turns; rolling logs and single files alternate too."""
DEFAULTS = {
    "spark.memory.fraction": "0.6",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
    "spark.sql.autoBroadcastJoinThreshold": "10MB",
    "spark.sql.shuffle.partitions": "200",
}
"""Spark's defaults of the settings that programs change: sessions of a process inherit the settings of earlier ones."""


def make_data(folder: Path) -> None:
    """Write the files that the programs read."""
    random = np.random.default_rng(7)
    for name in ("orders", "customers", "small-parquet", "small-csv"):
        (folder / name).mkdir(parents=True)
    part = ORDERS // 4
    for number in range(4):
        ids = np.arange(number * part, (number + 1) * part)
        columns = {"id": ids, "customer": random.integers(0, 10_000, part), "amount": random.random(part)}
        pq.write_table(pa.table(columns), folder / "orders" / f"{number}.parquet")
    customers = {"customer": np.arange(10_000), "country": np.arange(10_000) % 30}
    pq.write_table(pa.table(customers), folder / "customers" / "0.parquet")
    for number in range(SMALL_FILES):
        table = pa.table({"id": np.arange(200) + number, "value": random.random(200)})
        pq.write_table(table, folder / "small-parquet" / f"{number}.parquet")
        pyarrow.csv.write_csv(table, folder / "small-csv" / f"{number}.csv")


def write_log(program: Program, number: int, folder: Path, data: Path) -> None:
    """Run a program in a Spark application of its own, whose event log is in a folder."""
    logs = folder / program.name
    logs.mkdir(parents=True)
    codec = CODECS[number % len(CODECS)]
    settings = {
        "spark.master": "local[4]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": logs.as_uri(),
        "spark.eventLog.compress": str(bool(codec)).lower(),
        "spark.eventLog.compression.codec": codec or "zstd",
        "spark.eventLog.rolling.enabled": str(number % 2 == 0).lower(),
        **DEFAULTS,
        "spark.sql.warehouse.dir": (data / "warehouse").as_uri(),
        **program.settings,
    }
    builder = SparkSession.builder.appName(program.name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        program.run(spark, data)
    finally:
        spark.stop()


def make_logs(folder: Path, names: Sequence[str] = ()) -> None:
    """Write the logs of the named programs, or of all."""
    data = folder / "data"
    make_data(data)
    os.environ["PYSPARK_SUBMIT_ARGS"] = "--driver-memory 2g pyspark-shell"
    try:
        for number, program in enumerate([*FAULTS, *HEALTHY]):
            if not names or program.name in names:
                started = time.monotonic()
                write_log(program, number, folder, data)
                print(f"{program.name}: {time.monotonic() - started:.1f} s", flush=True)
    finally:
        shutil.rmtree(data)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    make_logs(arguments.folder, arguments.names)
