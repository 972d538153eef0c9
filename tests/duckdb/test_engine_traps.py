"""Expressions in which Spark and DuckDB differ: values, nulls and errors are those of plain Spark in any engine.

Expressions that DuckDB declines prove nothing: they count as vacuous. `engine_traps.json` names those that DuckDB must
compute. The tests of `tests.duckdb.expressions` compare the values of those that the registry describes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from penstock import Environment
from penstock.spark.plans.dataframes import with_settings
from tests.conftest import OFF
from tests.duckdb.traps import (
    TRAPS,
    Trap,
    computed_files,
    exact,
    group_rows,
    operand_rows,
    traps,
    whole_query_plan,
    write_by_number,
)
from tests.support.native import compute_all_natively
from tests.support.outcomes import outcome
from tests.support.stages import SINGLE_DUCKDB_TASK, computed_by_duckdb

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("interpreted")

SINGLE_TASK = {"execution.batch.adaptive.whole-query-threshold": 1}
MANY_TASKS = OFF | {"execution.native": True, "execution.verify": False}
JOINED = "select n, {} from t join keys on n = m"
WAYS = {
    "single task": (SINGLE_TASK, JOINED, SINGLE_DUCKDB_TASK),
    "files in many tasks": (MANY_TASKS, "select n, {} from t", "t is read by DuckDB"),
    "exchanged columns": (MANY_TASKS, JOINED, "what was exchanged as columns is computed by DuckDB"),
}
"""Ways to run a query natively: the configuration, the query, and the text of its decision."""
QUERIES = {name: query for group in TRAPS["queries"].values() for name, query in group.items()}


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The operands of all expressions, with a file per row."""
    target = tmp_path_factory.mktemp("traps")
    with with_settings(spark, {"spark.sql.session.timeZone": "Europe/Berlin"}):
        rows = operand_rows(spark, traps())
    write_by_number(rows, target / "rows")
    pq.write_table(rows.select(["n"]).rename_columns(["m"]), target / "keys.parquet")
    with pytest.MonkeyPatch.context() as patch:
        compute_all_natively(patch)
        yield target
    for name in ("t", "keys"):
        spark.catalog.dropTempView(name)


@pytest.fixture(params=[True, False], ids=["ansi", "not ansi"])
def mode(request: pytest.FixtureRequest, spark: SparkSession, folder: Path) -> Iterator[bool]:
    settings = {
        "spark.sql.ansi.enabled": str(request.param).lower(),
        "spark.sql.session.timeZone": "Europe/Berlin",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
    }
    with with_settings(spark, settings):
        read(spark, folder / "rows")
        spark.read.parquet(str(folder / "keys.parquet")).createOrReplaceTempView("keys")
        yield request.param


@dataclass
class Computed:
    """The rows for which DuckDB computes each expression in an ANSI mode, and the reasons for declined expressions."""

    rows: dict[str, list[int]]
    declined: dict[str, str]


_COMPUTED: dict[bool, Computed] = {}


@pytest.fixture
def computed(spark: SparkSession, mode: bool) -> Computed:
    if mode not in _COMPUTED:
        result = Computed({}, {})
        for trap in (candidate for candidate in traps() if candidate.name in TRAPS["native"]):
            df = analyzed(spark, JOINED.format(f"{trap.sql} as r"))
            if isinstance(df, str):  # the expression is invalid in this mode
                continue
            plan = whole_query_plan(spark, df)
            if isinstance(plan, str):
                result.declined[trap.name] = plan
            else:
                result.rows[trap.name] = computed_files(plan)
        _COMPUTED[mode] = result
    return _COMPUTED[mode]


def analyzed(spark: SparkSession, text: str) -> DataFrame | str:
    """Return a query, or the condition of its error."""
    frames: list[DataFrame] = []
    error = outcome(lambda: frames.append(spark.sql(text)))
    return frames[0] if frames else str(error)


def read(spark: SparkSession, path: Path) -> None:
    """Register the rows of files as the view ``t``."""
    spark.read.parquet(str(path)).createOrReplaceTempView("t")


