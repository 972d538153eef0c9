"""The code of the tutorials and how-to pages runs unchanged."""

from __future__ import annotations

import json
import re
import shutil
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlparse

import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock import Environment
from penstock.connectors.core.split_source import arrow_schema
from penstock.errors import SinkError
from penstock.spark.plans.dataframes import with_settings
from tests.conftest import OFF
from tests.state.queries import BASE, SCHEMA
from tests.support.equality import assert_as_plain_spark, assert_same_rows
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


DOCS = ROOT / "docs"


def run(code: str, names: dict[str, Any]) -> None:
    """Run code as a module with the globals `names`."""
    exec(compile(code, "<docs>", "exec", dont_inherit=True), names)


def blocks(name: Any) -> Any:
    return re.findall(r"```python\n(.*?)```", (DOCS / "tutorials" / name).read_text(), re.DOTALL)


def first_block(name: Any) -> Any:
    return blocks(name)[0]


def test_the_strategy_of_the_tutorial_broadcasts_few_rows(spark: SparkSession) -> None:
    code = first_block("own-strategy.md")
    assert len([line for line in code.splitlines() if line.strip()]) <= 25
    module: dict[Any, Any] = {}
    run(code, module)
    options = OFF | {"table.optimizer.join.broadcast-threshold": "-1"}
    env = Environment(spark, config=options, progress=False, strategies=[module["BroadcastFewRows"]])
    side = spark.range(0, 2000, 1, 2).where("id % 2 = 0").selectExpr("id as k", "repeat(string(id), 50) as wide")
    df = (
        spark.range(0, 50_000, 1, 4)
        .selectExpr("id % 3000 as j", "id as v")
        .join(side.hint("merge"), F.col("j") == F.col("k"))
    )
    df = df.groupBy("wide").agg(F.sum("v"))
    assert_as_plain_spark(env, df)
    # Both sides are small enough: the strategy broadcasts the side that finishes first.
    reasons = {decision.reason for decision in env.last_job.decisions}
    assert reasons & {"it has 1000 rows only", "it has 25000 rows only"}, reasons


def test_the_strategy_test_of_the_tutorial_passes_without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy, _, _, test = blocks("own-strategy.md")
    few_rows = ModuleType("few_rows")
    run(strategy, few_rows.__dict__)
    monkeypatch.setitem(sys.modules, "few_rows", few_rows)
    module: dict[Any, Any] = {}
    run(test, module)
    assert [decision.reason for decision in module["job"].decisions] == ["it has 4000 rows only"]


class Items(BaseHTTPRequestHandler):
    """A REST service with pages of 5000 items."""

    requests: list[Any] = []

    def do_GET(self) -> None:
        url = urlparse(self.path)
        self.requests.append(self.path)
        if url.path == "/count":
            body: Any = 5000
        else:
            query = {key: int(value[0]) for key, value in parse_qs(url.query).items()}
            body = [{"id": i, "title": f"t{i % 7}"} for i in range(query["offset"], query["offset"] + query["limit"])]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.thorough
def test_the_source_of_the_tutorial_infers_its_parallelism(spark: SparkSession) -> None:
    module = {"__name__": "own_connector"}
    run(blocks("own-connector.md")[1], module)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Items)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        options = OFF | {"execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task": "250 kb"}
        env = Environment(spark, config=options, progress=False)
        df = env.read(module["RestSource"](f"http://127.0.0.1:{server.server_port}"))
        rows = env.collect(df.groupBy("title").agg(F.count("*"), F.sum("id")))
        expected = [(f"t{k}", len(range(k, 5000, 7)), sum(range(k, 5000, 7))) for k in range(7)]
        assert_same_rows(rows, expected)
        assert env.last_job.vertices[0].tasks == env.last_job.vertices[0].parallelism == 10
        env = Environment(spark, config=OFF, progress=False)
        assert (
            env.count(env.read(module["RestSource"](f"http://127.0.0.1:{server.server_port}"), parallelism=3)) == 5000
        )
        assert len([path for path in Items.requests if "items" in path]) == 11
        test = blocks("own-connector.md")[3]
        module["URL"] = f"http://127.0.0.1:{server.server_port}"
        run(test, module)
        assert len(module["read"].splits) == 3
        assert module["read"].rows[:8] == [(f"t{i % 7}",) for i in range(8)]
    finally:
        server.shutdown()


