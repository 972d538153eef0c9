"""Hinted joins of skewed sides return Spark's rows, whether or not Spark follows the hint."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from tests.support.equality import assert_as_plain_spark
from tests.support.outcomes import mostly_slow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment


pytestmark = pytest.mark.usefixtures("interpreted")
SKEW = "table.optimizer.skewed__join__optimization"
FORCED = {
    "execution.batch.adaptive.auto__parallelism.avg__data__volume__per__task": "1 kb",
    "table.optimizer.join.broadcast__threshold": "-1",
    f"{SKEW}.strategy": "FORCED",
    f"{SKEW}.skewed__threshold": "1 b",
    f"{SKEW}.skewed__factor": 0.5,
}
HINTS = ["broadcast", "merge", "shuffle_hash", "shuffle_replicate_nl"]


@pytest.fixture(scope="module")
def sides(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two join sides with a hot key, nulls, and keys without a match; each has four files."""
    folder = tmp_path_factory.mktemp("sides")
    for name, rows, keys in (("f", 900, 40), ("d", 300, 60)):
        key = f"if(id % 11 = 0, null, if(id % 3 = 0, 7, id % {keys})) as k"
        spark.range(0, rows, 1, 4).selectExpr(key, f"id as {name}").write.parquet(str(folder / name))
    return spark.read.parquet(str(folder / "f")), spark.read.parquet(str(folder / "d"))


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "left_semi", "left_anti"])
@pytest.mark.parametrize("hint", mostly_slow(HINTS, 2))
def test_hinted_joins_of_skewed_sides_return_the_rows_of_spark(
    make_env: Callable[..., Environment], sides: Any, hint: Any, how: str
) -> None:
    left, right = sides
    for hinted in ((left.hint(hint), right), (left, right.hint(hint))):
        df = (
            hinted[0].join(hinted[1], "k", how).groupBy().agg(F.count("*"), F.bit_xor(F.xxhash64("k", "f")), F.sum("f"))
        )
        assert_as_plain_spark(make_env(**FORCED), df)
