"""Which dynamic filters are pushed down to a database, and the reason for those that are not."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.connectors.jdbc import keys as module
from penstock.connectors.jdbc.dialect import KeyType
from penstock.spark.io.jdbc import ColumnType
from penstock.spark.run.filters import KeySet


class Texts:
    """Stub of a set of keys."""

    def __init__(self, text: str) -> None:
        self.text = text


class Column:
    def __init__(self, name: Any, spark_type: Any) -> None:
        self.name, self.type = name, spark_type


class Relation:
    url, table = "jdbc:x", "t"
    types = {"n": ColumnType("int", 10, 0), "u": ColumnType("uuid", 36, 0), "s": ColumnType("text", 0, 0)}

    def __init__(self, leaf: Any) -> None:
        self.leaf = leaf

    def column_types(self, properties: Any) -> Any:
        assert properties == {"timeout": "60"}
        if self.leaf == "unreachable":
            raise OSError("no route to host")
        return self.types


class Dialect:
    comparable_types = {"int": KeyType.WHOLE, "text": KeyType.TEXT}

    @staticmethod
    def query_timeouts(seconds: Any) -> dict[str, Any]:
        return {"timeout": f"{seconds:g}"}


@pytest.mark.parametrize(
    ("leaf", "column", "texts", "condition_count", "reason"),
    [
        ("there", Column("n", "int"), "1 2", 1, ""),
        ("there", Column("s", "string"), "a b", 1, ""),
        (
            "there",
            Column("u", "string"),
            "a b",
            0,
            "the database may compare column u of type uuid differently from Spark",
        ),
        (
            "there",
            Column("v", "int"),
            "1",
            0,
            "the database may compare column v of an unknown type differently from Spark",
        ),
        ("there", Column("s", "string"), "ä", 0, "the database may read or order strings of column s differently"),
        ("unreachable", Column("n", "int"), "1", 0, "the types of t could not be read: no route to host"),
    ],
)
def test_keys_are_pushed_down_if_the_database_compares_them_like_spark(
    monkeypatch: pytest.MonkeyPatch, leaf: str, column: Any, texts: str, condition_count: int, reason: str
) -> None:
    monkeypatch.setattr(module, "JdbcRelation", Relation)
    monkeypatch.setattr(module, "dialect_of", lambda _: Dialect)
    monkeypatch.setattr(module.filters, "source_conditions", lambda *_: ["condition"])
    conditions, problem = module.key_conditions(leaf, KeySet(2, (Texts(texts),), (), "bloom"), [column])
    assert (len(conditions), problem) == (condition_count, reason)


def test_keys_are_not_pushed_down_to_an_unknown_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "JdbcRelation", Relation)
    monkeypatch.setattr(module, "dialect_of", lambda _: None)
    assert module.key_conditions("there", KeySet(0), []) == ([], "it is unknown how the database compares values")
