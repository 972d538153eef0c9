"""PostgreSQL users without write access to the ledger can write rows, but not with a token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError

from penstock.commit import Access, Outcome, recover
from penstock.commit.folders import PreparedFolders
from penstock.commit.journal import Journal, journals_at
from penstock.connectors import FileSink, JdbcSink
from penstock.connectors.jdbc.commit import ledger_entry
from penstock.errors import SinkError
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.io.filesystem import HadoopPath
from tests.commit.harness import commit
from tests.connectors.jdbc.test_sink import ROWS, numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment
    from tests.support.services import Postgres

GRANTS = {"none": "", "reads": "SELECT", "adds": "SELECT, INSERT", "all": "SELECT, INSERT, DELETE"}
"""Privileges of the user `clerk` on the ledger of another user."""
LEDGER = "penstock_commits"


@pytest.fixture
def clerk(postgres: Postgres) -> Iterator[dict[str, str]]:
    """A user who may create tables only in the schema `office`, on a server whose superuser owns the ledger."""
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


def office_tables(postgres: Postgres) -> list[str]:
    return postgres.sql("select tablename from pg_tables where schemaname = 'office' order by 1").split()


@pytest.mark.parametrize("rights", GRANTS)
def test_rows_without_a_token_need_no_ledger(
    env: Environment, spark: SparkSession, postgres: Postgres, clerk: dict[str, str], rights: str
) -> None:
    grant(postgres, rights)
    before = postgres.sql(f"select count(*) from {LEDGER}")
    env.write(numbers(spark), JdbcSink(postgres.url, "office.sold", clerk))
    env.execute()
    assert postgres.sql("select count(*), count(distinct id) from office.sold") == f"{ROWS}|{ROWS}"
    assert office_tables(postgres) == ["sold"]
    assert postgres.sql(f"select count(*) from {LEDGER}") == before


@pytest.mark.parametrize("rights", GRANTS)
def test_a_token_needs_all_privileges_on_the_ledger(
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
    assert office_tables(postgres) == []


@pytest.mark.parametrize("token", [None, "monday"])
def test_a_token_fails_if_the_ledger_cannot_be_created(
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
    assert office_tables(postgres) == (["sold"] if token is None else [])


def test_two_tables_of_a_database_commit_without_the_ledger(
    env: Environment, spark: SparkSession, postgres: Postgres, clerk: dict[str, str]
) -> None:
    """They share a transaction, so a recovery does not need to check each table."""
    for name in ("sold", "returned"):
        env.write(numbers(spark), JdbcSink(postgres.url, f"office.{name}", clerk))
    env.execute()
    assert office_tables(postgres) == ["returned", "sold"]
    for name in ("sold", "returned"):
        assert postgres.sql(f"select count(*), count(distinct id) from office.{name}") == f"{ROWS}|{ROWS}"


@pytest.fixture
def tables_abc(postgres: Postgres) -> Iterator[str]:
    """Tables a, b and c, and the statement with which another run writes its token for b."""
    forget_tokens = f"delete from {LEDGER} where target in ('a', 'b', 'c')"
    for name in "abc":
        postgres.sql(f"drop table if exists {name}; create table {name} (id int, v int)")
    yield f"insert into {LEDGER} (target, token) values ('b', '{ledger_entry('b', 'monday')}')"
    postgres.sql(f"{forget_tokens}; drop table a, b, c; drop table if exists penstock_journals")


def rows_of_abc(postgres: Postgres) -> list[str]:
    return [postgres.sql(f"select count(*), count(distinct id) from {name}") for name in "abc"]


@pytest.mark.thorough
def test_a_table_that_another_run_has_written_is_skipped(
    spark: SparkSession, postgres: Postgres, tables_abc: str
) -> None:
    """The shared transaction is rolled back, but the other two tables get their rows once."""
    sinks = [JdbcSink(postgres.url, name, postgres.properties, token="monday") for name in "abc"]

    def write(sink: JdbcSink, job: Any) -> None:
        job.write(numbers(spark).select("id", "v"))
        if sink.table == "c":  # all sinks have looked up their tokens
            postgres.sql(tables_abc)

    commit(spark, sinks, write=write)
    assert rows_of_abc(postgres) == [f"{ROWS}|{ROWS}", "0|0", f"{ROWS}|{ROWS}"]
    for name in "abc":
        entry = f"target = '{name}' and token = '{ledger_entry(name, 'monday')}'"
        assert postgres.sql(f"select count(*) from {LEDGER} where {entry}") == "1"


@pytest.mark.thorough
@pytest.mark.parametrize("order", ["abc", "acb", "bac", "bca", "cab", "cba"])
def test_the_tables_beside_a_skipped_table_commit_together(
    spark: SparkSession, postgres: Postgres, tables_abc: str, order: str
) -> None:
    """A constraint violation in one table rolls back all of them."""
    sinks = [
        JdbcSink(postgres.url, name, postgres.properties, token="monday" if name == "b" else None) for name in order
    ]
    postgres.sql("insert into a values (1, 1); alter table a add unique (id) deferrable initially deferred")

    def write(sink: JdbcSink, job: Any) -> None:
        job.write(numbers(spark).select("id", "v"))
        if sink.table == order[-1]:
            postgres.sql(tables_abc)

    with pytest.raises(Py4JJavaError, match="duplicate key value"):
        commit(spark, sinks, write=write)
    assert rows_of_abc(postgres) == ["1|1", "0|0", "0|0"]


@pytest.mark.thorough
def test_recovery_completes_an_interrupted_rollback(
    spark: SparkSession, postgres: Postgres, tables_abc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token of another run in a table does not mean that this job has committed."""
    sinks = [
        JdbcSink(postgres.url, "b", postgres.properties, token="monday"),
        FileSink(str(tmp_path / "out")),
        JdbcSink(postgres.url, "a", postgres.properties, token="monday"),
    ]
    postgres.sql("insert into a values (1, 1); alter table a add unique (id) deferrable initially deferred")

    def write(sink: Any, job: Any) -> None:
        job.write(numbers(spark).select("id", "v"))
        if sink is sinks[-1]:
            postgres.sql(tables_abc)

    def fail(_self: Any, _access: Any) -> None:
        raise OSError("the storage is unavailable")

    with monkeypatch.context() as patch, pytest.raises(Py4JJavaError, match="duplicate key value"):
        patch.setattr(PreparedFolders, "undo", fail)
        commit(spark, sinks, write=write)
    access = Access(Bridge(spark), {key: secret for sink in sinks for key, secret in sink.secrets.items()})
    (path,) = journals_at(access, HadoopPath(access.bridge, str(tmp_path)))
    assert recover(access, path).outcome is Outcome.UNDONE
    assert not list(tmp_path.iterdir())
    assert rows_of_abc(postgres)[:2] == ["1|1", "0|0"]


