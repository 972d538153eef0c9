"""What several results of a job share: it is computed once where the job then raises the errors of plain Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from penstock.planner.outputs import Output
from penstock.planner.planner import plan_job
from penstock.results import ResultSink
from tests.equality import assert_same_rows
from tests.generated.compare import condition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from penstock import Environment


class Case(NamedTuple):
    """A part and what several results make of it.

    Parameters
    ----------
    part, results
        The part as SQL over `t` and `u`, and the results as SQL over `{part}`.
    shared
        What is run once: the names of the operators whose results several steps read.
    """

    part: str
    results: list[str]
    shared: list[str]


ALL, SOME, FEW = "select * from {part}", "select * from {part} where k <> 0", "select * from {part} where k > 5"
COUNTS = "select k, count(*) as n, max(v) as m from t group by k"
QUOTIENTS = "select k, sum(10 div k) as s from t group by k"
CASES = {
    "nothing can fail": Case(COUNTS, [SOME, FEW], ["Aggregate"]),
    "a function that a filter keeps from failing": Case(QUOTIENTS, [SOME, FEW], []),
    "a sum that may overflow, of groups that are left out": Case(
        "select k, sum(v) as s from t group by k", [SOME, FEW], []
    ),
    "a function that fails in any case": Case(QUOTIENTS, [SOME, ALL], ["Aggregate"]),
    "a filter of results of the groups": Case(
        "select k, sum(v) as s from t group by k",
        ["select * from {part} where s > 3", "select k from {part} where s > 9"],
        ["Aggregate"],
    ),
    "a filter that fails below the part only": Case(
        COUNTS, ["select * from {part} where m > 1900 and 10 div k < 5", ALL], []
    ),
    "a filter that fails nowhere": Case(
        COUNTS, ["select * from {part} where m > 1900 and 10 / 3 < k", ALL], ["Aggregate"]
    ),
    "the part below what may fail": Case(f"select k, 10 div k as q, n from ({COUNTS})", [SOME, FEW], ["Aggregate"]),
    "a value made of a function": Case("select k, max(v) div k as q, count(*) as n from t group by k", [SOME, FEW], []),
    "a join below what may fail": Case(
        "select x.k, 10 div x.k as q from t x join u on x.v = u.v", [SOME, FEW], ["Project"]
    ),
    "a join": Case(
        "select x.k, x.v from t x join u on x.v = u.v",
        ["select max(v) from {part}", "select sum(k) from {part}"],
        ["Project"],
    ),
    "a filter inferred from a join": Case(
        "select k, sum(v) as s from t group by k", ["select p.* from {part} p join u on p.k = u.k", SOME], []
    ),
}


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("tables")
    for name, rows in (("t", 2000), ("u", 40)):
        spark.range(rows).selectExpr("id % 20 as k", "id as v").write.parquet(str(folder / name))
        spark.read.parquet(str(folder / name)).createOrReplaceTempView(name)
    yield
    for name in "tu":
        spark.catalog.dropTempView(name)


def outcome(collect: Callable[[], list[Any]]) -> list[Any] | str | None:
    """Return rows, or the condition of an error, which a job wraps."""
    try:
        return collect()
    except Exception as error:
        return condition_of(error)


def together(env: Environment, results: list[DataFrame]) -> list[list[Any]] | str | None:
    """Return the rows of all results of one job, or its error."""
    sinks = [ResultSink(f"result {number}", lambda df: df.collect()) for number, _ in enumerate(results)]
    for df, sink in zip(results, sinks, strict=True):
        env.write(df, sink)
    found = outcome(lambda: [env.execute()])
    return [sink.value for sink in sinks] if isinstance(found, list) else found


@pytest.mark.parametrize("name", CASES)
def test_what_is_run_once(make_env: Callable[..., Environment], spark: SparkSession, tables: Any, name: str) -> None:
    case, env = CASES[name], make_env()
    part = spark.sql(case.part)
    results = [spark.sql(query, part=part) for query in case.results]
    outputs = [Output(df, ResultSink(f"result {number}", lambda df: df)) for number, df in enumerate(results)]
    plan = plan_job(env._bridge, env.config, outputs, name)
    several = {node.name for node in plan.graph if len(plan.graph.out_edges(node.id)) > 1}
    assert sorted(several) == case.shared

    plainly = [outcome(df.collect) for df in results]
    errors = [one for one in plainly if not isinstance(one, list)]
    found = together(env, results)
    if errors:
        assert found == errors[0]
    else:
        assert isinstance(found, list)
        for rows, expected in zip(found, plainly, strict=True):
            assert_same_rows(rows, expected)


def test_the_reason_is_recorded(make_env: Callable[..., Environment], spark: SparkSession, tables: Any) -> None:
    env = make_env()
    part = spark.sql(QUOTIENTS)
    together(env, [part.where("k <> 0"), part.where("k > 5")])
    assert "computed for each of them" in "\n".join(map(str, env.last_job.decisions))
