"""SqlSession of `penstock sql`: limits, commands, and output."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from penstock.cli.main import main
from penstock.cli.statements import SqlSession
from penstock.errors import PenstockError
from tests.cli.test_main import penstock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATH = "PENSTOCK_EXECUTION_BATCH_ADAPTIVE_WHOLE_QUERY_THRESHOLD"


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> str:
    path = str(tmp_path_factory.mktemp("sql") / "numbers.parquet")
    spark.range(0, 5000, 1, 4).selectExpr("id", "id % 7 as k").write.parquet(path)
    return path


@pytest.fixture
def session(spark: SparkSession, numbers: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqlSession]:
    """SqlSession on the shared session, with every query as a job."""
    import penstock
    from penstock.cli.common import SparkThread

    monkeypatch.setenv(PATH, "0")
    with penstock.enabled(spark):
        yield SqlSession(SparkThread(), [("n", numbers)])
    spark.catalog.dropTempView("n")


@pytest.mark.thorough
def test_limit_is_part_of_the_query(session: Any) -> None:
    answer = session.run("select * from n", 20)
    assert (len(answer.rows), answer.has_more, answer.columns) == (20, True, ("id", "k"))
    (job,) = answer.jobs
    assert sum(vertex.rows_out or 0 for vertex in job.vertices) <= 4 * 21  # the limit for each task of the scan


@pytest.mark.parametrize(("limit", "more"), [(6, True), (7, False), (8, False), (None, False)])
def test_has_more(session: Any, limit: Any, more: Any) -> None:
    answer = session.run("select k, count(*) c from n group by k order by k", limit)
    assert answer.has_more is more
    assert [row[0] for row in answer.rows] == list(range(7))[:limit]


@pytest.mark.thorough
def test_commands_read_through_jobs(session: Any, spark: SparkSession) -> None:
    created = session.run("create table sql_stored as select k, count(*) c from n group by k", 20)
    try:
        assert created.columns == ()
        assert len(created.jobs) == 1
        assert created.jobs[0].vertices
        added = session.run("insert into sql_stored select k + 10, count(*) from n group by k", 20)
        assert len(added.jobs) == 1
        assert session.run("select count(*), sum(c) from sql_stored", 20).rows == ((14, 10000),)
        assert ("sql_stored",) in [row[1:2] for row in session.run("show tables like 'sql_stored'", 20).rows]
        assert session.run("describe sql_stored", 1).columns[0] == "col_name"
    finally:
        spark.sql("drop table if exists sql_stored")


@pytest.mark.parametrize(
    ("statement", "message", "cause"),
    [
        ("select 1 / (k - k) from n", "the statement failed", "DIVIDE_BY_ZERO"),
        ("select nothing from n", "the query could not be planned", "UNRESOLVED_COLUMN"),
        ("selekt 1", "the query could not be planned", "PARSE_SYNTAX_ERROR"),
        ("drop table nowhere", "the statement failed", "TABLE_OR_VIEW_NOT_FOUND"),
        ("insert into nowhere select 1", "the statement failed", "TABLE_OR_VIEW_NOT_FOUND"),
    ],
)
def test_errors(session: Any, statement: Any, message: Any, cause: Any) -> None:
    with pytest.raises(PenstockError) as raised:
        session.run(statement, 20)
    assert cause in str(raised.value)
    if "DIVIDE" not in cause:
        assert raised.value.message == message
        assert "\n\tat " not in str(raised.value)


@pytest.mark.parametrize("statement", ["create view v as select 1", "insert into n select 1, 2", "show tables"])
def test_commands_are_neither_explained_nor_written_to_a_folder(session: Any, tmp_path: Path, statement: Any) -> None:
    for run in (session.explain, lambda text: session.write(text, str(tmp_path / "out"))):
        with pytest.raises(PenstockError, match="this is a command"):
            run(statement)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "statement", ["select 1", "with x as (select 1) select * from x", "values (1)", "from n select k"]
)
def test_queries(session: Any, statement: Any) -> None:
    assert str(session.explain(statement))


def test_output_of_the_command(
    session: Any, spark: SparkSession, numbers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    table = ("sql", "--table", f"n={numbers}")
    done = CliRunner().invoke(main, [*table, "select id from n order by id"])
    assert done.exit_code == 0, done.stderr
    assert done.stdout.count("│") >= 20
    assert "These are the first 20 rows, and there are more: --limit N shows N of them" in done.stdout
    done = CliRunner().invoke(main, [*table, "--limit", "2", "select id from n order by id"])
    assert "the first 2 rows, and there are more" in done.stdout
    done = CliRunner().invoke(main, [*table, "--output-format", "json", "select id from n"])
    assert len(json.loads(done.stdout)["results"][0]["rows"]) == 5000


@pytest.mark.thorough
def test_persistent_catalog(numbers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two commands, each with its own JVM, print nothing else."""
    monkeypatch.chdir(tmp_path)
    hive = ("--conf", "spark.sql.catalogImplementation=hive")
    created = penstock(
        "sql", *hive, "--table", f"n={numbers}", "create table stored as select k, count(*) c from n group by k"
    )
    assert (created.returncode, created.stderr) == (0, "")
    assert "done" in created.stdout
    read = penstock("sql", *hive, "--output-format", "json", "select sum(c) as all from stored")
    assert (read.returncode, read.stderr) == (0, "")
    assert json.loads(read.stdout)["results"][0]["rows"] == [{"all": 5000}]
    shutil.rmtree(tmp_path / "metastore_db", ignore_errors=True)