@pytest.mark.thorough
@pytest.mark.parametrize("has_journal", [False, True])
def test_a_job_is_rolled_back_if_its_journal_cannot_be_written(
    spark: SparkSession,
    postgres: Postgres,
    tables_abc: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    has_journal: bool,
) -> None:
    """Writing the journal fails from the start, or once it should record the commit or the rollback."""
    sinks = [FileSink(str(tmp_path / "out")), JdbcSink(postgres.url, "b", postgres.properties, token="monday")]
    if not has_journal:
        postgres.sql(tables_abc)  # the token is detected when the sink is opened, else at the commit

    def write(sink: Any, job: Any) -> None:
        if has_journal or sink is sinks[0]:
            job.write(numbers(spark).select("id", "v"))
        if has_journal and sink is sinks[1]:
            postgres.sql(tables_abc)

    write_journal = Journal.write

    def write_to_full_disk(journal: Journal, access: Access) -> None:
        if not has_journal or journal.all_committed or journal.rollback_started:
            raise OSError("no space left")
        write_journal(journal, access)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="no space left"):
        patch.setattr(Journal, "write", write_to_full_disk)
        commit(spark, sinks, write=write)
    assert not list(tmp_path.iterdir())
    assert rows_of_abc(postgres)[1] == "0|0"


@pytest.mark.thorough
def test_a_table_without_a_ledger_cannot_be_written_together_with_files(
    env: Environment, spark: SparkSession, postgres: Postgres, clerk: dict[str, str], tmp_path: Path
) -> None:
    """Without the ledger, a recovery could not detect whether the table has committed. No output becomes visible."""
    env.write(numbers(spark), FileSink(str(tmp_path / "out")))
    env.write(numbers(spark), JdbcSink(postgres.url, "office.sold", clerk))
    with pytest.raises(SinkError, match="the sinks of its job commit together"):
        env.execute()
    env._outputs.take()
    assert list(tmp_path.iterdir()) == []
    assert postgres.sql("select to_regclass('office.sold') is null or not exists (select 1 from office.sold)") == "t"
