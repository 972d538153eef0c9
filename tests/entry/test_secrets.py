"""Passwords of a job that reads and writes a database do not appear in logs, errors, pages or command lines."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

from penstock import Environment
from penstock.connectors import JdbcSink, JdbcSource
from penstock.errors import PenstockError
from tests.conftest import OFF

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.services import Postgres

PASSWORD = "hunter2Nightly"
WRONG = "hunter2Wrong"
PATHS = (
    "/",
    "/config",
    "/metrics",
    "/overview",
    "/jobs/overview",
    "/streams",
    "/ui/dashboard",
    "/jobs/{job}",
    "/jobs/{job}/plan",
    "/jobs/{job}/config",
    "/jobs/{job}/exceptions",
    "/jobs/{job}/decisions",
    "/jobs/{job}/graph.svg",
    "/ui/jobs/{job}",
)
STEP_PATHS = ("/jobs/{job}/vertices/{step}", "/ui/jobs/{job}/vertices/{step}")


class CommandLines(threading.Thread):
    """Thread that polls the command lines of all processes, which any user of the machine can read."""

    def __init__(self) -> None:
        super().__init__(name="command lines")
        self.read: set[bytes] = set()
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.wait(0.05):
            for file in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    self.read.add(file.read_bytes())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self.join()


@pytest.fixture(scope="module")
def database(postgres: Postgres) -> Iterator[Postgres]:
    postgres.sql(
        f"create role nightly login superuser password '{PASSWORD}';"
        "create table secret_orders as select i as id, i % 7 as g from generate_series(1, 5000) i;"
    )
    yield postgres
    postgres.sql("drop owned by nightly; drop table secret_orders; drop role nightly")


def run_jobs(spark: SparkSession, env: Environment, postgres: Postgres, folder: Path) -> list[str]:
    """Run jobs with a password in URLs, properties, statements and filters; return the texts of errors."""
    in_url = f"{postgres.url}?user=nightly&password={PASSWORD}"
    properties = {"user": "nightly", "password": PASSWORD, "driver": "org.postgresql.Driver"}
    driver = {"driver": properties["driver"]}
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW secret_orders USING jdbc OPTIONS (url '{in_url}', dbtable 'secret_orders',"
        f" driver '{properties['driver']}')"
    )
    by_properties = spark.read.jdbc(postgres.url, "secret_orders", properties=properties)
    by_source = env.read(JdbcSource(in_url, "secret_orders", driver))
    joined = env.sql(
        f"SELECT o.g, count(*) AS n FROM secret_orders o WHERE concat('password=', o.g) <> 'password={PASSWORD}' GROUP BY o.g"
    )
    env.collect(joined.join(by_properties, "g").join(by_source.select("id"), "id").groupBy("g").count())
    env.write(joined, JdbcSink(in_url, "secret_counts", driver))
    env.write(joined, JdbcSink(postgres.url, "secret_target", properties, token="night 1"))
    env.execute()
    texts = [
        repr(JdbcSink(in_url, "t", properties)),
        repr(JdbcSource(in_url, "t", properties)),
        str(env.explain(joined)),
    ]
    failing = [
        lambda: env.collect(env.read(JdbcSource(in_url.replace(PASSWORD, WRONG), "secret_orders", driver))),
        lambda: env.collect(by_properties.selectExpr("g", "1 div (id - id) as n").groupBy("g").sum("n")),
        lambda: [env.write(joined, JdbcSink(in_url.replace(PASSWORD, WRONG), "t", driver)), env.execute()],
        lambda: [env.write(joined, JdbcSink(in_url, "secret_counts.t", properties)), env.execute()],
    ]
    for fails in failing:
        with pytest.raises(PenstockError) as error:
            fails()
        texts.append(str(error.value))
    return texts


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="there is no /proc")
def test_no_output_of_a_job_has_passwords(
    spark: SparkSession, database: Postgres, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: Any
) -> None:
    config = OFF | {"rest.port": 0, "jobmanager.archive.fs.dir": str(tmp_path)}
    env = Environment(spark, config=config, progress=False, ui=True)
    with caplog.at_level("INFO"), CommandLines() as command_lines:
        texts = run_jobs(spark, env, database, tmp_path)
    outputs = {
        "command lines": "\n".join(line.decode(errors="replace") for line in command_lines.read),
        "event logs": "\n".join(file.read_text() for file in tmp_path.rglob("*.jsonl")),
        "the page": "\n".join(responses(str(env.ui_url).partition("?")[0])),
        "errors": "\n".join(texts),
        "logs": "\n".join(caplog.messages),
        "output": "".join(capfd.readouterr()),
    }
    expected = {
        "command lines": "java",
        "event logs": "secret_orders",
        "the page": "secret_orders",
        "errors": "password authentication failed",
        "logs": "",
        "output": "",
    }
    assert {name: word for name, word in expected.items() if word not in outputs[name]} == {}, "an output is empty"
    leaks = {name: [line for line in text.split("\n") if "hunter2" in line] for name, text in outputs.items()}
    assert {name: lines for name, lines in leaks.items() if lines} == {}


def responses(address: str) -> Iterator[str]:
    """Yield the contents of the page and the API about the jobs and their steps."""

    def get(path: str) -> str:
        with urllib.request.urlopen(address.rstrip("/") + path, timeout=30) as response:
            return str(response.read().decode())

    for job in json.loads(get("/jobs/overview"))["jobs"]:
        number = job["jid"]
        for path in PATHS:
            yield get(path.format(job=number))
        for vertex in json.loads(get(f"/jobs/{number}"))["vertices"]:
            for path in STEP_PATHS:
                yield get(path.format(job=number, step=vertex["id"]))
