"""Compare short queries, which read 1 to 30 MB, on Spark with AQE and on Penstock.

They are those of TPC-H and TPC-DS at scale 0.1, lookups and small aggregates of TPC-H's tables as of a dashboard (D1 to
D16), and those of `real_life.py` over fewer rows. `compare.py` measures them. A table and a chart are written to bench/results.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import real_life
import real_life_data
from compare import HERE, Query, add_arguments, bench_of
from comparison_table import Times, chart, ratios, table

SYSTEMS_COMPARED = ("spark", "penstock")
ROWS = 150_000
"""The number of hits: all tables of `real_life_data.py` together then have 20 MB."""
SLOWER = 0.9
"""Below this ratio of Spark's speed, the summary names a query."""


def benchmarks(folder: Path) -> dict[str, tuple[Path, dict[str, Query]]]:
    """Return the tables and the queries of each benchmark; `folder` has those of TPC-H and TPC-DS."""
    benchmarks_by_name = {}
    for name in ("tpch", "tpcds"):
        texts = json.loads((folder / "queries" / f"{name}.json").read_text())
        queries = {f"{name}-{number}": Query(texts[number]) for number in sorted(texts, key=int)}
        benchmarks_by_name[name] = folder / f"{name}-0.1", queries
    benchmarks_by_name["tpch"][1].update(real_life.queries_of("dashboard"))
    return {**benchmarks_by_name, "real life": (real_life_data.make(folder, ROWS), real_life.queries())}


def with_summary(times: Times, about: str) -> str:
    """Return a table with a row for each query, below the median, the extremes and the slower queries."""
    speedups = dict(zip(times, ratios(times, "spark"), strict=True))
    slower = [f"{name} {ratio:.2f}" for name, ratio in speedups.items() if ratio < SLOWER]
    summary = (
        f"{about}\n\n{len(times)} queries, times as fast as Spark: median {statistics.median(speedups.values()):.2f}, "
        f"{min(speedups.values()):.2f} to {max(speedups.values()):.2f}. "
        f"Below {SLOWER}: {', '.join(slower) or 'none'}."
    )
    return table(times, summary)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=HERE.parent / "data", help="the folder of the benchmarks' data")
    add_arguments(parser)
    arguments = parser.parse_args()
    times: dict[str, dict[str, list]] = {}
    saved = arguments.output / "short-queries.json"
    for data, queries in benchmarks(arguments.data).values():
        bench = bench_of(arguments, data, SYSTEMS_COMPARED)
        measured = bench.measure(queries, arguments.rounds, saved, resume=arguments.resume or bool(times))
        times |= {name: measured[name] for name in queries}
    print(bench.write(arguments.output, saved.stem, "TPC-H and TPC-DS at scale 0.1, real life", times, with_summary))
    chart(times, saved.stem, arguments.output / f"{saved.stem}.png")


if __name__ == "__main__":
    main()
