"""Users of PostgreSQL who may not write to the ledger: rows are written without it, a token is refused at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError

from penstock.commit import Access, Direction, recover
from penstock.commit.folders import PreparedFolders
from penstock.commit.journal import Journal, journals_at
from penstock.connectors import FileSink, JdbcSink
from penstock.connectors.jdbc.ledger import entry_of
from penstock.errors import SinkError
from penstock.spark.filesystem import Folder
from penstock.spark.jvm import Bridge
from tests.commit.harness import commit
from tests.connectors.jdbc.test_sink import ROWS, numbers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from penstock import Environment
    from tests.services import Postgres

GRANTS = {"none": "", "reads": "SELECT", "adds": "SELECT, INSERT", "all": "SELECT, INSERT, DELETE"}
"""What the clerk may do with a ledger that is not theirs."""
LEDGER = "penstock_commits"


@pytest.fixture
def clerk(postgres: Postgres) -> Iterator[dict[str, str]]:
    """A user who may make tables in the schema `office` only, in a server with a ledger of its superuser."""
    postgres.sql(f"""
        create table if not exists {LEDGER}
            (target varchar(200) not null, token varchar(200) not null, primary key (target, token));
        create role clerk login password 'till'; create schema office authorization clerk
    """)
    yield postgres.properties | {"user": "clerk", "password": "till"}
    postgres.sql("drop schema office cascade; drop owned by clerk cascade; drop role clerk")


def grant(postgres: Postgres, rights: str) -> None:
    if GRANTS[rights]:
        postgres.sql(f"grant {GRANTS[rights]} on {LEDGER} to clerk")


def in_office(postgres: Postgres) -> list[str]:
    return postgres.sql("select tablename from pg_tables where schemaname = 'office' order by 1").split()


@pytest.mark.parametrize("rights", GRANTS)
def test_rows_without_a_token(
    env: Environment, spark: SparkSession, postgres: Postgres, clerk: dict[str, str], rights: str
) -> None:
    grant(postgres, rights)
    before = postgres.sql(f"select count(*) from {LEDGER}")
    env.write(numbers(spark), JdbcSink(postgres.url, "office.sold", clerk))
    env.execute()
    assert postgres.sql("select count(*), count(distinct id) from office.sold") == f"{ROWS}|{ROWS}"
    assert in_office(postgres) == ["sold"]
    assert postgres.sql(f"select count(*) from {LEDGER}") == before


@pytest.mark.parametrize("rights", GRANTS)
def test_rows_with_a_token(
    env: Environment, spark: SparkSession, postgres: Postgres, clerk: dict[str, str], rights: str
) -> None:
    grant(postgres, rights)
    env.write(numbers(spark), JdbcSink(postgres.url, "office.sold", clerk, token="monday"))
    if rights == "all":
        env.execute()
        assert postgres.sql(f"select token from {LEDGER} where target = 'office.sold'") == "monday"
        postgres.sql(f"delete from {LEDGER} where target = 'office.sold'")
        return
    with pytest.raises(SinkError, match="'monday': its user may not write to penstock_commits") as raised:
        env.execute()
    env._outputs.take()
    assert "permission denied for table penstock_commits" in str(raised.value)
    assert "grant the user SELECT, INSERT and DELETE" in str(raised.value)
    assert in_office(postgres) == []


@pytest.mark.parametrize("token", [None, "monday"])
def test_no_ledger_and_no_right_to_make_one(
    env: Environment, spark: SparkSession, postgres: Postgres, clerk: dict[str, str], token: str | None
) -> None:
    postgres.sql(f"alter table {LEDGER} rename to hidden_commits")
    try:
        env.write(numbers(spark), JdbcSink(postgres.url, "office.sold", clerk, token=token))
        if token is None:
            env.execute()
        else:
            with pytest.raises(SinkError, match="permission denied for schema public"):
                env.execute()
            env._outputs.take()
    finally:
        postgres.sql(f"alter table hidden_commits rename to {LEDGER}")
    assert in_office(postgres) == (["sold"] if token is None else [])


def test_two_tables_of_one_database(
    env: Environment, spark: SparkSession, postgres: Postgres, clerk: dict[str, str]
) -> None:
    """They share a transaction, so nobody has to tell later which of them has committed."""
    for name in ("sold", "returned"):
        env.write(numbers(spark), JdbcSink(postgres.url, f"office.{name}", clerk))
    env.execute()
    assert in_office(postgres) == ["returned", "sold"]
    for name in ("sold", "returned"):
        assert postgres.sql(f"select count(*), count(distinct id) from office.{name}") == f"{ROWS}|{ROWS}"


@pytest.fixture
def abc(postgres: Postgres) -> Iterator[str]:
    """Three tables; returns the statement by which another run writes its token for b."""
    for name in "abc":
        postgres.sql(f"drop table if exists {name}; create table {name} (id int, v int)")
    yield f"insert into {LEDGER} (target, token) values ('b', '{entry_of('b', 'monday')}')"
    postgres.sql(f"delete from {LEDGER}; drop table a, b, c; drop table if exists penstock_journals")


def rows_of_abc(postgres: Postgres) -> list[str]:
    return [postgres.sql(f"select count(*), count(distinct id) from {name}") for name in "abc"]


@pytest.mark.thorough
def test_one_of_three_tables_that_another_run_has_written(spark: SparkSession, postgres: Postgres, abc: str) -> None:
    """The transaction that all share is undone then; the table before has its rows all the same, and once."""
    sinks = [JdbcSink(postgres.url, name, postgres.properties, token="monday") for name in "abc"]

    def write(sink: JdbcSink, job: Any) -> None:
        job.write(numbers(spark).select("id", "v"))
        if sink.table == "c":  # all have looked for their tokens by now
            postgres.sql(abc)

    commit(spark, sinks, write=write)
    assert rows_of_abc(postgres) == [f"{ROWS}|{ROWS}", "0|0", f"{ROWS}|{ROWS}"]
    entries = ", ".join(f"'{entry_of(name, 'monday')}'" for name in "abc")
    assert (
        postgres.sql(f"select string_agg(target, '' order by target) from {LEDGER} where token in ({entries})") == "abc"
    )


@pytest.mark.thorough
@pytest.mark.parametrize("order", ["abc", "acb", "bac", "bca", "cab", "cba"])
def test_the_tables_beside_one_that_another_run_has_written_still_commit_together(
    spark: SparkSession, postgres: Postgres, abc: str, order: str
) -> None:
    """What the database refuses for the first is written for none of them."""
    sinks = [
        JdbcSink(postgres.url, name, postgres.properties, token="monday" if name == "b" else None) for name in order
    ]
    postgres.sql("insert into a values (1, 1); alter table a add unique (id) deferrable initially deferred")

    def write(sink: JdbcSink, job: Any) -> None:
        job.write(numbers(spark).select("id", "v"))
        if sink.table == order[-1]:
            postgres.sql(abc)

    with pytest.raises(Py4JJavaError, match="duplicate key value"):
        commit(spark, sinks, write=write)
    assert rows_of_abc(postgres) == ["1|1", "0|0", "0|0"]


@pytest.mark.thorough
def test_a_job_whose_undoing_is_interrupted_is_undone_by_the_next(
    spark: SparkSession, postgres: Postgres, abc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token of another run is in a table. It does not say that this job has committed."""
    sinks = [
        JdbcSink(postgres.url, "b", postgres.properties, token="monday"),
        FileSink(str(tmp_path / "out")),
        JdbcSink(postgres.url, "a", postgres.properties, token="monday"),
    ]
    postgres.sql("insert into a values (1, 1); alter table a add unique (id) deferrable initially deferred")

    def write(sink: Any, job: Any) -> None:
        job.write(numbers(spark).select("id", "v"))
        if sink is sinks[-1]:
            postgres.sql(abc)

    def interrupted(_self: Any, _access: Any) -> None:
        raise OSError("the storage is away")

    with monkeypatch.context() as patch, pytest.raises(Py4JJavaError, match="duplicate key value"):
        patch.setattr(PreparedFolders, "undo", interrupted)
        commit(spark, sinks, write=write)
    access = Access(Bridge(spark), {a: s for one in sinks for a, s in one.secrets.items()})
    (path,) = journals_at(access, Folder(access.bridge, str(tmp_path)))
    assert recover(access, path).direction is Direction.BACK
    assert not list(tmp_path.iterdir())
    assert rows_of_abc(postgres)[:2] == ["1|1", "0|0"]