def sentences(env: Environment) -> list[str]:
    """Return the explanations of the last job's native decisions that were carried out."""
    assert env.last_job is not None
    decisions = [
        decision
        for decision in env.last_job.decisions
        if decision.kind == "native" and "instead" not in decision.outcome
    ]
    return [
        f"{decision.chosen}: {decision.explanation and decision.explanation.sentence}"
        for decision in decisions
        if "DuckDB" in str(decision.chosen)
    ]


@pytest.mark.thorough
def test_duckdb_computes_the_listed_expressions(computed: Computed) -> None:
    print(f"{len(computed.rows)} of {len(traps())} expressions are computed by DuckDB; the others are vacuous here")
    assert computed.declined == {}
    assert [name for name, rows in computed.rows.items() if not rows] == []


@pytest.mark.slow
@pytest.mark.usefixtures("mode")
def test_duckdb_computes_only_the_listed_expressions(spark: SparkSession) -> None:
    listed = {*TRAPS["native"], *TRAPS["native_by_registry"]}
    native, expected = [], []
    for trap in traps():
        df = analyzed(spark, JOINED.format(f"{trap.sql} as r"))
        if not isinstance(df, str):
            expected += [trap.name] if trap.name in listed else []
            native += [] if isinstance(whole_query_plan(spark, df), str) else [trap.name]
    assert native == expected


@pytest.mark.thorough
@pytest.mark.parametrize("way", WAYS)
def test_values_and_nulls(
    spark: SparkSession, mode: bool, computed: Computed, folder: Path, tmp_path: Path, way: str
) -> None:
    """All expressions in a query, each over the rows that DuckDB computes without an error."""
    config, query, says = WAYS[way]
    natives = [trap for trap in traps() if computed.rows.get(trap.name)]
    write_computable(folder / "rows", natives, computed, tmp_path / "calm.parquet")
    read(spark, tmp_path / "calm.parquet")
    text = query.format(", ".join(f"{trap.sql} as r{number}" for number, trap in enumerate(natives)))
    df = spark.sql(text)
    expected = outcome(df.collect)
    assert not isinstance(expected, str), failing(spark, natives, query)
    env = Environment(spark, config=config, progress=False)
    rows = outcome(lambda: env.collect(df if config is SINGLE_TASK else df.repartition(3, "n")))
    assert not isinstance(rows, str), rows
    for number, trap in enumerate(natives):
        assert exact((row.n, row[f"r{number}"]) for row in rows) == exact(
            (row.n, row[f"r{number}"]) for row in expected
        ), (trap, mode)
    assert any(says in sentence for sentence in sentences(env)), "DuckDB has not computed them"


def write_computable(source: Path, natives: list[Trap], computed: Computed, path: Path) -> None:
    """Write rows for which DuckDB computes all expressions, replacing the operands of failing rows."""
    rows = pa.concat_tables([pq.read_table(file) for file in sorted(source.glob("*.parquet"))])
    columns = {"n": rows["n"]}
    for trap in natives:
        computed_rows = computed.rows[trap.name]
        indices = [
            number if number in computed_rows else computed_rows[number % len(computed_rows)]
            for number in range(rows.num_rows)
        ]
        columns |= {name: rows[name].take(pa.array(indices)) for name in trap.columns}
    pq.write_table(pa.table(columns), path)


def failing(spark: SparkSession, natives: list[Trap], query: str) -> dict[str, str]:
    """Return the expressions that DuckDB computes but plain Spark fails on, with the errors."""
    results = {trap.name: outcome(spark.sql(query.format(f"{trap.sql} as r")).collect) for trap in natives}
    return {name: result for name, result in results.items() if isinstance(result, str)}


@pytest.mark.thorough
def test_errors(spark: SparkSession, mode: bool, computed: Computed, folder: Path) -> None:
    """If DuckDB fails for operands, the result is Spark's: its error, a null or a value.

    Runs every third expression; `test_each_alone` runs all.
    """
    read(spark, folder / "rows" / "000.parquet")
    env = Environment(spark, config=SINGLE_TASK, progress=False)
    failed = [trap for trap in traps() if 0 not in computed.rows.get(trap.name, [0])]
    for trap in failed[::3]:
        assert_as_spark(env, spark.sql(JOINED.format(f"{trap.sql} as r")))
        assert not sentences(env)
    assert len(failed) >= (12 if mode else 5)


