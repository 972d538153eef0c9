"""Exactly-once writes: in a single transaction, or in parts with a transaction each."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.paths import TESTS
from tests.support.services import KafkaBroker, require_module

require_module("confluent_kafka", "kafka")

from confluent_kafka import TopicPartition

from penstock.commit import Access
from penstock.connectors import KafkaSink
from penstock.connectors.kafka import client
from penstock.connectors.kafka import commit as topics
from penstock.connectors.kafka.commit import (
    PartDestination,
    PreparedKafka,
    PreparedKafkaParts,
    TransactionalTopic,
    divide_files,
    write_part,
)
from penstock.errors import CommitError, PenstockError, SinkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment


JOB = TESTS / "jobs" / "topic_parts.py"


def values(broker: KafkaBroker, topic: str, partitions: int = 1) -> list[int]:
    """Return the sorted values of committed records."""
    with client.consumer(broker.servers, {"isolation.level": "read_committed"}) as consumer:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        numbers, deadline = [], time.monotonic() + 0.6
        while time.monotonic() < deadline:
            for message in consumer.consume(500, 0.1):
                if message.error() is None:
                    numbers.append(int(message.value()))
                    deadline = time.monotonic() + 0.6
    return sorted(numbers)


@pytest.fixture
def topic(broker: KafkaBroker) -> str:
    return broker.topic(f"parts-{uuid.uuid4().hex[:8]}", 1)


DIVIDED: dict[str, tuple[dict[str, int], int, tuple[tuple[str, ...], ...]]] = {
    "evenly": ({"a": 5, "b": 4, "c": 3, "d": 2}, 2, (("a", "d"), ("b", "c"))),
    "fewer files than parts": ({"a": 5, "b": 4}, 3, (("a",), ("b",))),
    "empty files": ({"b": 0, "a": 0, "c": 0}, 2, (("a", "c"), ("b",))),
    "no files": ({}, 2, ()),
}


@pytest.mark.parametrize("case", DIVIDED)
def test_files_are_divided_evenly_among_parts(case: str) -> None:
    files, number, expected = DIVIDED[case]
    assert divide_files(files.items(), number) == expected


@pytest.mark.thorough
def test_a_repeated_part_is_written_once(broker: KafkaBroker, topic: str) -> None:
    destination = PartDestination(broker.servers, topic, {}, "run")
    records = [{"value": str(number).encode()} for number in range(20)]
    assert write_part(destination, 0, records) == 20
    assert write_part(destination, 0, records) == 0
    assert write_part(destination, 1, records[:5]) == 5
    assert write_part(replace(destination, run="other"), 0, records[:1]) == 1
    assert values(broker, topic) == sorted([*range(20), *range(5), 0])


@pytest.mark.thorough
@pytest.mark.parametrize("fails", ["a record", "the receipt"])
def test_a_failed_part_does_not_block_readers(
    monkeypatch: pytest.MonkeyPatch, broker: KafkaBroker, topic: str, fails: str
) -> None:
    """Readers of committed records see no record after the start of an open transaction."""

    def records() -> Iterator[dict[str, bytes]]:
        yield {"value": b"0"}
        if fails == "a record":
            time.sleep(0.3)  # until the broker has the first record
            raise OSError("its file cannot be read")

    def fail(*_: Any) -> None:
        raise OSError("the coordinator is unavailable")

    destination = PartDestination(broker.servers, topic, {}, "run")
    with monkeypatch.context() as patch:
        if fails == "the receipt":
            patch.setattr(PartDestination, "commit", fail)
        with pytest.raises(OSError, match=r"cannot be read|is unavailable"):
            write_part(destination, 0, records())
    assert write_part(destination, 1, [{"value": b"1"}]) == 1
    assert 1 in values(broker, topic)


@pytest.mark.parametrize("kind", [PreparedKafka, PreparedKafkaParts])
@pytest.mark.parametrize("days", [5, 7])
def test_an_expired_receipt_leaves_the_outcome_unclear(broker: KafkaBroker, topic: str, kind: Any, days: int) -> None:
    access: Any = Access(None)
    run_and_parts = ("run", (("a",),)) if kind is PreparedKafkaParts else ()
    record = kind(broker.servers, topic, "t", "/staging", *run_and_parts, prepared_at=time.time() - days * 86400)
    for check in (record.is_committed, record.has_begun):
        if days == 5:
            assert not check(access)
        else:
            with pytest.raises(CommitError, match="brokers may have removed its receipt"):
                check(access)


def prepared(broker: KafkaBroker, topic: str, run: str) -> PreparedKafkaParts:
    return PreparedKafkaParts(broker.servers, topic, "t", "/staging", run, (("a",), ("b",)))


def test_another_run_with_a_claimed_token_is_refused(
    monkeypatch: pytest.MonkeyPatch, broker: KafkaBroker, topic: str
) -> None:
    access: Any = Access(None)
    first, second = prepared(broker, topic, "first"), prepared(broker, topic, "second")
    single_transaction = PreparedKafka(broker.servers, topic, "t", "/staging")
    written: list[Any] = []

    def fail(*_: Any) -> None:
        raise OSError("the driver dies")

    monkeypatch.setattr(topics, "write_parts", fail)
    assert not first.has_begun(access)
    with pytest.raises(OSError, match="dies"):
        first.commit(access)
    assert (first.has_begun(access), first.is_committed(access)) == (True, False)
    assert (second.has_begun(access), second.is_committed(access)) == (False, False)
    for other in (second, single_transaction):
        with pytest.raises(SinkError, match="another run is writing token t to topic"):
            other.commit(access)
    monkeypatch.setattr(topics, "write_parts", lambda bridge, destination, *_: written.append(destination.run))
    first.commit(access)
    second.commit(access)
    assert written == ["first"]
    assert TransactionalTopic(broker.servers, topic, {}).has_token("t")


@pytest.mark.thorough
@pytest.mark.parametrize("transactions", [1, 3])
def test_a_token_is_written_exactly_once(
    env: Environment, spark: SparkSession, broker: KafkaBroker, transactions: int
) -> None:
    topic = broker.topic(f"once-{uuid.uuid4().hex[:8]}", 2)
    sink = KafkaSink(broker.servers, topic, token="day", transactions=transactions)
    for _ in range(2):
        env.write(spark.range(0, 3000, 1, 4).selectExpr("cast(id as string) as value"), sink)
        env.execute()
        assert values(broker, topic, 2) == list(range(3000))


def test_each_run_without_a_token_is_written_exactly_once(
    env: Environment, spark: SparkSession, broker: KafkaBroker, topic: str
) -> None:
    for times in (1, 2):
        env.write(
            spark.range(0, 300, 1, 2).selectExpr("cast(id as string) as value"),
            KafkaSink(broker.servers, topic, delivery="exactly-once", transactions=2),
        )
        env.execute()
        assert values(broker, topic) == sorted([*range(300)] * times)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a delivery": ({"delivery": "at-most-once"}, "delivery 'at-most-once' is not valid"),
    "a token and at least once": ({"delivery": "at-least-once", "token": "t"}, "a token, and delivery at least once"),
    "exactly once without a topic": ({"topic": None, "delivery": "exactly-once"}, "exactly once without a topic"),
    "no transactions": ({"delivery": "exactly-once", "transactions": 0}, "invalid parallelism"),
    "transactions, and at least once": ({"transactions": 2}, "2 transactions, and delivery at least once"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_errors(case: str) -> None:
    arguments, message = BAD[case]
    with pytest.raises(PenstockError, match=message):
        KafkaSink("h:1", **{"topic": "t", **arguments})


@pytest.mark.slow
def test_the_next_run_completes_the_parts_of_a_killed_driver(broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    def run(action: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(JOB), broker.servers, topic, str(tmp_path), action]
        return subprocess.run(command, capture_output=True, text=True, timeout=200, start_new_session=True, check=False)

    killed = run("die")
    assert killed.returncode == -9, killed.stderr[-3000:]
    assert len(values(broker, topic)) == 500
    assert len(list(tmp_path.glob(".penstock-commit-*.json"))) == 1
    second_run = run("live")
    assert second_run.returncode == 0, second_run.stderr[-3000:]
    assert values(broker, topic) == list(range(1000))
    assert not list(tmp_path.glob(".penstock-*"))
