"""Compare file sizes and seconds of a partitioned write with plain Spark; 80 % of the rows are in a single partition.

Every variant runs once to warm up, then once per round; the first variant rotates. Count and checksum of every output
are compared. Medians are written to bench/results/write.md, with a chart.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent.parent))

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bench.connectors import count_and_checksum, session
from penstock import Environment
from penstock.connectors import FileSink
from provenance import DATE_AND_COMMIT, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


HERE = Path(__file__).parent
MIB = 1 << 20


def create_input(spark: SparkSession, rows: int, folder: Path) -> DataFrame:
    """Return rows of files that are not partitioned."""
    spark.range(0, rows, 1, 16).select(
        "id",
        F.expr("if(id % 5 > 0, 'hot', concat('k', id div 5 % 4))").alias("kind"),
        F.expr("sha1(string(id))").alias("hash"),
        F.expr("cast(rand(7) * 1000 as decimal(9, 2))").alias("price"),
        F.expr("date_add(date '2024-01-01', int(id % 365))").alias("day"),
    ).write.parquet(str(folder))
    return spark.read.parquet(str(folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--rows", type=int, default=16_000_000)
    parser.add_argument("--target", type=int, default=16, help="target size of the files, in MiB")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    target = arguments.target * MIB
    spark = session(arguments.cores)
    env = Environment(spark, config={"sink.target-file-size": target}, progress=False)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = create_input(spark, arguments.rows, folder / "in")
        expected = count_and_checksum(rows.select(sorted(rows.columns))).collect()

        def write_by_penstock(out: str) -> None:
            env.write(rows, FileSink(out, partition_by=["kind"]))
            env.execute()

        def rebalance(out: str, advisory: str) -> None:
            spark.conf.set("spark.sql.adaptive.advisoryPartitionSizeInBytes", advisory)
            rows.hint("rebalance", "kind").write.partitionBy("kind").parquet(out)
            spark.conf.unset("spark.sql.adaptive.advisoryPartitionSizeInBytes")

        variants = {
            "Spark, repartition(kind)": lambda out: rows.repartition("kind").write.partitionBy("kind").parquet(out),
            "Spark, REBALANCE hint": lambda out: rebalance(out, "64m"),
            f"Spark, REBALANCE hint, advisory {arguments.target} MiB": lambda out: rebalance(
                out, f"{arguments.target}m"
            ),
            "Spark, no exchange": lambda out: rows.write.partitionBy("kind").parquet(out),
            "Penstock": write_by_penstock,
        }
        times: dict[str, list[float]] = {variant: [] for variant in variants}
        sizes: dict[str, list[int]] = {}
        for round_number in range(-1, arguments.rounds):
            names = list(variants)
            first = round_number % len(names)
            for variant in names[first:] + names[:first]:
                out = folder / "out"
                start = time.perf_counter()
                variants[variant](str(out))
                seconds = time.perf_counter() - start
                file_sizes = [file.stat().st_size for file in out.rglob("*.parquet")]
                written = spark.read.parquet(str(out))
                if count_and_checksum(written.select(sorted(written.columns))).collect() != expected:
                    raise SystemExit(f"{variant} wrote different rows")
                shutil.rmtree(out)
                sizes[variant] = file_sizes
                if round_number >= 0:
                    times[variant].append(seconds)
                    print(f"  {variant}: {seconds:.2f} s, {len(file_sizes)} files", flush=True)
    report(times, sizes, target, arguments)


def report(
    times: dict[str, list[float]], sizes: dict[str, list[int]], target: int, arguments: argparse.Namespace
) -> None:
    lines = [
        (
            f"Write of {arguments.rows:,} rows, 80 % in one of 5 partitions, {DATE_AND_COMMIT}: a run to warm up and "
            f"{arguments.rounds} counted, medians. "
            f"{versions()}, local[{arguments.cores}]. Target: files of {arguments.target} MiB."
        ),
        "",
        "| variant | seconds | files | smallest, MiB | largest, MiB | within 0.75 to 1.25 of the target |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for variant, seconds in times.items():
        file_sizes = sizes[variant]
        near_target = sum(0.75 * target <= size <= 1.25 * target for size in file_sizes) / len(file_sizes)
        lines.append(
            f"| {variant} | {statistics.median(seconds):.1f} | {len(file_sizes)} | {min(file_sizes) / MIB:.1f} | {max(file_sizes) / MIB:.1f} | {near_target:.0%} |"
        )
    text = "\n".join(lines) + "\n"
    (arguments.output / "write.md").write_text(text)
    print(text)
    chart(times, sizes, target, arguments.output / "write.png")


def chart(times: dict[str, list[float]], sizes: dict[str, list[int]], target: int, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 3.4))
    for row, variant in enumerate(times):
        mib = [size / MIB for size in sizes[variant]]
        axes.scatter(mib, [row] * len(mib), s=14, alpha=0.5, color="#1f7a8c" if variant == "Penstock" else "#c8553d")
    axes.axvspan(0.75 * target / MIB, 1.25 * target / MIB, color="#1f7a8c", alpha=0.12, linewidth=0)
    axes.set_yticks(
        range(len(times)),
        [f"{variant}, {statistics.median(seconds):.1f} s" for variant, seconds in times.items()],
        fontsize=8,
    )
    axes.set_xscale("log")
    axes.set_xlabel("MiB of each file; shaded: within a quarter of the target")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
