"""Partition commit by markers, the metastore or a user function, after all files of a partition are visible."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.connectors import FileSink
from penstock.connectors.files.partition_commit import partition_values, policies_of
from penstock.errors import JobError, SinkError
from tests.connectors.files.test_file_sizes import files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment


@pytest.fixture
def days(spark: SparkSession) -> Any:
    return spark.range(0, 300, 1, 6).selectExpr(
        "id", "concat('2024-01-0', id % 3) as day", "if(id % 2 = 0, 'a/b', null) as kind"
    )


def rows(spark: SparkSession, folder: Path) -> Any:
    return spark.read.parquet(str(folder)).count()


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("", {}),
        ("k=1", {"k": "1"}),
        ("k=__HIVE_DEFAULT_PARTITION__/b=a%2Fb", {"k": None, "b": "a/b"}),
        ("k=a=b", {"k": "a=b"}),
    ],
)
def test_partition_values_are_parsed_from_folders(folder: str, expected: Any) -> None:
    assert partition_values(folder) == expected


def test_each_committed_partition_has_a_success_file(
    make_env: Callable[..., Environment], spark: SparkSession, days: Any, tmp_path: Path
) -> None:
    env = make_env(**{"sink.partition__commit.policy.kind": "success-file"})
    env.write(days, FileSink(str(tmp_path / "out"), partition_by=["day", "kind"]))
    job = env.execute()
    marked = {path.parent for path in (tmp_path / "out").rglob("_SUCCESS")} - {tmp_path / "out"}
    assert marked == {path.parent for path in (tmp_path / "out").rglob("*.parquet")}
    assert len(marked) == 6
    assert job.vertices[-1].vertex.name.startswith("Partition commit")
    assert job.vertices[-1].reason == "6 partitions: all files are visible; policies: success-file"
    assert rows(spark, tmp_path / "out") == 300


def test_a_commit_function_sees_all_files_of_its_partition(
    make_env: Callable[..., Environment], spark: SparkSession, days: Any, tmp_path: Path
) -> None:
    row_counts = {}

    def announce(partition: Any) -> None:
        assert partition.table is None
        row_counts[partition.values["day"], partition.values["kind"]] = partition.spark.read.parquet(
            partition.path
        ).count()

    env = make_env()
    env.write(
        days, FileSink(str(tmp_path / "out"), partition_by=["day", "kind"], partition_commit=[announce, "success-file"])
    )
    env.execute()
    assert row_counts == {(f"2024-01-0{day}", kind): 50 for day in range(3) for kind in ("a/b", None)}


def test_partitions_are_committed_after_compaction(
    make_env: Callable[..., Environment], days: Any, tmp_path: Path
) -> None:
    counts = []

    def count(partition: Any) -> None:
        counts.append(len(files(tmp_path / "out" / partition.path.rpartition("/out/")[2])))

    env = make_env()
    env.write(
        days,
        FileSink(
            str(tmp_path / "out"), partition_by=["day"], parallelism=6, auto_compaction=True, partition_commit=[count]
        ),
    )
    job = env.execute()
    assert counts == [1, 1, 1]
    assert [v.vertex.name.partition(":")[0] for v in job.vertices[-2:]] == ["Compaction", "Partition commit"]
    assert job.status_counts["FINISHED"] == len(job.vertices)


@pytest.mark.thorough
def test_a_failing_commit_function_removes_the_new_files(
    make_env: Callable[..., Environment], spark: SparkSession, days: Any, tmp_path: Path
) -> None:
    def fail(partition: Any) -> None:
        if partition.values["day"] == "2024-01-01":
            raise ValueError("the catalog is down")

    sink = FileSink(str(tmp_path / "out"), mode="append", partition_by=["day"], partition_commit=[fail])
    env = make_env()
    env.write(days, sink)
    with pytest.raises((JobError, SinkError), match=r"'fail' failed for day=2024-01-01[^$]*the catalog is down"):
        env.execute()
    assert not (tmp_path / "out").exists()
    good = FileSink(str(tmp_path / "out"), mode="append", partition_by=["day"], partition_commit=["success-file"])
    env.write(days, good)
    env.execute()
    with pytest.raises((JobError, SinkError), match="the catalog is down"):
        env.write(days, sink)
        env.execute()
    assert rows(spark, tmp_path / "out") == 300  # the old files and markers stay
    assert len(list((tmp_path / "out").glob("day=*/_SUCCESS"))) == 3


def test_markers_are_removed_while_files_are_added(
    make_env: Callable[..., Environment], days: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.commit import moves

    sink = FileSink(str(tmp_path / "out"), mode="append", partition_by=["day"], partition_commit=["success-file"])
    env = make_env()
    env.write(days, sink)
    env.execute()
    markers_during_moves = []
    move = moves.move

    def record_marker(source: Any, target: Any) -> Any:
        if target.name != "_SUCCESS":
            markers_during_moves.append(target.parent.child("_SUCCESS").exists())
        return move(source, target)

    monkeypatch.setattr(moves, "move", record_marker)
    env.write(days, sink)
    env.execute()
    assert markers_during_moves
    assert not any(markers_during_moves)
    assert len(list((tmp_path / "out").glob("day=*/_SUCCESS"))) == 3


def test_files_without_partitions_have_no_partition_commit(
    make_env: Callable[..., Environment], spark: SparkSession, tmp_path: Path
) -> None:
    env = make_env(**{"sink.partition__commit.policy.kind": "success-file"})
    env.write(spark.range(10), FileSink(str(tmp_path / "out")))
    assert "Partition commit" not in env.execute().vertices[-1].vertex.name


@pytest.mark.parametrize(
    ("policies", "table", "message"),
    [(["success"], None, "'success' of sink x is not valid"), (["metastore"], None, "has no table")],
)
def test_unknown_policies_are_errors(policies: list[str], table: Any, message: str) -> None:
    with pytest.raises(SinkError, match=message):
        FileSink("x", partition_by=["day"], partition_commit=policies, table=table)


def test_the_success_file_is_written_last() -> None:
    names = [name for name, _ in policies_of(["success-file", "metastore"], "t", "sink x")]
    assert names == ["metastore", "success-file"]
