"""Parts that several results of a job share are computed once if the job then raises the errors of plain Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from pyspark.sql.functions import udf

from penstock.entry.results import ResultSink
from penstock.planner.outputs import Output
from tests.generated.compare import condition_of
from tests.planner.drafts import steps_of
from tests.support.equality import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock import Environment


class Case(NamedTuple):
    """A part and several results that read it.

    Parameters
    ----------
    part, results
        The part as SQL over `t` and `u`, and the results as SQL over `{part}`.
    shared
        The names of the operators that run once and whose results several steps read.
    """

    part: str
    results: list[str]
    shared: list[str]


ALL, SOME, FEW = "select * from {part}", "select * from {part} where k <> 0", "select * from {part} where k > 5"
BIG_GROUPS = ["select * from {part} where s > 3", "select k from {part} where s > 9"]
COUNTS = "select k, count(*) as n, max(v) as m from t group by k"
SUMS = "select k, sum(v) as s from t group by k"
QUOTIENTS = "select k, sum(10 div k) as s from t group by k"
OVERFLOW = "select k, sum(if(k = 0, 9223372036854775807, v)) as s from t group by k"
JOIN = "select x.k, x.v, y.v as w from t x join u y on x.v = y.v"
CASES = {
    "nothing can fail": Case(COUNTS, [SOME, FEW], ["Aggregate"]),
    "a function that a filter keeps from failing": Case(QUOTIENTS, [SOME, FEW], []),
    "a sum that overflows in groups that are left out": Case(OVERFLOW, [SOME, FEW], []),
    "a function that fails in any case": Case(QUOTIENTS, [SOME, ALL], ["Aggregate"]),
    "a result reads the whole part": Case(SUMS, [SOME, FEW, ALL], ["Aggregate"]),
    "a result reads all groups, but not the value that may fail": Case(
        QUOTIENTS, [SOME, FEW, "select k from {part}"], []
    ),
    "a filter of aggregated values": Case(SUMS, BIG_GROUPS, ["Aggregate"]),
    "filters of aggregated values, and the same filter of groups": Case(
        OVERFLOW, [f"{query} and k > 5" for query in BIG_GROUPS], ["Aggregate"]
    ),
    "other columns": Case(
        SUMS.replace("sum(v) as s", "sum(v) as s, sum(k) as r"),
        ["select k, s from {part}", "select k, r from {part}"],
        ["Aggregate"],
    ),
    "a filter that fails below the part only": Case(
        COUNTS, ["select * from {part} where m > 1900 and 10 div k < 5", ALL], []
    ),
    "such a filter of a single result of three": Case(
        COUNTS, ["select * from {part} where m > 1900 and 10 div k < 5", FEW, ALL], ["Aggregate"]
    ),
    "a filter that fails nowhere": Case(
        COUNTS, ["select * from {part} where m > 1900 and 10 / 3 < k", ALL], ["Aggregate"]
    ),
    "the part below an expression that may fail": Case(
        f"select k, 10 div k as q, n from ({COUNTS})", [SOME, FEW], ["Aggregate"]
    ),
    "an expression on an aggregate function": Case(
        "select k, max(v) div k as q, count(*) as n from t group by k", [SOME, FEW], []
    ),
    "the same with a result of other functions": Case(
        "select k, max(v) div k as q from t where v > 3 group by k",
        [SOME, FEW, "select max(v) div 1 from t where v > 7"],
        [],
    ),
    "a join below an expression that may fail": Case(
        "select x.k, 10 div x.k as q from t x join u on x.v = u.v", [SOME, FEW], ["Project"]
    ),
    "a join": Case(JOIN, ["select max(v) from {part}", "select sum(k) from {part}"], ["Project"]),
    "a side of a self-join may fail": Case(
        "select x.k, 10 div x.k as q, 10 div y.k as r from t x join t y on x.v = y.k",
        ["select q from {part} where k <> 0", "select k from {part} where k > 3"],
        ["Project"],
    ),
    "the same filter, inferred from joins": Case(
        SUMS,
        ["select p.* from {part} p join u on p.k = u.k", "select p.s, u.v from {part} p join u on p.k = u.k + 1"],
        ["Aggregate"],
    ),
    "the same filter": Case(
        OVERFLOW, ["select s, k from {part} where k > 5", "select max(s) from {part} where k > 5"], ["Aggregate"]
    ),
    "a filter inferred from a join": Case(SUMS, ["select p.* from {part} p join u on p.k = u.k", SOME], []),
    "a semi join": Case(QUOTIENTS, ["select * from {part} p left semi join u on p.k = u.v + 1", SOME], []),
    "unions": Case(
        "select k, 10 div k as q, count(*) as n from (select k from u where k <> 0 union all select k from t) group by k",
        [SOME, FEW, "select 10 div k as q from u where k <> 0"],
        [],
    ),
    "a conditional value": Case(
        "select k, sum(case when k <> 0 then 10 div k end) as s from t group by k", [SOME, FEW], []
    ),
    "a limit": Case(
        "select x.k, assert_true(x.v < 1990) as q from t x join u y on x.k = y.k",
        ["select * from {part} where k > 7 limit 3", SOME],
        ["Project"],
    ),
    "the top rows": Case(SUMS, ["select * from {part} order by s desc, k limit 3", ALL], ["Aggregate"]),
    "nested parts": Case(
        f"select n, sum(10 div k) as s from ({COUNTS}) group by n",
        ["select * from {part} where n > 0", "select * from {part} where n > 1"],
        ["Aggregate"],
    ),
    "a branch that skips rows": Case(
        f"select k, 10 div k as q, n from ({COUNTS})",
        ["select k, case when k <> 0 then q end as a from {part}", "select k, if(k > 3, q, -1) as b from {part}", SOME],
        ["Aggregate"],
    ),
    "an unused field": Case(
        f"select k, named_struct('a', 10 div k, 'b', n) as s from ({COUNTS})",
        ["select s.b from {part}", "select k, s.b from {part}"],
        ["Aggregate"],
    ),
    "a result reads it twice": Case(
        QUOTIENTS, ["select k, 0L as s from {part} union all select * from {part} where k <> 0", SOME], ["Aggregate"]
    ),
    "a join partner that may fail": Case(
        "select k, count(*) as n from t where k > 5 group by k",
        [ALL, "select x.q, p.n from (select k, 10 div k as q from u) x join {part} p on x.k = p.k"],
        ["Aggregate"],
    ),
    "a join that Spark drops": Case(
        QUOTIENTS,
        ["select u.* from u left join {part} p on u.k = p.k", "select u.v from u left join {part} p on u.k = p.k"],
        ["Source: u"],
    ),
    "the other side of an outer join": Case(
        SUMS,
        ["select p.*, u.v from {part} p left join u on p.k = u.k", "select count(*) from {part} where s > 2"],
        ["Aggregate"],
    ),
    "a generator": Case(f"select k, explode(array(k, s)) as e from ({SUMS})", [SOME, FEW], []),
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
    """Return rows, or the condition of an error."""
    try:
        return collect()
    except Exception as error:
        return condition_of(error)


def collect_all(env: Environment, results: list[DataFrame]) -> list[list[Any]] | str | None:
    """Return the rows of all results of a job, or its error."""
    sinks = [ResultSink(f"result {number}", lambda df: df.collect()) for number, _ in enumerate(results)]
    for df, sink in zip(results, sinks, strict=True):
        env.write(df, sink)
    result = outcome(lambda: [env.execute()])
    return [sink.value for sink in sinks] if isinstance(result, list) else result


@pytest.mark.parametrize("name", CASES)
def test_shared_parts_run_once(
    make_env: Callable[..., Environment], spark: SparkSession, tables: Any, name: str
) -> None:
    case, env = CASES[name], make_env()
    part = spark.sql(case.part)
    results = [spark.sql(query, part=part) for query in case.results]
    outputs = [Output(df, ResultSink(f"result {number}", lambda df: df)) for number, df in enumerate(results)]
    plan = steps_of(env, outputs)
    several = {node.name for node in plan.graph if len(plan.graph.out_edges(node.id)) > 1}
    assert sorted(several) == case.shared

    spark_outcomes = [outcome(df.collect) for df in results]
    errors = [error for error in spark_outcomes if not isinstance(error, list)]
    collected = collect_all(env, results)
    if errors:
        assert collected in errors
    else:
        assert isinstance(collected, list)
        for rows, expected in zip(collected, spark_outcomes, strict=True):
            assert_same_rows(rows, expected)


def decision_texts(env: Environment) -> str:
    return "\n".join(map(str, env.last_job.decisions))


def test_the_reason_is_recorded(make_env: Callable[..., Environment], spark: SparkSession, tables: Any) -> None:
    env = make_env()
    reasons = {QUOTIENTS: "it may fail on rows that the filters of these results remove", COUNTS: ""}
    for query, reason in reasons.items():
        part = spark.sql(query)
        collect_all(env, [part.where("k <> 0"), part.where("k > 5")])
        assert ("not all results that read a part of t share it" in decision_texts(env)) is bool(reason)
        assert reason in decision_texts(env)


def test_a_result_that_shares_nothing_is_unchanged(
    make_env: Callable[..., Environment], spark: SparkSession, tables: Any
) -> None:
    """Its plan has other ids each time Spark optimises it."""
    counts = spark.sql(COUNTS)
    apart = spark.sql("select k % 3 as r, case when k % 3 <> 0 then 10 div (k % 3) end as q from t group by k % 3")
    results = collect_all(make_env(), [counts.where("k > 5"), counts.where("k < 3"), apart])
    assert isinstance(results, list)
    assert [len(rows) for rows in results] == [14, 3, 3]


def test_python_functions(make_env: Callable[..., Environment], spark: SparkSession, tables: Any) -> None:
    """Any Python function may fail."""
    part = spark.sql(COUNTS).mapInPandas(lambda frames: frames, "k long, n long, m long")
    results = collect_all(make_env(), [part.where("k > 5"), part.limit(5)])
    assert isinstance(results, list)
    assert [len(rows) for rows in results] == [14, 5]


def test_python_functions_in_filters(make_env: Callable[..., Environment], spark: SparkSession, tables: Any) -> None:
    """Spark evaluates them below the filter, and pushes both into the part."""

    is_positive = udf(lambda k: 10 // k > 0, "boolean")
    is_there = udf(lambda k: k != 0, "boolean")
    quotients, counts = spark.sql(QUOTIENTS), spark.sql(COUNTS)
    results = collect_all(make_env(), [quotients.where(is_there("k")), quotients.where(is_there("k")).where("k > 2")])
    assert isinstance(results, list)
    assert [len(rows) for rows in results] == [19, 17]
    assert collect_all(make_env(), [counts.where("m > 1990").where(is_positive("k")), counts]) == "ZeroDivisionError"