@pytest.mark.parametrize("name", TRAPS["native_queries"])
def test_aggregates_and_windows(spark: SparkSession, mode: bool, tmp_path: Path, name: str) -> None:
    query = QUERIES[name]
    rows = group_rows(spark, query)
    write_by_number(rows, tmp_path / "groups")
    read(spark, tmp_path / "groups")
    plan = whole_query_plan(spark, spark.sql(query["query"]))
    assert not isinstance(plan, str), plan
    computed_groups = computed_files(plan)
    pq.write_table(rows.filter(pc.is_in(rows["n"], pa.array(computed_groups))), tmp_path / "calm.parquet")
    read(spark, tmp_path / "calm.parquet")
    df = spark.sql(query["query"])
    expected = exact(outcome(df.collect))
    assert not isinstance(expected, str), (expected, mode)
    for config in (SINGLE_TASK, MANY_TASKS):
        env = Environment(spark, config=config, progress=False)
        assert exact(outcome(lambda env=env: env.collect(df))) == expected, config
        assert computed_by_duckdb(env.last_job) or config is MANY_TASKS
    if 0 not in computed_groups:
        read(spark, tmp_path / "groups" / "000.parquet")
        assert_as_spark(Environment(spark, config=SINGLE_TASK, progress=False), spark.sql(query["query"]))


def assert_as_spark(env: Environment, df: DataFrame | str) -> None:
    """Check that the rows or the error condition of a query are those of Spark."""
    if not isinstance(df, str):  # otherwise the query is also invalid in Spark
        assert exact(outcome(lambda: env.collect(df))) == exact(outcome(df.collect))


@pytest.mark.slow
@pytest.mark.parametrize("config", [SINGLE_TASK, MANY_TASKS], ids=["single task", "many tasks"])
@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.usefixtures("mode")
def test_each_query_over_all_groups(spark: SparkSession, tmp_path: Path, name: str, config: dict[str, object]) -> None:
    write_by_number(group_rows(spark, QUERIES[name]), tmp_path / "groups")
    env = Environment(spark, config=config, progress=False)
    for files in ("groups/000.parquet", "groups"):
        read(spark, tmp_path / files)
        assert_as_spark(env, analyzed(spark, QUERIES[name]["query"]))


@pytest.mark.slow
@pytest.mark.parametrize("config", [SINGLE_TASK, MANY_TASKS], ids=["single task", "many tasks"])
@pytest.mark.parametrize("trap", traps(), ids=lambda trap: trap.name)
@pytest.mark.usefixtures("mode")
def test_each_alone(spark: SparkSession, folder: Path, trap: Trap, config: dict[str, object]) -> None:
    """Every expression over its operands and over all rows, in any engine.

    If rows fail with different errors, the error is that of the first task that fails.
    """
    env = Environment(spark, config=config, progress=False)
    text = JOINED.format(f"{trap.sql} as r")
    read(spark, folder / "rows" / "000.parquet")
    assert_as_spark(env, analyzed(spark, text))
    read(spark, folder / "rows")
    df = analyzed(spark, text)
    if isinstance(df, str):
        return
    actual, expected = (exact(outcome(collect)) for collect in (lambda: env.collect(df), df.collect))
    if actual != expected and isinstance(actual, str) and isinstance(expected, str):
        assert {actual, expected} <= errors_of_rows(spark, folder / "rows", text)
    else:
        assert actual == expected


def errors_of_rows(spark: SparkSession, folder: Path, text: str) -> set[str]:
    """Return the conditions of the errors that plain Spark raises for single rows."""
    conditions = set()
    for file in sorted(folder.glob("*.parquet")):
        read(spark, file)
        result = outcome(spark.sql(text).collect)
        conditions |= {result} if isinstance(result, str) else set()
    return conditions
