"""The code in the tutorials is run as it stands there."""

from __future__ import annotations

import doctest
import json
import re
import shutil
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlparse

import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import penstock.testing
from penstock import Environment
from penstock.connectors.split_source import arrow_schema
from penstock.errors import SinkError
from penstock.spark.dataframes import with_settings
from tests.conftest import OFF
from tests.equality import assert_as_plain_spark, assert_same_rows
from tests.state.queries import BASE, SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


DOCS = Path(__file__).parent.parent.parent / "docs"


def run(code: str, names: dict[str, Any]) -> None:
    """Run code as a module of its own would."""
    exec(compile(code, "<docs>", "exec", dont_inherit=True), names)


def blocks(name: Any) -> Any:
    return re.findall(r"```python\n(.*?)```", (DOCS / "tutorials" / name).read_text(), re.DOTALL)


def first_block(name: Any) -> Any:
    return blocks(name)[0]


def test_a_strategy_of_your_own(spark: SparkSession) -> None:
    code = first_block("own-strategy.md")
    assert len([line for line in code.splitlines() if line.strip()]) <= 25
    found: dict[Any, Any] = {}
    run(code, found)
    options = OFF | {"table.optimizer.join.broadcast-threshold": "-1"}
    env = Environment(spark, config=options, progress=False, strategies=[found["BroadcastFewRows"]])
    few = spark.range(0, 2000, 1, 2).where("id % 2 = 0").selectExpr("id as k", "repeat(string(id), 50) as wide")
    df = (
        spark.range(0, 50_000, 1, 4)
        .selectExpr("id % 3000 as j", "id as v")
        .join(few.hint("merge"), F.col("j") == F.col("k"))
    )
    df = df.groupBy("wide").agg(F.sum("v"))
    assert_as_plain_spark(env, df)
    # Either side has fewer: the strategy takes the one that has finished first.
    reasons = {decision.reason for decision in env.last_job.decisions}
    assert reasons & {"it has 1000 rows only", "it has 25000 rows only"}, reasons


def test_a_strategy_is_tested_without_spark() -> None:
    strategy, _, test = blocks("own-strategy.md")
    found: dict[Any, Any] = {}
    run(strategy + test, found)
    assert [decision.reason for decision in found["job"].decisions] == ["it has 4000 rows only"]


def test_the_example_of_penstock_testing() -> None:
    assert doctest.testmod(penstock.testing) == (0, 5)


class Items(BaseHTTPRequestHandler):
    """A service that pages through 5000 items."""

    asked: list[Any] = []

    def do_GET(self) -> None:
        place = urlparse(self.path)
        self.asked.append(self.path)
        if place.path == "/count":
            answer: Any = 5000
        else:
            query = {key: int(value[0]) for key, value in parse_qs(place.query).items()}
            answer = [{"id": i, "title": f"t{i % 7}"} for i in range(query["offset"], query["offset"] + query["limit"])]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.thorough
def test_a_connector_of_your_own(spark: SparkSession) -> None:
    found = {"__name__": "own_connector"}
    run(blocks("own-connector.md")[1], found)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Items)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        options = OFF | {"execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task": "250 kb"}
        env = Environment(spark, config=options, progress=False)
        df = env.read(found["RestSource"](f"http://127.0.0.1:{server.server_port}"))
        rows = env.collect(df.groupBy("title").agg(F.count("*"), F.sum("id")))
        expected = [(f"t{k}", len(range(k, 5000, 7)), sum(range(k, 5000, 7))) for k in range(7)]
        assert_same_rows(rows, expected)
        assert env.last_job.vertices[0].tasks == env.last_job.vertices[0].parallelism == 10
        env = Environment(spark, config=OFF, progress=False)
        assert env.count(env.read(found["RestSource"](f"http://127.0.0.1:{server.server_port}"), parallelism=3)) == 5000
        assert len([path for path in Items.asked if "items" in path]) == 11
        test = blocks("own-connector.md")[3]
        found["URL"] = f"http://127.0.0.1:{server.server_port}"
        run(test, found)
        assert len(found["read"].splits) == 3
        assert found["read"].rows[:8] == [(f"t{i % 7}",) for i in range(8)]
    finally:
        server.shutdown()


