"""The command `penstock demo`."""

from __future__ import annotations

import json
import re
import sys
from contextlib import nullcontext
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from penstock.cli import demo as demo_module
from penstock.cli import demo_data, demo_runs
from penstock.cli.demo import ROUNDS
from penstock.cli.demo_runs import QUESTIONS, Comparison, Question, System
from penstock.errors import RowsDifferError
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.run.finished_stages import work_after
from tests.cli.test_main import penstock
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = 4_000


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("demo") / "data" / "demo"
    demo_data.create_tables(folder, ORDERS)
    return demo_data.table_files(folder)


def test_tables_have_a_hot_customer_and_are_complete(tables: dict[str, Path]) -> None:
    orders = pq.read_table(tables["orders"])
    shares = [count["counts"] / ORDERS for count in pc.value_counts(orders["customer_id"]).to_pylist()]
    assert orders.num_rows == ORDERS
    assert 0.25 < max(shares) < 0.35
    assert sorted(shares)[-2] < 0.01
    assert pq.read_table(tables["customers"]).num_rows == ORDERS / 2
    assert sorted(file.name for file in tables["orders"].parent.iterdir()) == [
        "customers.parquet",
        "orders.parquet",
        "products.parquet",
    ]


def test_tables_are_equal_in_each_run(tables: dict[str, Path], tmp_path: Path) -> None:
    demo_data.create_tables(tmp_path, ORDERS)
    assert all(
        pq.read_table(file).equals(pq.read_table(tables[name]))
        for name, file in demo_data.table_files(tmp_path).items()
    )


def test_work_is_that_of_finished_stages(spark: SparkSession) -> None:
    bridge = Bridge(spark)
    before = work_after(bridge, -1).last_stage
    assert work_after(bridge, before).tasks == 0
    spark.range(0, 1000, 1, 3).repartition(2).collect()
    work = work_after(bridge, before)
    assert work.tasks == 3 + 2
    assert work.shuffled_bytes > 1000
    assert work.last_stage > before
    assert work_after(bridge, work.last_stage).tasks == 0


@pytest.mark.thorough
def test_other_rows_are_an_error(spark: SparkSession, tables: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_runs, "QUESTIONS", QUESTIONS[:1])
    comparison = Comparison(spark, tables)
    collect = comparison._collect

    def lose_a_row(question: Any, system: System) -> Any:
        rows = collect(question, system)
        return rows[1:] if system is System.STEPS else rows

    monkeypatch.setattr(comparison, "_collect", lose_a_row)
    with pytest.raises(RowsDifferError, match="the rows of Penstock without DuckDB differ"):
        list(comparison.run_round(0))
    assert comparison.compared_rows == 0


@pytest.mark.parametrize(("is_ordered", "is_error"), [(True, True), (False, False)])
def test_rows_in_another_order_are_an_error_if_the_query_sets_it(
    is_ordered: bool, is_error: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = Question("title", "SELECT 1", is_ordered)
    monkeypatch.setattr(demo_runs, "QUESTIONS", (question,))
    comparison = Comparison.__new__(Comparison)
    comparison._environments, comparison.compared_rows = {System.PENSTOCK: None}, 0  # type: ignore[dict-item]
    rows: Any = {(question, System.SPARK): [(1,), (2,)], (question, System.PENSTOCK): [(2,), (1,)]}
    with pytest.raises(RowsDifferError) if is_error else nullcontext():
        comparison._compare(rows)
    assert comparison.compared_rows == (0 if is_error else 2)


def test_each_system_is_first_once_and_none_always_follows_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_runs, "QUESTIONS", ())
    comparison = Comparison.__new__(Comparison)
    comparison._environments = {}
    rounds = [[system for system, _ in comparison.run_round(number)] for number in range(ROUNDS + 1)]
    assert {systems[0] for systems in rounds[1:]} == set(System)
    order = list(chain.from_iterable(rounds))[len(System) - 1 :]
    for system in System:
        assert len({before for before, after in pairwise(order) if after is system} - {system}) == 2


@pytest.mark.parametrize(
    ("program", "on_path", "expected"),
    [
        ("penstock", True, "penstock"),
        ("penstock", False, "bin/penstock"),
        ("__main__.py", False, "python -m penstock"),
    ],
)
def test_suggested_commands_can_be_called(
    program: str, on_path: bool, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bin" / program
    path.parent.mkdir()
    path.write_text("")
    path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path)])
    monkeypatch.setenv("PATH", str(path.parent) if on_path else "")
    assert demo_module._command() == expected


@pytest.mark.thorough
def test_the_demo(tables: dict[str, Path]) -> None:
    """All systems run all queries in turns; the total is that of the queries."""
    data = ("--data", str(tables["orders"].parent))
    done = penstock("demo", "--output-format", "json", *data, "--conf", "spark.master=local[2]")
    assert done.returncode == 0, done.stderr[-3000:]
    document = json.loads(done.stdout)
    (table,) = document["results"]
    assert [row["system"] for row in table["rows"]] == [system.value for system in System] * (len(QUESTIONS) + 1)
    by_system = [[float(row["seconds"]) for row in table["rows"][start::3]] for start in range(3)]
    assert all(total == pytest.approx(sum(seconds), abs=0.03) for *seconds, total in by_system)
    has_tasks = {(row["system"], int(row["tasks"]) > 0) for row in table["rows"]}
    assert has_tasks == {(system.value, system is not System.PENSTOCK) for system in System}
    notes = "\n".join(document["notes"])
    assert re.search(r"Penstock is [\d.]+ times as fast as Spark with AQE here", notes)
    assert "Rows: equal (3 queries, " in notes
    assert notes.count("Spark runs this query unchanged") == len(QUESTIONS)  # so few rows are not worth steps
    assert "Creating" not in done.stderr  # the tables exist
    assert [done.stderr.count(f"Round {number} of 3") for number in (1, 2, 3)] == [1, 1, 1]
    assert len(re.findall(r", so far. About \d+ s left.", done.stderr)) == 2  # after the first two rounds


@pytest.mark.thorough
def test_the_program_of_the_readme(tables: dict[str, Path], spark: SparkSession) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(program.splitlines()) == 5
    names: dict[str, Any] = {}
    program = program.replace("data/demo", str(tables["orders"].parent))  # Spark has another working directory
    exec(compile(program, "<README>", "exec", dont_inherit=True), names)
    assert len(names["rows"]) > 50
