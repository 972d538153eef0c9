"""Timeouts of client libraries whose server accepts connections but never responds; see tests/scheduler/test_silence.py."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from penstock import Environment
from penstock.base.threads import running_work
from penstock.config.options import SOURCES_TIMEOUT
from penstock.connectors.core.base import ScanContext
from penstock.connectors.core.timeouts import call_within_timeout, set_timeout, timeout
from penstock.connectors.delta.delta import DeltaSource
from penstock.connectors.files.object_store import ObjectStoreSource
from penstock.connectors.jdbc.sink import JdbcSink
from penstock.errors import SinkError, SourceError, SourceTimeoutError
from tests.support.services import free_port
from tests.support.silence import SilentServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


KEYS = {"access_key": "a", "secret_key": "b", "scheme": "http", "region": "us-east-1"}


@pytest.fixture
def silent() -> Iterator[Any]:
    with SilentServer() as server:
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
    "a catalog": (iceberg, "127.0.0.1:{port}", "GET /v1/config"),
    "an object store": (s3, "s3://bucket/orders", "asking for its files"),
    "a table in an object store": (delta, "s3://bucket/orders", "asking for its transaction log"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("client", CLIENTS)
def test_a_source_that_never_responds_is_a_timeout_error(client: str, silent: Any) -> None:
    connect, source, request = CLIENTS[client]
    started = time.monotonic()
    with set_timeout(3.0), pytest.raises(SourceTimeoutError) as raised:
        connect(silent.port)
    assert 2 < time.monotonic() - started < 10
    assert silent.connections
    message = str(raised.value)
    for part in (source.format(port=silent.port), "has not answered for 3 s", request, "sources.timeout"):
        assert part in message


def test_requests_to_a_catalog_end_after_the_timeout(silent: Any) -> None:
    with set_timeout(1.5), pytest.raises(SourceTimeoutError):
        iceberg(silent.port)
    deadline = time.monotonic() + 5
    while (
        unfinished := [work for work in running_work("") if "catalog" in work.waits_for]
    ) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not unfinished


def test_a_broker_that_refuses_connections_is_a_source_error() -> None:
    with set_timeout(1.5), pytest.raises(SourceError):
        kafka(free_port())


def test_set_timeout_applies_to_its_block_and_thread() -> None:
    default = SOURCES_TIMEOUT.default
    assert timeout() == default
    with set_timeout(7.0):
        assert timeout() == 7
        assert call_within_timeout("orders", "asking", timeout) == 7
        timeouts_elsewhere = []
        thread = threading.Thread(target=lambda: timeouts_elsewhere.append(timeout()))
        thread.start()
        thread.join()
    assert timeouts_elsewhere == [default]
    assert timeout() == default


DATABASES = {
    "PostgreSQL": ("jdbc:postgresql://127.0.0.1:{}/shop", "org.postgresql.Driver"),
    "MariaDB": ("jdbc:mysql://127.0.0.1:{}/shop?permitMysqlScheme", "org.mariadb.jdbc.Driver"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("database", DATABASES)
def test_a_job_that_writes_to_a_silent_database_fails_after_the_timeout(
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
