"""The code in the tutorials is run as it stands there."""

import re
from pathlib import Path

from pyspark.sql import functions as F

from penstock import Environment
from tests.conftest import OFF
from tests.equality import assert_same_rows

DOCS = Path(__file__).parent.parent.parent / "docs"


def first_block(name):
    return re.search(r"```python\n(.*?)```", (DOCS / "tutorials" / name).read_text(), re.DOTALL)[1]


def test_a_strategy_of_your_own(spark):
    code = first_block("own-strategy.md")
    assert len([line for line in code.splitlines() if line.strip()]) <= 25
    found = {}
    exec(code, found)
    options = OFF | {"table.optimizer.join.broadcast-threshold": "-1"}
    env = Environment(spark, config=options, progress=False, strategies=[found["BroadcastFewRows"]])
    few = spark.range(0, 2000, 1, 2).where("id % 2 = 0").selectExpr("id as k", "repeat(string(id), 50) as wide")
    df = spark.range(0, 50_000, 1, 4).selectExpr("id % 3000 as j", "id as v").join(few.hint("merge"), F.col("j") == F.col("k"))
    df = df.groupBy("wide").agg(F.sum("v"))
    assert_same_rows(env.collect(df), df.collect())
    assert "the side with few rows" in [str(decision.chosen) for decision in env.last_job.decisions]
