"""The broadcast threshold of a session and the setting that it comes from; pooled sessions."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.core import context

from penstock.errors import SessionError
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.bridge.session import SessionPool, broadcast_threshold, java_checked
from penstock.spark.bridge.settings import read_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLANNED = "spark.sql.autoBroadcastJoinThreshold"
AT_RUN_TIME = "spark.sql.adaptive.autoBroadcastJoinThreshold"


class Conf:
    """Settings of a session."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings

    def get(self, key: str, default: str | None) -> str | None:
        return self._settings.get(key, default)


@pytest.mark.parametrize(
    ("settings", "at_run_time", "expected"),
    [
        ({}, False, (10 << 20, PLANNED)),
        ({}, True, (10 << 20, PLANNED)),
        ({PLANNED: "-1"}, True, (-1, PLANNED)),
        ({PLANNED: "-1", AT_RUN_TIME: "3m"}, True, (3 << 20, AT_RUN_TIME)),
        ({PLANNED: "5m", AT_RUN_TIME: "3m"}, False, (5 << 20, PLANNED)),
    ],
)
def test_the_threshold_for_broadcasts(
    settings: Mapping[str, str], at_run_time: bool, expected: tuple[int, str]
) -> None:
    bridge: Any = SimpleNamespace(spark=SimpleNamespace(conf=Conf(settings)))
    assert broadcast_threshold(bridge, at_run_time=at_run_time) == expected


@pytest.mark.parametrize(
    ("starts", "port", "expected"),
    [(True, None, None), (False, None, SessionError), (False, "123", OSError)],
    ids=["PySpark finds a Java", "no Java", "spark-submit has started the JVM"],
)
def test_pyspark_tries_to_start_a_jvm_before_java_is_checked(
    monkeypatch: pytest.MonkeyPatch, starts: bool, port: str | None, expected: type[Exception] | None
) -> None:
    def launch_gateway() -> str:
        if not starts:
            raise OSError("the gateway has exited")
        return "gateway"

    monkeypatch.setattr(context, "launch_gateway", launch_gateway)
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    if port is not None:
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", port)
    with java_checked(), nullcontext() if expected is None else pytest.raises(expected):
        assert context.launch_gateway() == "gateway"  # type: ignore[attr-defined]
    assert context.launch_gateway is launch_gateway  # type: ignore[attr-defined]


def test_a_pooled_session_is_reset_after_each_use(spark: SparkSession) -> None:
    pool = SessionPool(Bridge(spark), {"spark.sql.shuffle.partitions": "3"})
    with pool.use() as session:
        initial = read_settings(session, "spark.sql.")
    assert initial["spark.sql.shuffle.partitions"] == "3"
    with pool.use({"spark.sql.shuffle.partitions": "7", "spark.sql.maxConcurrentOutputFileWriters": "8"}) as again:
        assert again is session
        assert read_settings(session, "spark.sql.shuffle.") == {"spark.sql.shuffle.partitions": "7"}
    with pool.use():
        assert read_settings(session, "spark.sql.") == initial
