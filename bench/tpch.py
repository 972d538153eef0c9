"""TPC-H through Penstock and through plain Spark with AQE, alternating in one process; medians, a table and a chart.

The whole-query shortcut is off and no strategy is on: this measures what deciding costs, not what it wins.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = sys.executable

import pyspark
from pyspark.sql import SparkSession

import penstock
from penstock import Environment

HERE = Path(__file__).parent


def session(cores: int, memory: str) -> SparkSession:
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", memory)
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    return spark


def timed(run) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measure(spark: SparkSession, env: Environment, queries: dict[str, str], rounds: int) -> dict[str, dict[str, list[float]]]:
    times = {number: {"spark": [], "penstock": [], "vertices": []} for number in queries}
    for round_number in range(-1, rounds):  # one round to warm up
        for number, text in queries.items():
            runs = [("spark", lambda t=text: spark.sql(t).collect()), ("penstock", lambda t=text: env.collect(spark.sql(t)))]
            if round_number % 2:
                runs.reverse()
            for name, run in runs:
                seconds = timed(run)
                if round_number >= 0:
                    times[number][name].append(seconds)
            times[number]["vertices"] = [len(env.last_job.vertices)]
            if round_number >= 0:
                last = {name: times[number][name][-1] for name, _ in runs}
                print(f"round {round_number + 1} Q{number}: spark {last['spark']:.2f} s, penstock {last['penstock']:.2f} s", flush=True)
    return times


def table(times: dict[str, dict[str, list[float]]], about: str) -> str:
    lines = [about, "", "| query | vertices | Spark AQE, s | Penstock, s | ratio |", "|---|--:|--:|--:|--:|"]
    totals = [0.0, 0.0]
    for number, by_name in times.items():
        spark, ours = (statistics.median(by_name[name]) for name in ("spark", "penstock"))
        totals = [totals[0] + spark, totals[1] + ours]
        lines.append(f"| Q{number} | {by_name['vertices'][0]} | {spark:.2f} | {ours:.2f} | {ours / spark:.2f} |")
    lines.append(f"| **all** | | **{totals[0]:.2f}** | **{totals[1]:.2f}** | **{totals[1] / totals[0]:.2f}** |")
    return "\n".join(lines) + "\n"


def chart(times: dict[str, dict[str, list[float]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = [f"Q{number}" for number in times]
    figure, axes = plt.subplots(figsize=(11, 4))
    for offset, (name, label, colour) in enumerate((("spark", "Spark, AQE", "#9aa5b1"), ("penstock", "Penstock", "#1f7a8c"))):
        heights = [statistics.median(times[number][name]) for number in times]
        axes.bar([i + 0.4 * offset for i in range(len(names))], heights, 0.4, label=label, color=colour)
    axes.set_xticks([i + 0.2 for i in range(len(names))], names)
    axes.set_ylabel("seconds, median")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder of TPC-H parquet files")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="6g")
    parser.add_argument("--queries", help="numbers separated by commas, all if left out")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    queries = json.loads((arguments.data.parent / "queries" / "tpch.json").read_text())
    numbers = arguments.queries.split(",") if arguments.queries else sorted(queries, key=int)
    spark = session(arguments.cores, arguments.memory)
    for file in sorted(arguments.data.glob("*.parquet")):
        spark.read.parquet(str(file)).createOrReplaceTempView(file.stem)
    env = Environment(spark, config={"execution.batch.adaptive.whole-query-threshold": 0}, progress=False)
    times = measure(spark, env, {number: queries[number] for number in numbers}, arguments.rounds)
    about = (
        f"{arguments.data.name}, {arguments.rounds} rounds, {datetime.date.today()}: PySpark {pyspark.__version__}, "
        f"Penstock {penstock.__version__}, Python {platform.python_version()}, local[{arguments.cores}], "
        f"{arguments.memory} driver, {platform.machine()} with {os.cpu_count()} cores. Strategies off, whole-query shortcut off."
    )
    arguments.output.mkdir(parents=True, exist_ok=True)
    text = table(times, about)
    (arguments.output / f"{arguments.data.name}.md").write_text(text)
    (arguments.output / f"{arguments.data.name}.json").write_text(json.dumps(times, indent=1))
    chart(times, arguments.output / f"{arguments.data.name}.png")
    print(text)


if __name__ == "__main__":
    main()