def test_the_sink_of_the_tutorial_writes_new_folders_only(spark: SparkSession, tmp_path: Path) -> None:
    code, use = blocks("own-connector.md")[4:]
    module = {"__name__": "own_sink", "env": Environment(spark, config=OFF, progress=False), "df": spark.range(3)}
    use = use.replace('"lines"', f'"{tmp_path}/lines"')
    run(code + use, module)
    rows = [json.loads(line) for file in (tmp_path / "lines").glob("part-*") for line in file.read_text().splitlines()]
    assert sorted(row["id"] for row in rows) == [0, 1, 2]
    with pytest.raises(SinkError, match="exists"):
        run("\n".join(line for line in use.splitlines() if "rmtree" not in line), module)


@pytest.mark.thorough
def test_the_page_on_growing_a_query(spark: SparkSession, stopped: Any, tmp_path: Path) -> None:
    """Run its code for a running and a stopped query, from 4 to 16 key groups."""
    query_run = stopped("counts updated")
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(query_run.checkpoint, checkpoint)
    text = (DOCS / "how-to" / "grow-a-query.md").read_text()
    begin, live, rescale, start = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    *lines, location, query, waits = begin.splitlines()
    assert location == 'checkpoint = "/checkpoints/orders"'
    assert waits == "query.awaitTermination()"  # would wait forever
    names: dict[str, Any] = {"checkpoint": str(tmp_path / "running")}
    with with_settings(spark, BASE):
        run("\n".join([*lines, query]), names)
    try:
        for _ in range(600):
            if names["query"].lastProgress:
                break
            time.sleep(0.1)
        else:
            pytest.fail("no batch in a minute")
        run(live, names)
        assert (names["report"].rescale.old, names["report"].rescale.new) == (4, 16)
        assert names["query"].isActive
    finally:
        names["query"].stop()
    names = {"checkpoint": str(checkpoint)}
    run(rescale, names)
    assert (names["report"].old, names["report"].new) == (4, 16)
    outputs = []
    with with_settings(spark, BASE):
        source = (
            spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(query_run.input / "*.parquet"))
        )
        writer = query_run.query.build(source).writeStream.outputMode("update").trigger(availableNow=True)
        names["writer"] = writer.foreachBatch(lambda df, _: outputs.append(sorted(map(tuple, df.collect()), key=str)))
        run(start, names)
        names["query"].awaitTermination()
    assert outputs == query_run.later


def test_the_code_on_key_groups_runs() -> None:
    run(re.search(r"```python\n(.*?)```", (DOCS / "explanation" / "key-groups.md").read_text(), re.DOTALL)[1], {})


def test_the_first_job_runs_twice_with_less_data(spark: SparkSession, tmp_path: Path) -> None:
    """tests/docs/test_tutorials_as_written.py runs it unchanged, with all of its data."""
    code = "\n".join(blocks("first-job.md")).replace('"first-job/', f'"{tmp_path}/')
    assert "env = Environment() " in code
    code = code.replace("env = Environment() ", "env = Environment(spark, progress=False) ")
    code = code.replace("20_000_000", "20_000").replace("3000000", "3000").replace("3_000_000", "3_000")
    for _ in range(2):
        run(code, {"spark": spark})
        assert 1 < spark.read.parquet(f"{tmp_path}/by_country").count() < 100


def test_the_table_of_column_types_is_correct() -> None:
    """Each type of a schema has the Arrow type in its row of the table."""
    text = (DOCS / "tutorials" / "own-connector.md").read_text()
    table = text.split("### Types of columns")[1].split("\n\n")[1].splitlines()[2:]
    for row in table:
        names, arrow, _ = ([name.strip() for name in re.findall(r"`([^`]*)`", cell)] for cell in row.split("|")[1:4])
        assert len(names) == len(arrow) > 0
        for name, kind in zip(names, arrow, strict=True):
            schema = StructType().add("x", eval(name))
            assert arrow_schema(schema).field("x").type == eval(kind, {"pa": pa}), name