@pytest.mark.thorough
@pytest.mark.parametrize("is_begun", [False, True])
def test_a_job_whose_journal_cannot_be_written_is_undone(
    spark: SparkSession,
    postgres: Postgres,
    abc: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_begun: bool,
) -> None:
    """From its first word on, or once it should say that all is committed, or undone."""
    sinks = [FileSink(str(tmp_path / "out")), JdbcSink(postgres.url, "b", postgres.properties, token="monday")]
    if not is_begun:
        postgres.sql(abc)  # found when the sink is opened, else as it commits

    def write(sink: Any, job: Any) -> None:
        if is_begun or sink is sinks[0]:
            job.write(numbers(spark).select("id", "v"))
        if is_begun and sink is sinks[1]:
            postgres.sql(abc)

    wrote = Journal.write

    def on_a_full_disk(journal: Journal, access: Access) -> None:
        if not is_begun or journal.decided or journal.back:
            raise OSError("no space left")
        wrote(journal, access)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="no space left"):
        patch.setattr(Journal, "write", on_a_full_disk)
        commit(spark, sinks, write=write)
    assert not list(tmp_path.iterdir())
    assert rows_of_abc(postgres)[1] == "0|0"


@pytest.mark.thorough
def test_a_table_beside_files_is_refused(
    env: Environment, spark: SparkSession, postgres: Postgres, clerk: dict[str, str], tmp_path: Path
) -> None:
    """A recovery could not tell whether the table has committed; so nothing becomes visible."""
    env.write(numbers(spark), FileSink(str(tmp_path / "out")))
    env.write(numbers(spark), JdbcSink(postgres.url, "office.sold", clerk))
    with pytest.raises(SinkError, match="its job has other sinks"):
        env.execute()
    env._outputs.take()
    assert list(tmp_path.iterdir()) == []
    assert postgres.sql("select to_regclass('office.sold') is null or not exists (select 1 from office.sold)") == "t"
