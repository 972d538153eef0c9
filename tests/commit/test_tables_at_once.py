"""Concurrent commits to the same table, topic or database in forced orders: no row is lost or duplicated."""

from __future__ import annotations

import os
import shlex
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import deltalake
import pyarrow as pa
import pytest

from penstock.commit import Access, Commit
from penstock.connectors.delta.commit import PreparedDelta
from penstock.connectors.iceberg.commit import PreparedIceberg
from penstock.connectors.jdbc import commit as jdbc_commit
from penstock.connectors.jdbc.commit import add_token, create_ledger, has_token
from penstock.connectors.jdbc.source import dialect_of
from penstock.connectors.kafka.commit import PreparedKafka, PreparedKafkaParts
from tests.commit.harness import in_child
from tests.commit.local import without_a_jvm
from tests.commit.targets import Delta, Iceberg, Kafka, KafkaParts, Template
from tests.commit.test_several_jobs import run_commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.bridge.jvm import Bridge
    from tests.support.services import KafkaBroker


pytestmark = pytest.mark.forks


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    return without_a_jvm(monkeypatch, tmp_path)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return Template(None, tmp_path_factory.mktemp("template"))


def new_commit(spark: SparkSession, target: Any) -> Any:
    """Return the commit of a job that has written its rows."""
    job = target.sink().open(spark)
    target.write(job)
    return Commit(Access(None), f"j{os.urandom(3).hex()}", "j", [job])


def commit_other_at_call(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: Any, number: Any, other: Any, *, after: bool = False
) -> None:
    """Let another job commit before (or after) the call with this number of a method."""
    original, calls = getattr(owner, name), []

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        result = original(self, *args, **kwargs) if after else None
        if len(calls) == number:
            monkeypatch.setattr(owner, name, original)
            assert run_commit(other) is None
        return result if after else original(self, *args, **kwargs)

    monkeypatch.setattr(owner, name, called)


TABLES = [
    # kind, mode, rows before, token, number of rows at the end
    (Delta, "append", "rows", None, 32),
    (Delta, "append", "rows", "t", 22),
    (Delta, "overwrite", "rows", None, 10),
    (Delta, "overwrite", "no rows", None, 10),
    (Delta, "overwrite", "no rows", "t", 10),
    (Iceberg, "append", "rows", None, 32),
    (Iceberg, "append", "rows", "t", 22),
    (Iceberg, "append", "no rows", "t", 10),
    (Iceberg, "overwrite", "rows", None, 10),
    (Iceberg, "overwrite", "rows", "t", 10),
    (Iceberg, "overwrite", "no rows", None, 10),
]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("kind", "mode", "before", "token", "rows"), TABLES)
def test_two_concurrent_commits_to_a_table(
    monkeypatch: pytest.MonkeyPatch,
    local: Any,
    template: Any,
    tmp_path: Path,
    kind: Any,
    mode: str,
    before: str,
    token: str | None,
    rows: int,
) -> None:
    def work() -> Any:
        target = kind(template, tmp_path / "t", mode, exists=before == "rows", token=token)
        if before == "no rows":
            schema = pa.schema([("id", pa.int64()), ("p", pa.int64())])
            if kind is Delta:
                deltalake.DeltaTable.create(str(target.path), deltalake.Schema.from_arrow(schema))
            else:
                target.catalog().create_table("n.t", schema)
        first, second = new_commit(local, target), new_commit(local, target)
        if kind is Delta:  # after it has read the table for the last time
            commit_other_at_call(monkeypatch, PreparedDelta, "load_table", 2, second, after=True)
        else:
            commit_other_at_call(monkeypatch, PreparedIceberg, "_add_files", 1, second)
        return run_commit(first), len(target.rows()), len(set(target.rows()))

    end = in_child(local, work)
    assert end.error is None, end.error
    assert end.result == (None, rows, min(rows, 22))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [Kafka, KafkaParts])
