"""Figures of speed in the docs come from the tables in bench/results, and equal them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench import provenance
from tools import figures
from tools.figures import PAGES, RESULTS, ROOT, Table

SINCE = "2026-11-28"
"""First day of tables that contain their commit."""
PAGE = """tpch-10, 2026-11-28, commit 1a2b3c4+: one run to warm up and 3 counted.

| query | counted runs | Spark, s | ratio | Spark: CPU seconds, MiB |
|---|--:|--:|--:|--:|
| Q1 | 3 | 3.46 | 4.49 | 1,596, 19534 |
| Q2 | 3 | 0.14 | 0.57 | 1.5, 4 |
| Q3 | 2 | 30.10 | 77.06 | 0.2, 0 |
| **all** |  | **33.7** | **6.92** | |
"""


@pytest.mark.parametrize(
    ("rows", "column", "shape", "expected"),
    [
        ("all", "Spark, s", ".0f", "34"),
        ("Q1", "ratio", ".1f", "4.5"),
        ("Q1", "ratio", "text", "4.49"),
        ("Q2", "Spark: CPU seconds, MiB", ".1f", "1.5"),
        ("min", "ratio", ".2f", "0.57"),
        ("max", "ratio", ".0f", "77"),  # totals are not rows
        ("range", "counted runs", ".0f", "2 to 3"),
        ("range where counted runs = 3", "counted runs", ".0f", "3"),
        ("range where counted runs = 3", "ratio", ".0%", "57% to 449%"),
        ("max where counted runs = 3 & Spark, s = 0.14", "ratio", ".2f", "0.57"),
        ("names below 1", "ratio", "", "Q2"),
        ("names below 5", "ratio", "", "Q1, Q2"),
        ("names below 0.5", "ratio", "", "none"),
    ],
)
def test_figures_of_a_table(rows: str, column: str, shape: str, expected: str) -> None:
    assert Table(PAGE).figure(rows, column, shape) == expected


@pytest.mark.parametrize(
    ("rows", "column", "message"),
    [
        ("Q9", "ratio", "0 rows match 'Q9'"),
        ("Q1", "ratios", "there is no column 'ratios'"),
        ("only where counted runs = 3", "ratio", "2 rows match"),
        ("min where counted runs = 7", "ratio", "0 rows match"),
    ],
)
def test_a_figure_without_a_row_or_column_is_an_error(rows: str, column: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Table(PAGE).figure(rows, column, ".1f")


def test_figures_of_a_page_are_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "table", lambda name: {"a/b": Table(PAGE)}[name])
    before = "**<!-- bench: a/b; all; ratio; .1f -->3<!-- end -->** times (<!-- bench: a/b; measured --><!-- end -->)"
    after = "**<!-- bench: a/b; all; ratio; .1f -->6.9<!-- end -->** times (<!-- bench: a/b; measured -->2026-11-28, commit 1a2b3c4+<!-- end -->)"
    assert figures.fill_in(before) == figures.fill_in(after) == after
    assert figures.unsourced_claims(after) == []


@pytest.mark.parametrize(
    "claim",
    [
        "The queries ran **6.1** times as fast as on Spark.",
        "It is 2 times faster.",
        "It is 3x faster.",
        "A shuffle takes 1.4 times as long.",
        "758 s became\n99 s in all.",
        "All queries took 21.9 and 2.7 s on two cores.",
        "The total was 174 s instead of 315 s.",
    ],
)
def test_a_claim_of_speed_without_a_table_is_reported(claim: str) -> None:
    assert figures.unsourced_claims(claim)
    assert not figures.unsourced_claims(f"```\n{claim}\n```\n")


@pytest.mark.parametrize(
    "sentence",
    [
        "The job waits for up to 0.8 s.",
        "`sources.timeout` (60 s) limits it.",
        "A batch is read 3 times.",
        "It takes 16 MiB for each task.",
    ],
)
def test_a_limit_is_not_a_claim_of_speed(sentence: str) -> None:
    assert not figures.unsourced_claims(sentence)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_figures_of_pages_equal_the_tables(path: Path) -> None:
    text = path.read_text()
    assert figures.fill_in(text) == text, "run `make docs`"
    assert figures.unsourced_claims(text) == []


LINKED = sorted({name for path in PAGES for name in re.findall(r"<!-- bench: ([^;]+);", path.read_text())})


@pytest.mark.parametrize("name", LINKED)
def test_a_cited_table_has_date_commit_and_versions(name: str) -> None:
    text = (RESULTS / f"{name}.md").read_text()
    measurements = Table(text).dates_and_commits
    assert measurements
    assert "PySpark " in text
    assert all("commit" in measurement for measurement in measurements if measurement >= SINCE)


def test_the_commit_of_a_changed_work_tree_ends_with_a_plus(tmp_path: Any) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    results = tmp_path / "bench" / "results"
    results.mkdir(parents=True)
    (results / "a.md").write_text("1")
    (tmp_path / "code.py").write_text("1")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "all")
    head = git("rev-parse", "--short", "HEAD")
    assert provenance.commit(tmp_path) == head
    (results / "a.md").write_text("2")  # results are not part of the measured code
    assert provenance.commit(tmp_path) == head
    (tmp_path / "code.py").write_text("2")
    assert provenance.commit(tmp_path) == f"{head}+"


def test_benchmarks_write_date_commit_and_versions() -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\d, commit [0-9a-f]+\+?", provenance.DATE_AND_COMMIT)
    assert re.fullmatch(r"PySpark [\d.]+\S*, Penstock \S+, (no )?DuckDB.*, Python 3\.\d+\.\d+", provenance.versions())
    without = [
        path.name
        for path in (ROOT / "bench").glob("*.py")
        if '.md"' in path.read_text() and "DATE_AND_COMMIT" not in path.read_text()
    ]
    assert without == []