def test_a_sink_of_your_own(spark: SparkSession, tmp_path: Path) -> None:
    code, use = blocks("own-connector.md")[4:]
    found = {"__name__": "own_sink", "env": Environment(spark, config=OFF, progress=False), "df": spark.range(3)}
    use = use.replace('"lines"', f'"{tmp_path}/lines"')
    run(code + use, found)
    rows = [json.loads(line) for file in (tmp_path / "lines").glob("part-*") for line in file.read_text().splitlines()]
    assert sorted(row["id"] for row in rows) == [0, 1, 2]
    with pytest.raises(SinkError, match="exists"):
        run("\n".join(line for line in use.splitlines() if "rmtree" not in line), found)


def test_growing_a_query(spark: SparkSession, stopped: Any, tmp_path: Path) -> None:
    """The page on more key groups: its Python, and its commands, from 4 to 16."""
    one = stopped("counts updated")
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(one.checkpoint, checkpoint)
    text = (DOCS / "how-to" / "grow-a-query.md").read_text()
    begin, live, rescale, start = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    *lines, place, query, waits = begin.splitlines()
    assert place == 'checkpoint = "/checkpoints/orders"'
    assert waits == "query.awaitTermination()"  # for ever
    found: dict[str, Any] = {"checkpoint": str(tmp_path / "running")}
    with with_settings(spark, BASE):
        run("\n".join([*lines, query]), found)
    try:
        for _ in range(600):
            if found["query"].lastProgress:
                break
            time.sleep(0.1)
        else:
            pytest.fail("no batch came in a minute")
        run(live, found)
        assert (found["report"].rescale.old, found["report"].rescale.new) == (4, 16)
        assert found["query"].isActive
    finally:
        found["query"].stop()
    found = {"checkpoint": str(checkpoint)}
    run(rescale, found)
    assert (found["report"].old, found["report"].new) == (4, 16)
    given = []
    with with_settings(spark, BASE):
        source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(one.input / "*.parquet"))
        writer = one.query.build(source).writeStream.outputMode("update").trigger(availableNow=True)
        found["writer"] = writer.foreachBatch(lambda df, _: given.append(sorted(map(tuple, df.collect()), key=str)))
        run(start, found)
        found["query"].awaitTermination()
    assert given == one.later


def test_the_explanation_of_key_groups() -> None:
    run(re.search(r"```python\n(.*?)```", (DOCS / "explanation" / "key-groups.md").read_text(), re.DOTALL)[1], {})


def test_the_first_job_with_little_data(spark: SparkSession, tmp_path: Path) -> None:
    """As it stands, with as much data as it says, it is run by tests/docs/test_tutorials_as_written.py."""
    code = "\n".join(blocks("first-job.md")).replace('"first-job/', f'"{tmp_path}/')
    assert "env = Environment() " in code
    code = code.replace("env = Environment() ", "env = Environment(spark, progress=False) ")
    code = code.replace("20_000_000", "20_000").replace("3000000", "3000").replace("3_000_000", "3_000")
    for _ in range(2):
        run(code, {"spark": spark})
        assert 1 < spark.read.parquet(f"{tmp_path}/by_country").count() < 100


def test_the_types_of_columns() -> None:
    """The table of the page: a type's name in a schema, and what record batches have of it."""
    text = (DOCS / "tutorials" / "own-connector.md").read_text()
    table = text.split("### Types of columns")[1].split("\n\n")[1].splitlines()[2:]
    for row in table:
        names, arrow, _ = ([one.strip() for one in re.findall(r"`([^`]*)`", cell)] for cell in row.split("|")[1:4])
        assert len(names) == len(arrow) > 0
        for name, kind in zip(names, arrow, strict=True):
            schema = StructType().add("x", eval(name))
            assert arrow_schema(schema).field("x").type == eval(kind, {"pa": pa}), name
