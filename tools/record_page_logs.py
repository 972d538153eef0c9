"""Record the event logs of real jobs for the tests of the web pages.

The jobs are TPC-H 5 (twice), 9, 18 and 21, and TPC-DS 64 (twice), at scale 1. Their logs are written to tests/web/logs,
without host names or paths of this machine. Afterwards, run the tests of the pages, and check their pictures.
"""

from __future__ import annotations

import gzip
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from penstock import Environment

ROOT = Path(__file__).parent.parent
LOGS = ROOT / "tests" / "web" / "logs"
DATA = ROOT / "data"
QUERIES = (
    ("TPC-H", "5"),
    ("TPC-H", "9"),
    ("TPC-H", "18"),
    ("TPC-H", "21"),
    ("TPC-DS", "64"),
    ("TPC-H", "5"),
    ("TPC-DS", "64"),
)
PUBLISHED_FOLDER = "/logs/penstock"


def anonymize(lines: Iterator[str], folder: str) -> Iterator[str]:
    """Yield the lines of a log without host names and paths of this machine."""
    for line in lines:
        text = line.replace(folder, PUBLISHED_FOLDER).replace(str(ROOT), "/home/user")
        text = re.sub(r'"host":"[\w.-]+"', '"host":"driver"', text)
        yield re.sub(r"http://[\w.-]+:(\d+)", r"http://driver:\1", text)


def main() -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.driver.memory", "6g").getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        for benchmark, number in QUERIES:
            name = benchmark.replace("-", "").lower()
            for file in sorted((DATA / f"{name}-1").glob("*.parquet")):
                spark.read.parquet(str(file)).createOrReplaceTempView(file.stem)
            text = json.loads((DATA / "queries" / f"{name}.json").read_text())[number]
            env = Environment(spark, config={"jobmanager.archive.fs.dir": folder}, progress=False)
            env.collect(spark.sql(text), name=f"{benchmark} Q{number}")
        spark.stop()
        for previous in LOGS.glob("*.gz"):
            previous.unlink()
        for log in sorted(Path(folder).glob("*.jsonl")):
            with log.open() as lines, gzip.open(LOGS / f"{log.name}.gz", "wt") as archive:
                archive.writelines(anonymize(lines, folder))


if __name__ == "__main__":
    main()
