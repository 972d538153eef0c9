"""The reprs of connectors show no secrets."""

from __future__ import annotations

import pytest

from penstock.connectors import (
    DeltaSink,
    FileSink,
    FileSource,
    HttpSink,
    JdbcSink,
    JdbcSource,
    KafkaSource,
)
from penstock.connectors.files.object_store import ObjectStoreSource

DATABASE = "jdbc:postgresql://db/shop?user=me&password=hunter2"
STORE = "s3a://me:hunter2@bucket/path"
SECRET = {"password": "hunter2", "AWS_SECRET_ACCESS_KEY": "hunter2"}
# A connector, and a fragment of its repr.
CONNECTORS = [
    (JdbcSource(DATABASE, "orders", SECRET), "jdbc:postgresql://db/shop?user=me"),
    (JdbcSink(DATABASE, "orders", SECRET), "table='orders'"),
    (FileSource(STORE), "bucket/path"),
    (FileSink(STORE, options=SECRET | {"header": "true"}), "'header': 'true'"),
    (DeltaSink(STORE, storage_options=SECRET), "bucket/path"),
    (ObjectStoreSource(STORE, SECRET), "bucket/path"),
    (KafkaSource("broker:9092", "orders", properties=SECRET), "broker:9092"),
    (HttpSink("https://hooks/services/hunter2", headers={"Authorization": "hunter2"}), "method='POST'"),
]


@pytest.mark.parametrize(
    ("connector", "fragment"), CONNECTORS, ids=[type(connector).__name__ for connector, _ in CONNECTORS]
)
def test_secrets_are_not_shown(connector: object, fragment: str) -> None:
    assert fragment in repr(connector)
    assert "hunter2" not in repr(connector)
