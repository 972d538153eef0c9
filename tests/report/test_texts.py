"""Texts of real jobs for users: without internal terms, and with correct figures."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from penstock import Environment
from penstock.connectors import FileSink
from penstock.entry.observer import record_of
from tests.support.words import INTERNAL_TERMS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUERIES = {"tpch": ("5", "9", "18", "21"), "tpcds": ("5", "64")}


@pytest.fixture(scope="module")
def query(spark: SparkSession, data: Path) -> Iterator[Callable[[str], DataFrame]]:
    """Return a function that creates a query by name, after it registered the tables of its benchmark."""
    texts = {family: json.loads((data / "queries" / f"{family}.json").read_text()) for family in QUERIES}
    files = {family: list((data / f"{family}-0.1").glob("*.parquet")) for family in QUERIES}

    def create(name: str) -> DataFrame:
        family, number = name.split()
        for file in files[family]:
            spark.read.parquet(str(file)).createOrReplaceTempView(file.stem)
        return spark.sql(texts[family][number])

    yield create
    for family in QUERIES:
        for file in files[family]:
            spark.catalog.dropTempView(file.stem)


@pytest.mark.thorough
@pytest.mark.parametrize("name", [f"{family} {number}" for family, numbers in QUERIES.items() for number in numbers])
def test_texts_have_no_internal_terms(query: Any, env: Environment, name: str) -> None:
    env.collect(query(name))
    record = record_of(env.last_job)
    texts = [decision.text for decision in record.decisions]
    texts += [vertex.label for vertex in record.vertices.values()]
    texts += [vertex.reason for vertex in record.vertices.values()]
    texts += [change.sentence or "" for change in record.changes if change.shown]
    texts += [node.label for node in record.nodes.values()]
    assert [text for text in texts if INTERNAL_TERMS.search(text)] == []
    kinds = {"broadcast", "dynamic filter", "source parallelism"}
    assert all(decision.tables for decision in record.decisions if decision.kind in kinds)


@pytest.mark.thorough
def test_figures_are_those_of_the_data(env: Environment, spark: SparkSession, tmp_path: Path) -> None:
    spark.range(300_000).selectExpr("id", "id % 1000 as k", "repeat('x', 20) as wide").repartition(3).write.parquet(
        str(tmp_path / "facts")
    )
    spark.range(1000).selectExpr("id as j", "id % 50 as team").write.parquet(str(tmp_path / "dims"))
    facts, dims = (spark.read.parquet(str(tmp_path / name)) for name in ("facts", "dims"))
    joined = facts.join(dims.where("team = 7"), F.col("k") == F.col("j"))
    env.collect(joined.groupBy("team").agg(F.sum("id")))
    record = record_of(env.last_job)
    decisions = record.decisions
    (broadcast,) = (decision for decision in decisions if decision.kind == "broadcast")
    assert broadcast.sentence.startswith("facts join dims on k: ")
    relation = next(vertex for vertex in record.vertices.values() if vertex.label == "dims")
    assert relation.rows_out == 20
    assert 20 * 16 <= relation.bytes_out <= 20 * 64  # the rows, not whole memory pages
    of_facts = (decision for decision in decisions if decision.tables == ("facts",))
    (read,) = (decision.estimate for decision in of_facts if decision.kind == "source parallelism")
    assert read is not None
    assert (read.unit, read.actual, read.missed_by) == ("rows", 300_000, None)
    assert read.estimated == pytest.approx(300_000, rel=0.01)  # from a single footer


def test_a_job_and_its_decisions_print_as_text(query: Any, env: Environment) -> None:
    env.collect(query("tpch 5"))
    text, decisions = str(env.last_job), str(env.last_job.decisions)
    assert re.match(rf"Job collect at test_texts\.py:\d+ \({env.last_job.id}\): finished\n", text)
    assert str(env.last_job.summary) in text
    assert "\n".join(env.last_job.decision_lines()) in text
    assert set(env.last_job.decision_lines()) <= set(decisions.splitlines())
    assert "aggregate by n_name" in text
    assert "object at" not in text
    for shown in (env.last_job._repr_html_(), env.last_job.decisions._repr_html_()):
        assert "<div" in shown
        assert "<script" not in shown


@pytest.mark.thorough
def test_explain_with_analyze_shows_the_job(query: Any, env: Environment) -> None:
    before = env.last_job
    analysis = env.explain(query("tpch 5"), analyze=True)
    assert env.last_job is analysis.job is not before
    text = str(analysis)
    assert "aggregate by n_name" in text
    assert "Decisions" in text
    assert analysis.as_dict()["state"] == "FINISHED"
    assert "aggregate by n_name" in analysis._repr_html_()
    assert " ! " not in text or "Missed" in text


def test_explain_with_analyze_writes_nothing(env: Environment, spark: SparkSession, tmp_path: Path) -> None:
    env.write(spark.range(10).groupBy((F.col("id") % 2).alias("k")).count(), FileSink(str(tmp_path / "out")))
    assert "aggregate by" in str(env.explain(analyze=True))
    assert not (tmp_path / "out").exists()
    env.execute()
    assert spark.read.parquet(str(tmp_path / "out")).count() == 2


def test_explain_of_a_whole_query_has_sparks_plan(spark: SparkSession) -> None:
    text = str(Environment(spark, progress=False).explain(spark.range(10).groupBy().count(), analyze=True))
    assert "HashAggregate" in text
    assert "Spark runs this query unchanged" in text
