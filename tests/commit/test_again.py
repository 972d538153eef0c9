"""Every step of every kind of sink can be repeated, by the same process or by another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.commit import Access
from penstock.commit.prepared import prepared_from_dict
from tests.commit.checks import leftovers
from tests.commit.harness import in_child
from tests.commit.local import LocalSqlite, as_an_object_store, without_a_jvm
from tests.commit.targets import FILES, Delta, Files, Iceberg, Jdbc, Kafka, KafkaParts, Template

pytestmark = pytest.mark.forks

CASES = [
    *(f"{kind} {case}" for kind in ("files", "objects") for case in FILES),
    *(f"{kind} {mode}" for kind in ("delta", "iceberg", "local") for mode in ("create", "append", "overwrite")),
    "kafka append",
    "kafka parts",
]


@pytest.fixture
def spark_and_make(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    spark = without_a_jvm(monkeypatch, tmp_path)
    template = Template(None, tmp_path / "template")

    def make(name: str) -> Any:
        kind, _, mode = name.partition(" ")
        if kind == "objects":
            as_an_object_store(monkeypatch)
        if kind in {"files", "objects"}:
            mode, layout, exists = FILES[mode]
            return Files(template, tmp_path / "a", mode, layout, exists=exists, token="t")
        exists, mode = mode != "create", mode.replace("create", "append")
        if kind == "local":
            return Jdbc(None, LocalSqlite(tmp_path / "db"), mode, exists=exists, token="t")
        if kind == "kafka":
            topic = KafkaParts if mode == "parts" else Kafka
            return topic(None, request.getfixturevalue("broker"), token="t")
        return {"delta": Delta, "iceberg": Iceberg}[kind](template, tmp_path / "a", mode, exists=exists, token="t")

    return spark, make


@pytest.mark.sample(12)
@pytest.mark.parametrize("undone", [False, True], ids=["committed", "undone"])
@pytest.mark.parametrize("case", CASES)
def test_steps_can_be_repeated(spark_and_make: Any, case: Any, undone: bool) -> None:
    spark, make = spark_and_make
    target = make(case)

    def work() -> Any:
        sink = target.sink()
        job = sink.open(spark)
        target.write(job)
        access = Access(None, dict(sink.secrets))
        record = prepared_from_dict(json.loads(json.dumps(job.prepare().as_dict())))
        record.make_ready(access)
        access.close()  # the steps below run in another process
        assert not record.is_committed(access)
        if undone and record.is_reversible:
            record.commit(access)
        logs = []
        for _ in range(3):
            if undone:
                record.undo(access)
            else:
                record.commit(access)
                assert record.is_committed(access)
            logs.append(
                [path for path in target.journal_folder.rglob("*.json") if ".penstock-tokens" not in path.parts]
            )
        assert logs[0] == logs[1] == logs[2]  # a single entry in the log of Delta, a single snapshot of Iceberg
        expected = target.old if undone else target.new
        assert target.rows() == expected
        for _ in range(2):
            record.finish(access)
        assert target.rows() == expected
        return leftovers(target)

    end = in_child(spark, work)
    assert end.error is None, end.error
    assert end.result == []