@pytest.mark.parametrize(("step", "number"), [("_producer", 1), ("_producer", 2), ("_receipt", 1)])
def test_two_concurrent_runs_with_the_same_token_of_a_topic(
    monkeypatch: pytest.MonkeyPatch, local: Any, tmp_path: Path, broker: KafkaBroker, step: str, number: int, kind: Any
) -> None:
    """The second run commits before `make_ready`, before the producer is created, or after the check of the token."""

    target = kind(None, broker, token="t")  # in the parent, as the client that creates topics does not survive a fork

    def work() -> Any:
        first, second = new_commit(local, target), new_commit(local, target)
        record = PreparedKafka if kind is Kafka else PreparedKafkaParts
        commit_other_at_call(monkeypatch, record, step, number, second, after=True)
        return run_commit(first), target.rows() == target.new

    end = in_child(local, work)
    assert end.error is None, end.error
    assert end.result == (None, True)


def test_tokens_and_topics_with_dashes_have_separate_producers(monkeypatch: pytest.MonkeyPatch, local: Any) -> None:
    import confluent_kafka

    ids = []

    class Producer:
        def __init__(self, properties: Any) -> None:
            ids.append(properties["transactional.id"])

        def init_transactions(self, patience: Any) -> None:
            pass

    monkeypatch.setattr(confluent_kafka, "Producer", Producer)
    for topic, token in (("a-b", "c"), ("a", "b-c"), ("a", "b:c"), ("a.b", "c")):
        PreparedKafka("h:1", topic, token, "/s")._producer(Access(None))
    assert len(set(ids)) == len(ids)


