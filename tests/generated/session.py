"""The Spark session of the command; tests have their own session."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.support.services import session_settings


def make_session(folder: Path):
    """Start a small session with its files below a folder."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    settings = session_settings() | {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": "5",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.sql.codegen.cache.maxEntries": "500",
        "spark.python.worker.reuse": "true",
    }
    settings["spark.driver.extraJavaOptions"] += f" -Dderby.system.home={folder}"
    builder = SparkSession.builder.master("local[2]").appName("generated pipelines")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
