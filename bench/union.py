"""Compare the tasks of a union of sources: the sum of the sources' tasks, and tasks merged to their maximum (FLIP-379).

Each file is a split. The merged tasks are those of ``coalesce``, which is how Spark could run the maximum.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from functools import reduce
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from processes import cpu_seconds
from provenance import DATE_AND_COMMIT, versions

HERE = Path(__file__).parent
CASES = {
    "two equal sources": ("large", [4, 4]),
    "three equal sources": ("large", [4, 4, 4]),
    "a large source and two small ones": ("large", [8, 2, 2]),
    "three sources with a task each": ("large", [1, 1, 1]),
    "twelve sources with a tiny file each": ("tiny", [1] * 12),
}
"""The folder of the files, and the number of files, hence tasks, of each source."""
FILES = 12


def query(spark: SparkSession, folder: Path, sources: list[int], tasks: int | None) -> DataFrame:
    """Return an aggregate over a union of sources, whose tasks are merged to `tasks` if it is not None."""
    files = [str(path) for path in sorted(folder.glob("*.parquet"))]
    starts = [sum(sources[:index]) for index in range(len(sources))]
    scans = [spark.read.parquet(*files[start : start + n]) for start, n in zip(starts, sources, strict=True)]
    union = reduce(DataFrame.union, scans)
    rows = union if tasks is None else union.coalesce(tasks)
    return rows.groupBy("team").agg(F.count("*").alias("n"), F.sum("v").alias("v"), F.max("pad").alias("pad"))


def measure(df: DataFrame) -> tuple[float, float, list[str]]:
    """Run a query; return the wall and CPU seconds, and its rows."""
    start, cpu = time.perf_counter(), cpu_seconds(os.getpid())
    rows = df.collect()
    return time.perf_counter() - start, cpu_seconds(os.getpid()) - cpu, sorted(map(str, rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.files.maxPartitionBytes", "64m")
        .getOrCreate()
    )
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        columns = "id % 10 as team", "id as v", "substr(sha1(string(id)), 1, 12) as pad"
        for name, rows in (("large", arguments.rows), ("tiny", 1000 * FILES)):
            spark.range(0, rows, 1, FILES).selectExpr(*columns).write.parquet(f"{folder}/{name}")
        size = sum(file.stat().st_size for file in Path(folder, "large").glob("*.parquet")) / FILES / 2**20
        for case, (name, sources) in CASES.items():
            variants = {"sum": None, "maximum": max(sources)}
            times: dict[str, list[tuple[float, float]]] = {variant: [] for variant in variants}
            rows_read: dict[str, list[str]] = {}
            for round_number in range(-1, arguments.rounds):
                for variant in list(variants)[:: 1 if round_number % 2 else -1]:
                    df = query(spark, Path(folder, name), sources, variants[variant])
                    seconds, cpu, rows_read[variant] = measure(df)
                    if round_number >= 0:
                        times[variant].append((seconds, cpu))
            if rows_read["sum"] != rows_read["maximum"]:
                raise SystemExit(f"{case}: the rows differ")
            medians = {
                variant: [statistics.median(column) for column in zip(*values, strict=True)]
                for variant, values in times.items()
            }
            (wall, cpu), (merged_wall, merged_cpu) = medians["sum"], medians["maximum"]
            lines.append(
                f"| {case} | {sum(sources)} | {max(sources)} | {wall:.2f} | {merged_wall:.2f} "
                f"| {wall / merged_wall:.2f} | {cpu:.2f} | {merged_cpu:.2f} |"
            )
            print(lines[-1], flush=True)
    write(lines, arguments, size)


def write(lines: list[str], arguments: argparse.Namespace, size: float) -> None:
    data = f"{arguments.rows:,} rows in {FILES} files of {size:.0f} MiB, or {FILES} tiny files"
    runs = f"a run to warm up and {arguments.rounds} counted, medians"
    head = [
        f"{data}, {DATE_AND_COMMIT}: {runs}. {versions()}, local[2]. CPU seconds include the JVM's compiler.",
        "",
        "| case | tasks, sum | tasks, maximum | sum, s | maximum, s | maximum, times as fast | sum, CPU s | maximum, CPU s |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    (HERE / "results" / "union.md").write_text("\n".join([*head, *lines]) + "\n")


if __name__ == "__main__":
    main()