class Client:
    """A replacement of `JdbcConnection` that uses the client program of a server."""

    def __init__(self, command: str, begin: str, error: str, end: str) -> None:
        self._begin, self._error, self._end = begin, error, end
        self._process = subprocess.Popen(
            shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def _do(self, statement: Any, values: Any) -> Any:
        for value in values:
            quoted = value.replace("\\", "\\\\") if self._error == "ERROR " else value
            statement = statement.replace("?", "'" + quoted.replace("'", "''") + "'", 1)
        self._process.stdin.write(f"{statement.rstrip(';')};\n{self._end}\n")
        self._process.stdin.flush()
        lines: list[str] = []
        while (line := self._process.stdout.readline().rstrip("\n")) != "=end":
            assert line or self._process.poll() is None, lines
            lines.append(line)
        if any(line.startswith(self._error) for line in lines):
            raise RuntimeError("; ".join(lines))
        return lines

    def rows(self, statement: Any, *values: Any) -> Any:
        return [tuple(line.replace("\t", "|").split("|")) for line in self._do(statement, values) if line]

    def run(self, statement: Any, *values: Any) -> int:
        self._do(statement, values)
        return 0

    def begin(self) -> None:
        self._do(self._begin, ())

    def commit(self) -> None:
        self._do("COMMIT", ())

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.fixture(params=["postgres", "mariadb"])
def server(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def connect(server: Any, isolation: str = "") -> Any:
    """Return a connection with an isolation level; with the default level if it is empty."""
    if "postgresql" in server.url:
        at = f"-h 127.0.0.1 -p {server.port} -U {server.user}"
        client = Client(
            f"env PGPASSWORD={server.password} {server.bin}/psql {at} -qAt postgres", "BEGIN", "ERROR:", r"\echo =end"
        )
        if isolation:
            client.run(f"SET default_transaction_isolation = '{isolation}'")
        return client
    program = f"mariadb --no-defaults --socket={server.socket} -u root -N -B --unbuffered --force d"
    client = Client(program, "SET autocommit = 0", "ERROR ", "SELECT '=end';")
    if isolation:
        client.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")
    return client


class Staged:
    """A sink whose rows are staged in a table of a server."""

    secrets: ClassVar[dict[str, Any]] = {}

    def __init__(self, server: Any, name: Any, table: Any, **options: Any) -> None:
        quote = '"' if "postgresql" in server.url else "`"
        columns = tuple(f"{quote}{column}{quote}" for column in ("id", "p"))
        record = {"token": None, "receipt": f"job {name}", "token_prefix": None, "properties": ()} | options
        self.part = jdbc_commit.PreparedJdbc(server.url, table, "overwrite", columns, (), f"st_{name}", **record)

    def prepare(self) -> Any:
        return self.part

    def abort(self) -> None:
        pass

    def refresh(self) -> None:
        pass


@pytest.mark.thorough
@pytest.mark.sample(2)
@pytest.mark.parametrize("before", [0, 12])
@pytest.mark.parametrize("isolation", ["", "READ COMMITTED", "REPEATABLE READ"])
def test_two_concurrent_overwrites_of_a_database_table(
    monkeypatch: pytest.MonkeyPatch, server: Any, isolation: str, before: int
) -> None:
    class Target:
        def __init__(self, bridge: Bridge, options: Any) -> None:
            pass

        def connect(self) -> Any:
            return connect(server, isolation)

    monkeypatch.setattr(jdbc_commit, "JdbcTarget", Target)
    name = f"o{os.urandom(3).hex()}"
    server.sql(f"create table {name} (id bigint primary key, p bigint)")
    if before:
        server.sql(f"insert into {name} values {', '.join(f'({2 * i}, 1)' for i in range(before))}")
    for job_name, start in (("a", 5), ("b", -100)):  # rows among the existing rows, and before them
        staged = f"st_{job_name}{name}"
        columns = "id bigint, p bigint, penstock_task int, penstock_attempt bigint"
        values = ", ".join(f"({start + 2 * i}, 0, 0, 0)" for i in range(10))
        server.sql(f"create table {staged} ({columns}); insert into {staged} values {values}")
    first, second = (
        Commit(Access(None), job_name, job_name, [Staged(server, job_name + name, name)]) for job_name in "ab"
    )
    errors = []

    def begin() -> None:  # the first has copied its rows, and only its COMMIT is missing
        thread.start()
        time.sleep(1)

    first._before_commit = begin
    thread = threading.Thread(target=lambda: errors.append(run_commit(second)))
    assert run_commit(first) is None
    thread.join(60)
    refused = [error for error in errors if error is not None]
    rows = server.sql(f"select count(*), min(id) from {name}").replace("\t", "|")
    assert rows == ("10|5" if refused else "10|-100")  # the rows of the last successful commit
    if "postgresql" in server.url:
        assert not refused


TOKENS = [
    "day-1",
    "Malmö",
    "malmo",
    "MALMÖ",
    "Malmö ",
    r"C:\load\new\2024",
    "ends with \\",
    "it's",
    "x" * 300,
    "x" * 299 + "y",
    "sha256:x",
    "",
]


def test_tokens_that_a_database_compares_as_equal(server: Any) -> None:
    dialect = dialect_of(server.url)
    server.sql("drop table if exists penstock_commits")
    with connect(server) as database:
        for number, token in enumerate(TOKENS):
            assert not has_token(dialect, database, "orders", token), token
            add_token(database, "orders", token)
            assert all(has_token(dialect, database, "orders", earlier) for earlier in TOKENS[: number + 1])
        for table in ("ORDERS", '"orders"', "o" * 300):
            assert not any(has_token(dialect, database, table, token) for token in TOKENS)
            add_token(database, table, "day-1")
            assert has_token(dialect, database, table, "day-1")
        with pytest.raises(RuntimeError):  # two runs with the same token still exclude each other
            add_token(database, "orders", "Malmö")


def test_tokens_of_older_releases_are_recognized(server: Any) -> None:
    dialect = dialect_of(server.url)
    server.sql("drop table if exists penstock_commits")
    with connect(server) as database:
        create_ledger(dialect, database)
        database.run("INSERT INTO penstock_commits VALUES ('orders', 'Malmö')")
        assert has_token(dialect, database, "orders", "Malmö")
        assert not has_token(dialect, database, "orders", "malmo")
        assert not has_token(dialect, database, "ORDERS", "Malmö")


def test_two_concurrent_first_jobs_create_the_table_of_tokens(server: Any) -> None:
    """The other job creates it between the check and the CREATE TABLE."""
    dialect = dialect_of(server.url)
    server.sql("drop table if exists penstock_commits")

    class Late(Client):
        def run(self, statement: Any, *values: Any) -> Any:
            if statement.startswith("CREATE TABLE IF NOT EXISTS penstock_commits"):
                super().run(statement)
                raise RuntimeError("duplicate key value violates unique constraint pg_type_typname_nsp_index")
            return super().run(statement, *values)

    with connect(server) as database:
        database.__class__ = Late
        assert not has_token(dialect, database, "orders", "t")
