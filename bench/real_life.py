"""Compare 63 queries over data as people have it on Spark with AQE, Penstock without and with DuckDB, and DuckDB alone.

They are web analytics (W1 to W43), groups (G1 to G10) and joins (J1 to J5) of keys with doubles, and a pipeline of JSON
events with Python functions (E1 to E5). `compare.py` measures them; DuckDB alone skips the pipeline. Tables and a chart are
written to bench/results; --resume continues an interrupted run.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import real_life_data
import real_life_events
from compare import HERE, Query, add_arguments, bench_of
from comparison_table import SYSTEMS, Times, chart, is_native, ratios, table

QUERIES = HERE / "queries"
SYSTEMS_COMPARED = ("spark", "steps", "penstock", "duckdb")
WORKLOADS = {"web": "W", "groups": "G", "joins": "J", "events": "E"}
"""The first letter of the queries of each workload."""


def queries() -> dict[str, Query]:
    """Return all queries by name; those in SQL are in files of the folder ``queries``."""
    in_python = {name: Query(dataframe) for name, dataframe in real_life_events.QUERIES.items()}
    return queries_of("web") | queries_of("groups") | queries_of("joins") | in_python


def queries_of(file: str) -> dict[str, Query]:
    """Return the queries of a file of the folder ``queries`` by name."""
    texts = re.findall(r"^-- (\w+): .*\n([^;]*);", (QUERIES / f"{file}.sql").read_text(), re.MULTILINE)
    return {name: Query(text, text) for name, text in texts}


def selected(names: Iterable[str], only: str | None) -> list[str]:
    """Return the names that `only` lists, by themselves or by their workload; all names if it is None.

    Raises
    ------
    SystemExit
        If a listed name is neither a query nor a workload.
    """
    names = list(names)
    if only is None:
        return names
    listed = only.split(",")
    unknown = set(listed) - set(names) - set(WORKLOADS)
    if unknown:
        raise SystemExit(f"neither a query nor a workload ({', '.join(WORKLOADS)}): {', '.join(sorted(unknown))}")
    letters = {WORKLOADS[workload] for workload in listed if workload in WORKLOADS}
    return [name for name in names if name in listed or name[0] in letters]


def by_workload(times: Times) -> dict[str, Times]:
    """Return the measured queries of each workload that has some."""
    workloads = {
        workload: {name: measured for name, measured in times.items() if name[0] == letter}
        for workload, letter in WORKLOADS.items()
    }
    return {workload: measured for workload, measured in workloads.items() if measured}


def summary(times: Times, about: str) -> str:
    """Return a table with a row for each workload: seconds, geometric means, the slowest query, the native share."""
    systems = [name for name in SYSTEMS if any(t.get(name) for t in times.values())]
    bases = [name for name in systems if name not in {"spark", "penstock"}]
    headers = [
        "workload",
        "queries",
        *(f"{SYSTEMS[name]}, s" for name in systems),
        "times as fast as Spark, AQE",
        "slowest query, times as fast as Spark, AQE",
        *(f"times as fast as {SYSTEMS[name]}" for name in bases),
        "Penstock without DuckDB, times as fast as Spark, AQE",
        "executed natively",
    ]
    lines = [about, "", f"| {' | '.join(headers)} |", "|---" + "|--:" * (len(headers) - 1) + "|"]
    for workload, measured in {**by_workload(times), "all": times}.items():
        speedups = ratios(measured, "spark")
        cells = [workload, str(len(measured))]
        cells += [total(measured, name) for name in systems]
        cells += [mean(speedups), f"{min(speedups):.2f}", *(mean(ratios(measured, name)) for name in bases)]
        cells += [
            mean(ratios(measured, "spark", "steps")),
            f"{sum(map(is_native, measured.values()))} of {len(measured)}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def total(times: Times, system: str) -> str:
    """Return the sum of the medians of a system; empty if it did not run all queries."""
    if not all(by_name.get(system) for by_name in times.values()):
        return ""
    return f"{sum(statistics.median(by_name[system]) for by_name in times.values()):.1f}"


def mean(values: list[float]) -> str:
    """Return a geometric mean; empty without values."""
    return f"{statistics.geometric_mean(values):.2f}" if values else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rows", type=int, default=real_life_data.DEFAULT_ROWS, help="rows of the hits; others grow with it"
    )
    parser.add_argument("--data", type=Path, default=HERE.parent / "data", help="the folder for the generated tables")
    parser.add_argument(
        "--only", help=f"queries or workloads ({', '.join(WORKLOADS)}), separated by commas (default: all)"
    )
    add_arguments(parser)
    arguments = parser.parse_args()
    all_queries = queries()
    names = selected(all_queries, arguments.only)
    data = real_life_data.make(arguments.data, arguments.rows)
    bench = bench_of(arguments, data, SYSTEMS_COMPARED)
    name = "real_life" if arguments.rows == real_life_data.DEFAULT_ROWS else f"real_life-{arguments.rows}"
    saved = arguments.output / f"{name}.json"
    chosen = {query: all_queries[query] for query in names}
    times = bench.measure(chosen, arguments.rounds, saved, resume=arguments.resume)
    times = {query: times[query] for query in all_queries if query in times}
    counts = ", ".join(f"{count:,} {rows}" for rows, count in real_life_data.row_counts(arguments.rows).items())
    for workload, measured in by_workload(times).items():
        bench.write(arguments.output, f"{name}-{workload}", counts, measured, partial(table, reasons=True))
    chart(times, name, arguments.output / f"{name}.png")
    print(bench.write(arguments.output, name, counts, times, summary))


if __name__ == "__main__":
    main()
