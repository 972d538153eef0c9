"""Client libraries that ask what listens and never answers; see also tests/scheduler/test_silence.py."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from penstock import Environment
from penstock.config.options import SOURCES_TIMEOUT
from penstock.connectors.base import ScanContext
from penstock.connectors.delta import DeltaSource
from penstock.connectors.jdbc.sink import JdbcSink
from penstock.connectors.object_store import ObjectStoreSource
from penstock.connectors.timeouts import answered, timeout, timeout_of
from penstock.errors import SinkError, SourceError, SourceTimeoutError
from penstock.threads import works
from tests.services import free_port
from tests.silence import Silent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


KEYS = {"access_key": "a", "secret_key": "b", "scheme": "http", "region": "us-east-1"}


@pytest.fixture
def silent() -> Iterator[Any]:
    with Silent() as server:
        yield server


def kafka(port: Any) -> Any:
    pytest.importorskip("confluent_kafka")
    from penstock.connectors.kafka import KafkaSource

    return KafkaSource(f"127.0.0.1:{port}", "orders").enumerate_splits(ScanContext(4, 1))


def iceberg(port: Any) -> Any:
    pytest.importorskip("pyiceberg")
    from penstock.connectors import IcebergSource

    return IcebergSource("shop.orders", {"type": "rest", "uri": f"http://127.0.0.1:{port}"})


def s3(port: Any) -> Any:
    source = ObjectStoreSource("s3://bucket/orders", KEYS | {"endpoint_override": f"127.0.0.1:{port}"})
    return source.enumerate_splits(ScanContext(4, 1))


def delta(port: Any) -> Any:
    options = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    return DeltaSource("s3://bucket/orders", storage_options=options)


CLIENTS = {
    "a broker": (kafka, "the broker at 127.0.0.1:{port}", "asking for the partitions of orders"),
    "a catalogue": (iceberg, "127.0.0.1:{port}", "GET /v1/config"),
    "an object store": (s3, "s3://bucket/orders", "asking for its files"),
    "a table on one": (delta, "s3://bucket/orders", "asking for its transaction log"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("client", CLIENTS)
def test_what_never_answers_is_given_up(client: str, silent: Any) -> None:
    ask, source, what = CLIENTS[client]
    started = time.monotonic()
    with timeout_of(3.0), pytest.raises(SourceTimeoutError) as found:
        ask(silent.port)
    assert 2 < time.monotonic() - started < 10
    assert silent.connections
    message = str(found.value)
    for part in (source.format(port=silent.port), "has not answered for 3 s", what, "sources.timeout"):
        assert part in message


def test_the_requests_of_a_catalogue_end_by_themselves(silent: Any) -> None:
    with timeout_of(1.5), pytest.raises(SourceTimeoutError):
        iceberg(silent.port)
    until = time.monotonic() + 5
    while (left := [work for work in works("") if "catalogue" in work.asks]) and time.monotonic() < until:
        time.sleep(0.1)
    assert not left


def test_a_broker_that_refuses_is_told_from_one_that_is_silent() -> None:
    with timeout_of(1.5), pytest.raises(SourceError):
        kafka(free_port())


def test_the_timeout_of_a_block_holds_in_it_alone() -> None:
    default = SOURCES_TIMEOUT.default
    assert timeout() == default
    with timeout_of(7.0):
        assert timeout() == 7
        assert answered("orders", "asking", timeout) == 7
        others = []
        thread = threading.Thread(target=lambda: others.append(timeout()))
        thread.start()
        thread.join()
    assert others == [default]
    assert timeout() == default


DATABASES = {
    "PostgreSQL": ("jdbc:postgresql://127.0.0.1:{}/shop", "org.postgresql.Driver"),
    "MariaDB": ("jdbc:mysql://127.0.0.1:{}/shop?permitMysqlScheme", "org.mariadb.jdbc.Driver"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("database", DATABASES)
def test_a_database_that_never_answers_does_not_hang_a_job_that_writes(
    spark: SparkSession, silent: Any, database: str
) -> None:
    url, driver = DATABASES[database]
    env = Environment(spark, config={"sources.timeout": "1 s"}, progress=False)
    env.write(
        spark.range(3), JdbcSink(url.format(silent.port), "orders", {"user": "me", "password": "x", "driver": driver})
    )
    started = time.monotonic()
    with pytest.raises(SinkError, match="cannot be written") as error:
        env.execute()
    assert time.monotonic() - started < 30
    assert silent.connections
    assert "answers within 1 seconds (sources.timeout)" in str(error.value)
