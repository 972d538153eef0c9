"""Keys with a collation, which Spark joins by sorting as it cannot hash them: all joins return Spark's rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.outcomes import CONFIGS, assert_outcome_as_plain_spark, mostly_slow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment


pytestmark = pytest.mark.usefixtures("interpreted")
CASES = {
    "in": "select * from big where k in (select k from small)",
    "not in": "select * from big where k not in (select k from small where k is not null)",
    "not in, with nulls": "select * from big where k not in (select k from small)",
    "exists": "select * from big b where exists (select 1 from small s where s.k = b.k)",
    "not exists": "select * from big b where not exists (select 1 from small s where s.k = b.k)",
    "not exists, more than the key": "select * from big b where not exists (select 1 from small s where s.k = b.k and s.v > b.v)",
    "exists or": "select *, k in (select k from small) as there from big",
    "semi, in memory": "select * from big left semi join mem on big.k = mem.k",
    "anti, in memory": "select * from big left anti join mem on big.k = mem.k",
    "in, in memory": "select * from big where k in (select k from mem)",
    "not exists, in memory": "select * from big b where not exists (select 1 from mem s where s.k = b.k)",
    "inner": "select b.id, s.v from big b join small s on b.k = s.k",
    "inner, in memory": "select b.id, s.v from big b join mem s on b.k = s.k",
    "left": "select b.id, s.v from big b left join small s on b.k = s.k",
    "full": "select b.id, s.v from big b full join small s on b.k = s.k",
    "null-safe": "select b.id, s.v from big b join small s on b.k <=> s.k",
    "hinted broadcast": "select /*+ broadcast(s) */ b.id, s.v from big b left join small s on b.k = s.k",
    "hinted broadcast of a semi join": "select /*+ broadcast(s) */ b.id from big b left semi join small s on b.k = s.k",
    "hinted hash": "select /*+ shuffle_hash(s) */ b.id from big b left semi join small s on b.k = s.k",
    "accents": "select * from big where u in (select u from small)",
    "accents, not exists": "select * from big b where not exists (select 1 from small s where s.u = b.u and s.v = b.v)",
    "trimmed": "select * from big where r in (select r from small)",
    "struct": "select * from big where st in (select st from small)",
    "struct, joined": "select b.id, s.v from big b left join small s on b.st = s.st",
    "array": "select * from big where ar in (select ar from small)",
    "array, joined": "select b.id, s.v from big b join small s on b.ar = s.ar",
    "two keys": "select * from big where (k, v) in (select k, v from small)",
    "collated on the fly": "select * from big b where t collate utf8_lcase in (select t collate utf8_lcase from small)",
    "group, then in": "select k, count(*) from big where k in (select k from small group by k having sum(v) > 2) group by k",
    "group on both sides": """select * from (select k, count(*) as n from big group by k) x
                              left anti join (select k, count(*) as n from small group by k) y on x.k = y.k""",
    "in over a join": "select count(*) from big b join small s on b.v = s.v where b.k in (select k from mem)",
    "in twice": "select * from big where k in (select k from small) and k not in (select k from mem where k is not null)",
    "intersect": "select k from big intersect select k from small",
    "except": "select k from big except select k from small",
    "key of a computed string": "select * from big b where substring(k, 1, 1) in (select substring(k, 1, 1) from mem)",
    "plain keys beside": "select * from big where t in (select t from small)",
}


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("collated")
    word = "concat(if(id % 2 = 0, 'Ab', 'aB'), id % 23, if(id % 3 = 0, ' ', ''))"
    columns = (
        "id",
        "id % 7 as v",
        f"{word} as t",
        f"if(id % 11 = 0, null, trim({word})) collate utf8_lcase as k",
        f"translate({word}, 'A', 'Ä') collate unicode_ci as u",
        f"{word} collate utf8_binary_rtrim as r",
        f"named_struct('a', trim({word}) collate utf8_lcase, 'b', id % 2) as st",
        f"array(trim({word}) collate utf8_lcase) as ar",
    )
    for name, rows, files in (("big", 800, 4), ("small", 12, 2)):
        spark.range(0, rows, 1, files).selectExpr(*columns).write.parquet(str(folder / name))
        spark.read.parquet(str(folder / name)).createOrReplaceTempView(name)
    mixed = [("AB1", 1), ("ab4", 4), (None, 0), ("zz", 9)]
    spark.createDataFrame(mixed, "k string, v long").selectExpr(
        "k collate utf8_lcase as k", "v"
    ).createOrReplaceTempView("mem")
    yield
    for name in ("big", "small", "mem"):
        spark.catalog.dropTempView(name)


@pytest.mark.parametrize("config", mostly_slow([*CONFIGS][::-1], len(CONFIGS)))
@pytest.mark.parametrize("name", CASES)
def test_joins_by_collated_keys_return_the_rows_of_spark(
    spark: SparkSession, make_env: Callable[..., Environment], tables: Any, name: str, config: Any
) -> None:
    df = spark.sql(CASES[name])
    env = make_env(**CONFIGS[config])
    assert_outcome_as_plain_spark(env, df)
