"""Which keys a database is asked for, and what is said of those that it is not."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.connectors.jdbc import keys as module
from penstock.connectors.jdbc.dialect import KeyKind
from penstock.spark.filters import KeySet
from penstock.spark.jdbc import ColumnType


class Texts:
    """What is shown of a set of texts."""

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
        assert properties == {"patience": "60"}
        if self.leaf == "unreachable":
            raise OSError("no route to host")
        return self.types


class Dialect:
    comparable = {"int": KeyKind.WHOLE, "text": KeyKind.TEXT}

    @staticmethod
    def asking_waits(seconds: Any) -> dict[str, Any]:
        return {"patience": f"{seconds:g}"}


@pytest.mark.parametrize(
    ("leaf", "column", "texts", "asked", "because"),
    [
        ("there", Column("n", "int"), "1 2", 1, ""),
        ("there", Column("s", "string"), "a b", 1, ""),
        (
            "there",
            Column("u", "string"),
            "a b",
            0,
            "the database may compare column u of type uuid otherwise than Spark",
        ),
        (
            "there",
            Column("v", "int"),
            "1",
            0,
            "the database may compare column v of an unknown type otherwise than Spark",
        ),
        ("there", Column("s", "string"), "ä", 0, "the database may read or order texts of column s otherwise"),
        ("unreachable", Column("n", "int"), "1", 0, "the types of t could not be had: no route to host"),
    ],
)
def test_what_a_database_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, leaf: str, column: Any, texts: str, asked: int, because: str
) -> None:
    monkeypatch.setattr(module, "JdbcRelation", Relation)
    monkeypatch.setattr(module, "dialect_of", lambda _: Dialect)
    monkeypatch.setattr(module.filters, "for_sources", lambda *_: ["condition"])
    conditions, problem = module.key_conditions(leaf, KeySet(2, (Texts(texts),), (), "bloom"), [column])
    assert (len(conditions), problem) == (asked, because)


def test_a_database_that_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "JdbcRelation", Relation)
    monkeypatch.setattr(module, "dialect_of", lambda _: None)
    assert module.key_conditions("there", KeySet(0), []) == ([], "how the database compares values is not known")
