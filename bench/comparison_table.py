"""Tables and charts of the systems that `compare.py` and `real_life.py` measure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path

from sail import VERSION

SYSTEMS = {
    "spark": "Spark, AQE",
    "tuned": "Spark, tuned",
    "statistics": "Spark, statistics and CBO",
    "steps": "Penstock without DuckDB",
    "penstock": "Penstock",
    "native": "Penstock with execution.native",
    "sail": f"Sail {VERSION}",
    "duckdb": "DuckDB alone",
    "verified": "Penstock with execution.verify",
}
NATIVE_RATIO = 0.5
"""A query is executed natively if Spark's own tasks process at most this ratio of the rows that plain Spark processes."""
Times = Mapping[str, Mapping[str, list]]
"""For each query, the seconds of each system, their work, and what else `Bench.query` returns."""


def label(query: str) -> str:
    """Return the name of a query in tables and charts."""
    return f"Q{query}" if query.isdigit() else query


def ratios(times: Times, base: str, system: str = "penstock") -> list[float]:
    """Return how many times as fast as `base` a system is, for each query that both ran."""
    both = [t for t in times.values() if t.get(base) and t.get(system)]
    return [statistics.median(t[base]) / statistics.median(t[system]) for t in both]


def is_native(measured: Mapping[str, list]) -> bool:
    """Whether most of a query was executed natively, by the rows that the tasks of finished stages have processed."""
    rows = {name: statistics.median(run[-1] for run in measured["work"][0][name]) for name in ("spark", "penstock")}
    return rows["penstock"] <= NATIVE_RATIO * rows["spark"]


def table(times: Times, about: str, *, reasons: bool = False) -> str:
    """Return a table with a row for each query; with `reasons`, it says what was executed natively, or why not."""
    systems = [name for name in SYSTEMS if any(t.get(name) for t in times.values())]
    others = [name for name in systems if name != "penstock"]
    measured = [name for name in systems if all(name in t.get("work", [{}])[0] for t in times.values())]
    headers = [
        "query",
        "counted runs",
        "vertices",
        *(f"{SYSTEMS[name]}, s" for name in systems),
        *(f"times as fast as {SYSTEMS[name]}" for name in others),
        *(("executed natively", "reason") if reasons else ()),
    ]
    headers += [f"{SYSTEMS[name]}: CPU seconds, MiB shuffled, MiB spilled" for name in measured]
    alignments = ["---" if header in {"query", "reason"} else "--:" for header in headers]
    lines = [about, "", _row(headers), f"|{'|'.join(alignments)}|"]
    work = {name: [0.0] * 3 for name in measured}
    for query, by_name in times.items():
        seconds = {name: statistics.median(by_name[name]) for name in systems if by_name.get(name)}
        cells = [
            label(query),
            str(len(by_name["penstock"])),
            str(by_name["vertices"][0] if by_name["vertices"] else ""),
        ]
        cells += [f"{seconds[name]:.2f}" if name in seconds else "" for name in systems]
        cells += [f"{seconds[name] / seconds['penstock']:.2f}" if name in seconds else "" for name in others]
        if reasons:
            native = is_native(by_name)
            cells += ["yes" if native else "no", "" if native else by_name["reason"][0].replace("|", "/")]
        for name in measured:
            medians = [statistics.median(column) for column in zip(*by_name["work"][0][name], strict=True)]
            cells.append(_work(medians[0], *medians[2:4]))
            work[name] = [total + value for total, value in zip(work[name], (medians[0], *medians[2:4]), strict=True)]
        lines.append(_row(cells))
    complete = [name for name in systems if all(t.get(name) for t in times.values())]
    totals = {name: sum(statistics.median(t[name]) for t in times.values()) for name in complete}
    cells = ["**all**", "", "", *(f"**{totals[name]:.1f}**" if name in complete else "" for name in systems)]
    cells += [f"**{totals[name] / totals['penstock']:.2f}**" if name in complete else "" for name in others]
    if reasons:
        cells += [f"**{sum(map(is_native, times.values()))} of {len(times)}**", ""]
    lines.append(_row([*cells, *(f"**{_work(*work[name], cpu_digits=0)}**" for name in measured)]))
    means = (f"**{statistics.geometric_mean(ratios(times, name)):.2f}**" for name in others)
    cells = ["**geometric mean**", "", "", *("" for _ in systems), *means]
    lines.append(_row([*cells, *("" for _ in headers[len(cells) :])]))
    return "\n".join(lines) + "\n"


def _work(cpu: float, shuffled: float, spilled: float, *, cpu_digits: int = 1) -> str:
    return f"{cpu:.{cpu_digits}f}, {shuffled:.0f}, {spilled:.0f}"


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def chart(times: Times, title: str, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    speedups = ratios(times, "spark")
    mean = statistics.geometric_mean(speedups)
    figure, axes = plt.subplots(figsize=(max(7, 0.24 * len(times) + 3), 3.6))
    axes.bar(range(len(speedups)), speedups, color=["#1f7a8c" if ratio >= 1 else "#c8553d" for ratio in speedups])
    axes.axhline(1, color="#333", linewidth=0.8)
    axes.axhline(mean, color="#1f7a8c", linewidth=0.8, linestyle="--")
    axes.set_xticks(range(len(speedups)), list(map(label, times)), rotation=90 if len(speedups) > 30 else 0, fontsize=7)
    axes.set_ylabel("times as fast as Spark, AQE")
    axes.set_title(f"{title}: geometric mean {mean:.2f}", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
