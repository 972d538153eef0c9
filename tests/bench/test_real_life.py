"""The benchmark on data as people have it: its queries, its generated data, its tables, and a small run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.bench.test_benchmarks import load
from tests.support.paths import ROOT
from tools.figures import Table

ROWS = 3000


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    return load(ROOT / "bench" / "real_life.py", monkeypatch)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        generator = load(ROOT / "bench" / "real_life_data.py", patch)
        return generator.make(tmp_path_factory.mktemp("data"), ROWS)


def test_there_are_63_queries_of_four_workloads(bench: Any) -> None:
    queries = bench.queries()
    assert Counter(name[0] for name in queries) == {"W": 43, "G": 10, "J": 5, "E": 5}
    assert [name for name, query in queries.items() if query.sql is None] == ["E1", "E2", "E3", "E4", "E5"]


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (None, ["W1", "W2", "G1", "J1"]),
        ("W2", ["W2"]),
        ("joins,W1", ["W1", "J1"]),
        ("web", ["W1", "W2"]),
    ],
)
def test_queries_are_selected_by_name_or_workload(bench: Any, only: str | None, expected: list[str]) -> None:
    assert bench.selected(["W1", "W2", "G1", "J1"], only) == expected


def test_an_unknown_query_is_refused(bench: Any) -> None:
    with pytest.raises(SystemExit, match=r"neither a query nor a workload .*: W99"):
        bench.selected(["W1"], "W1,W99")


def test_the_data_depends_only_on_the_number_of_rows(data: Path, bench: Any, tmp_path: Path) -> None:
    again = bench.real_life_data.make(tmp_path, ROWS)
    assert again.name == data.name
    assert bench.real_life_data.VERSION in data.name
    files = sorted(file.name for file in data.glob("*.parquet"))
    assert files == [f"{name}.parquet" for name in ("big", "events", "facts", "hits", "medium", "samples", "small")]
    for file in files:
        assert pq.read_table(data / file).equals(pq.read_table(again / file))


def test_complete_data_is_not_generated_again(data: Path, bench: Any) -> None:
    before = (data / "hits.parquet").stat().st_mtime_ns
    assert bench.real_life_data.make(data.parent, ROWS) == data
    assert (data / "hits.parquet").stat().st_mtime_ns == before


def test_chunks_of_a_table_have_separate_rows(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.real_life_data, "CHUNK_ROWS", 700)
    hits = pq.read_table(bench.real_life_data.make(tmp_path, 1500) / "hits.parquet")
    assert hits.num_rows == len(set(hits["hit_id"].to_pylist())) == 1500
    assert hits["url"].slice(0, 700).to_pylist() != hits["url"].slice(700, 700).to_pylist()


def test_nine_tenths_of_the_keys_of_each_table_have_a_match(data: Path) -> None:
    facts = pq.read_table(data / "facts.parquet")
    for table, key in (("small", "id1"), ("medium", "id2"), ("big", "id3")):
        keys = pq.read_table(data / f"{table}.parquet")[key].to_numpy()
        assert len(set(keys)) == len(keys)
        assert np.isin(facts[key].to_numpy(), keys).mean() == pytest.approx(0.9, abs=0.03)


def test_duckdb_understands_all_queries_in_sql(data: Path, bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = load(ROOT / "bench" / "duckdb_alone.py", monkeypatch).DuckDb(data, 2)
    rows = {name: engine.rows(query.sql) for name, query in bench.queries().items() if query.sql is not None}
    assert rows["W1"] == [(ROWS,)]
    assert rows["G10"][0][0] == ROWS * 5 // 3
    hosts = (
        load(ROOT / "bench" / "duckdb_alone.py", monkeypatch)
        .DuckDb(data, 2)
        .rows("SELECT regexp_replace('https://www.a.example/b', '^https?://(www[.])?([^/]+)/.*', '$2')")
    )
    assert hosts == [("a.example",)]


EQUAL = {
    "another order": ([(1, "a"), (2, "b")], [(2, "b"), (1, "a")], True),
    "a float's last digits": ([(1, 0.1 + 0.2)], [(1, 0.3)], True),
    "a float's tenth digit": ([(1, 1.000000002)], [(1, 1.0)], False),
    "floats decide the order last": ([(1.0000000000001, 2), (1.0, 1)], [(1.0, 2), (1.0000000000001, 1)], True),
    "not a number": ([(float("nan"),)], [(float("nan"),)], True),
    "null is not zero": ([(None,)], [(0,)], False),
    "a missing row": ([(1,)], [(1,), (1,)], False),
    "other duplicates": ([(1,), (1,), (2,)], [(1,), (2,), (2,)], False),
}


@pytest.mark.parametrize("case", EQUAL)
def test_rows_are_compared_in_any_order_with_a_tolerance_for_floats(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, expected, are_equal = EQUAL[case]
    assert load(ROOT / "bench" / "rows.py", monkeypatch).are_equal(rows, expected) == are_equal


def test_other_rows_of_penstock_end_the_benchmark_and_those_of_duckdb_are_reported(bench: Any) -> None:
    compare = sys.modules["compare"]
    assert compare.differing_engines("W1", {"spark": [(1,)], "penstock": [(1,)], "duckdb": [(2,)]}) == {"duckdb"}
    with pytest.raises(SystemExit, match="W1: the rows of Penstock differ from Spark's"):
        compare.differing_engines("W1", {"duckdb": [(2,)], "spark": [(1,)], "penstock": [(2,)]})


def measured(spark: float, penstock: float, spark_rows: int, penstock_rows: int, reason: str = "") -> dict[str, list]:
    """Return what is measured of a query with a counted run, by seconds and by the rows that tasks processed."""
    return {
        "spark": [spark],
        "steps": [spark],
        "penstock": [penstock],
        "work": [
            {
                "spark": [[2.0, 1.0, 0.0, 0.0, spark_rows]],
                "steps": [[2.0, 1.0, 0.0, 0.0, spark_rows]],
                "penstock": [[1.0, 0.0, 0.0, 0.0, penstock_rows]],
            }
        ],
        "vertices": [1],
        "reason": [reason],
    }


def test_tables_have_means_the_slowest_query_and_what_was_executed_natively(bench: Any) -> None:
    times = {
        "W1": measured(8, 1, 100, 10),
        "W2": measured(2, 1, 100, 51, "it has | a sum"),
        "E1": measured(1, 2, 100, 100, "other"),
    }
    table = Table(bench.summary(times, "about"))
    column = "times as fast as Spark, AQE"
    assert [table.figure(row, column, ".2f") for row in ("web", "events", "all")] == ["4.00", "0.50", "2.00"]
    assert table.figure("all", "slowest query, times as fast as Spark, AQE", ".2f") == "0.50"
    assert table.figure("all", "executed natively", "text") == "1 of 3"
    page = Table(bench.table(times, "about", reasons=True))
    assert page.cells("", "executed natively") == {"W1": "yes", "W2": "no", "E1": "no"}
    assert page.figure("W2", "reason", "text") == "it has / a sum"
    assert page.figure("all", "executed natively", "text") == "1 of 3"


@pytest.mark.thorough
@pytest.mark.long("a Spark application that runs queries on three systems")
def test_a_small_run_compares_rows_and_writes_its_results(data: Path, tmp_path: Path) -> None:
    options = ["--option=execution.batch.adaptive.whole-query-threshold=1 kb", "--memory=1g", "--rounds=1"]
    command = [sys.executable, str(ROOT / "bench" / "real_life.py"), f"--rows={ROWS}", "--only=W8,W29,events", *options]
    result = subprocess.run(
        [*command, f"--data={data.parent}", f"--output={tmp_path}"],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    name = f"real_life-{ROWS}"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{name}{suffix}" for suffix in ("-events.md", "-web.md", ".json", ".md", ".png")
    ]
    times = json.loads((tmp_path / f"{name}.json").read_text())
    assert [name for name, by_system in times.items() if "duckdb" in by_system] == ["W8", "W29"]
    page = (tmp_path / f"{name}-web.md").read_text()
    assert "differ" not in page
    assert Table(page).cells("", "executed natively")["W8"] == "yes"
