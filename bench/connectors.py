"""Compare reads with the parallelism that Penstock chooses with Spark's default and with hand-tuned reads.

Every variant runs once to warm up, then once per round; the first variant rotates. Every run compares counts and
checksums. Medians are written to bench/results/connectors.md, with a chart. The benchmark starts the servers itself.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ["PYSPARK_PYTHON"] = sys.executable
sys.path.insert(0, str(Path(__file__).parent.parent))

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock import Environment
from penstock.connectors import IcebergSource, KafkaSource, ObjectStoreSource, ScanContext
from provenance import DATE_AND_COMMIT, versions
from tests.support.services import KafkaBroker, Postgres, SeaweedFs, session_settings

HERE = Path(__file__).parent


def session(cores: int) -> SparkSession:
    builder = SparkSession.builder.master(f"local[{cores}]")
    for key, value in session_settings().items():
        builder = builder.config(key, value)
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    return builder.config("spark.driver.memory", "6g").config("spark.log.level", "ERROR").getOrCreate()


def count_and_checksum(df: DataFrame) -> DataFrame:
    """Return the row count and a checksum over all columns, as a single row."""
    return df.agg(F.count("*"), F.bit_xor(F.xxhash64(*df.columns)))


class Bench:
    def __init__(self, cores: int, rounds: int) -> None:
        self.spark = session(cores)
        self.env = Environment(self.spark, config={"execution.batch.adaptive.whole-query-threshold": 0}, progress=False)
        self.rounds = rounds
        self.tasks: dict[str, int] = {}

    def run_with_spark(self, df: DataFrame) -> tuple:
        return tuple(count_and_checksum(df).collect()[0])

    def run_with_penstock(self, df: DataFrame) -> tuple:
        row = tuple(self.env.collect(count_and_checksum(df))[0])
        self.tasks["Penstock"] = self.env.last_job.vertices[0].tasks
        return row

    def compare(self, variants: dict) -> dict[str, float]:
        """Return the median seconds of each variant."""
        times: dict[str, list[float]] = {name: [] for name in variants}
        expected = None
        for round_number in range(-1, self.rounds):
            names = list(variants)
            first = round_number % len(names)
            for name in names[first:] + names[:first]:
                start = time.perf_counter()
                checksum = variants[name]()
                seconds = time.perf_counter() - start
                if expected is not None and checksum != expected:
                    raise SystemExit(f"{name} returned {checksum} instead of {expected}")
                expected = checksum
                if round_number >= 0:
                    times[name].append(seconds)
        medians = {name: statistics.median(values) for name, values in times.items()}
        for name, seconds in medians.items():
            print(f"  {name}: {seconds:.2f} s", flush=True)
        return medians

    def jdbc(self, scale: float) -> tuple[str, dict[str, float]]:
        server = Postgres()
        try:
            with tempfile.TemporaryDirectory() as folder:
                generator = str(Path(sys.executable).parent / "tpchgen-cli")
                options = ["-s", str(scale), "-T", "lineitem", "--output-dir", folder]
                subprocess.run([generator, "csv", *options], check=True, capture_output=True)
                file = next(Path(folder).rglob("lineitem*.csv"))
                server.sql(
                    "create table lineitem (l_orderkey bigint, l_partkey bigint, l_suppkey bigint, l_linenumber int, l_quantity numeric(15,2),"
                    " l_extendedprice numeric(15,2), l_discount numeric(15,2), l_tax numeric(15,2), l_returnflag text, l_linestatus text,"
                    " l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct text, l_shipmode text, l_comment text)"
                )
                server.sql(f"\\copy lineitem from '{file}' with (format csv, header)")
            server.sql("create index on lineitem (l_orderkey); analyze lineitem")
            rows, low, high = server.sql("select count(*), min(l_orderkey), max(l_orderkey) from lineitem").split("|")

            def read(**options: str) -> DataFrame:
                options = {"url": server.url, "dbtable": "lineitem", **server.properties, **options}
                return self.spark.read.format("jdbc").options(**options).load()

            variants = {"Spark, default (1 task)": lambda: self.run_with_spark(read(fetchsize="10000"))}
            for count in ("2", "4", "8", "16", "64"):
                bounds = {"lowerBound": low, "upperBound": high}
                ranges = {"partitionColumn": "l_orderkey", "numPartitions": count, **bounds}
                variants[f"Spark, {count} ranges of l_orderkey by hand"] = lambda ranges=ranges: self.run_with_spark(
                    read(fetchsize="10000", **ranges)
                )
            variants["Penstock"] = lambda: self.run_with_penstock(read())
            return f"PostgreSQL, {int(rows):,} rows", self.compare(variants)
        finally:
            server.close()

    def kafka(self, records: int) -> tuple[str, dict[str, float]]:
        class SplitPerPartition(KafkaSource):
            def enumerate_splits(self, context: Any) -> Any:
                return self.ranges()

        broker = KafkaBroker()
        try:
            topic = broker.topic("hot", 6)
            broker.fill(topic, {0: records * 9 // 10} | dict.fromkeys(range(1, 6), records // 50))
            variants = {
                "a task per partition": lambda: self.run_with_spark(
                    SplitPerPartition(broker.servers, topic).read(self.spark).select("value", "offset")
                ),
                "Penstock": lambda: self.run_with_penstock(
                    self.env.read(KafkaSource(broker.servers, topic)).select("value", "offset")
                ),
            }
            return f"Kafka protocol, {records:,} records, 90 % in one of 6 partitions", self.compare(variants)
        finally:
            broker.close()

    def iceberg(self, files: int) -> tuple[str, dict[str, float]]:
        import pyarrow as pa
        import pyarrow.parquet as pq
        from pyiceberg.catalog import load_catalog

        with tempfile.TemporaryDirectory() as folder:
            catalog = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}"}
            loaded = load_catalog("default", **catalog)
            loaded.create_namespace("n")
            table = loaded.create_table("n.small", pa.schema([("id", pa.int64()), ("text", pa.string())]))
            paths = []
            for number in range(files):
                ids = range(number * 100, number * 100 + 100)
                paths.append(f"{folder}/f{number}.parquet")
                pq.write_table(
                    pa.table({"id": pa.array(ids, pa.int64()), "text": [f"text {i}" for i in ids]}), paths[-1]
                )
            table.add_files(paths)
            single = self.spark.newSession()
            single.conf.set("spark.sql.files.openCostInBytes", str(1 << 40))
            variants = {
                "a task per file": lambda: self.run_with_spark(single.read.parquet(*paths).select("id", "text")),
                "Penstock": lambda: self.run_with_penstock(
                    self.env.read(IcebergSource("n.small", catalog)).select("id", "text")
                ),
            }
            return f"Iceberg, {files:,} small files", self.compare(variants)

    def objects(self, files: int) -> tuple[str, dict[str, float]]:
        """Measure listing the objects and packing them into splits; nothing is read."""
        import pyarrow as pa
        import pyarrow.parquet as pq
        from pyarrow.fs import FileSelector

        store = SeaweedFs()
        try:
            system = store.filesystem()
            system.create_dir("bucket")
            buffer = pa.BufferOutputStream()
            pq.write_table(pa.table({"id": [1]}), buffer)
            content = buffer.getvalue()

            def put(number: int) -> None:
                with system.open_output_stream(f"bucket/t/day={number // 1000}/{number}.parquet") as out:
                    out.write(content)

            with ThreadPoolExecutor(16) as pool:
                list(pool.map(put, range(files)))

            def list_files() -> tuple:
                infos = system.get_file_info(FileSelector("bucket/t", recursive=True))
                return sum(info.is_file for info in infos), sum(info.size for info in infos if info.is_file)

            def plan_splits() -> tuple:
                source = ObjectStoreSource("s3://bucket/t", store.options)
                splits = source.enumerate_splits(ScanContext(1024, 16 << 20))
                self.tasks["Penstock"] = len(splits)
                return sum(map(len, splits)), sum(map(source.split_size, splits))

            variants = {"Arrow's listing": list_files, "Penstock": plan_splits}
            return f"S3 protocol, {files:,} objects listed and packed, not read", self.compare(variants)
        finally:
            store.close()


def chart(results: dict[str, dict[str, float]], path: Path) -> None:
    """Draw a panel for each case, with a bar for the seconds of each variant."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    heights = [len(medians) for medians in results.values()]
    figure, panels = plt.subplots(
        len(results), figsize=(8, 0.32 * sum(heights) + 0.7 * len(heights)), height_ratios=heights, squeeze=False
    )
    for axes, (about, medians) in zip(panels[:, 0], results.items(), strict=True):
        colors = ["#1f7a8c" if variant == "Penstock" else "#c8553d" for variant in medians]
        bars = axes.barh(list(medians), list(medians.values()), color=colors)
        axes.bar_label(bars, fmt="%.1f s", padding=3, fontsize=8)
        axes.set_title(about, fontsize=9, loc="left")
        axes.tick_params(labelsize=8)
        axes.margins(x=0.12)
        axes.invert_yaxis()
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument(
        "--scale", type=float, default=1, help="TPC-H scale of the table in PostgreSQL; 1 has 6 million rows"
    )
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--objects", type=int, default=100_000)
    parser.add_argument("--cases", default="jdbc,kafka,iceberg,objects")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    bench = Bench(arguments.cores, arguments.rounds)
    sizes = {
        "jdbc": arguments.scale,
        "kafka": arguments.records,
        "iceberg": arguments.files,
        "objects": arguments.objects,
    }
    lines = [
        (
            f"Sources, {DATE_AND_COMMIT}: a run to warm up and {arguments.rounds} counted, medians. "
            f"{versions()}, local[{arguments.cores}], servers on the same "
            f"{os.cpu_count()} cores. Penstock: all options at their defaults."
        ),
        "",
        "| table | variant | tasks of Penstock | seconds | times as fast with Penstock |",
        "|---|---|--:|--:|--:|",
    ]
    results = {}
    for case in arguments.cases.split(","):
        print(case, flush=True)
        about, medians = getattr(bench, case)(sizes[case])
        results[about] = medians
        for name, seconds in medians.items():
            tasks = str(bench.tasks["Penstock"]) if name == "Penstock" else ""
            lines.append(f"| {about} | {name} | {tasks} | {seconds:.2f} | {seconds / medians['Penstock']:.2f} |")
    text = "\n".join(lines) + "\n"
    (arguments.output / "connectors.md").write_text(text)
    print(text)
    chart(results, arguments.output / "connectors.png")


if __name__ == "__main__":
    main()
