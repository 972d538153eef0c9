"""Checkpoints that cannot be rescaled are refused with a clear message, and stay unchanged byte for byte."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import penstock.state as st
from penstock.errors import StateError
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.plans.dataframes import with_settings
from penstock.state import api
from penstock.state.rewrite_methods import RewriteMethod
from tests.state.queries import BASE, ROCKSDB, STORE, Query, digest, run
from tests.support.services import require_component

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def checkpoint(stopped: Any, tmp_path: Path) -> Any:
    shutil.copytree(stopped("counts updated").checkpoint, tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def refused(spark: SparkSession, folder: Path, number: int = 8, **options: Any) -> str:
    """Try to rescale a checkpoint, check that it is refused and unchanged, and return the message."""
    before = digest(folder)
    with pytest.raises(StateError) as raised:
        st.rescale(str(folder), number, spark=spark, **options)
    assert digest(folder) == before
    assert "Exception" not in str(raised.value) or "Java" not in str(raised.value)
    assert "\tat " not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("number", [0, -1, 32769])
def test_numbers_out_of_bounds(spark: SparkSession, checkpoint: Any, number: int) -> None:
    assert f"max parallelism is {number}" in refused(spark, checkpoint, number)


def test_the_current_number(spark: SparkSession, checkpoint: Any) -> None:
    assert "it already has 4 key groups" in refused(spark, checkpoint, 4)


def test_no_such_folder(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(StateError, match="is not the checkpoint"):
        st.rescale(str(tmp_path / "nothing"), 8, spark=spark)


def test_a_folder_without_a_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a checkpoint")
    assert "there is no 'metadata' in it" in refused(spark, tmp_path)


def test_no_finished_batch(spark: SparkSession, checkpoint: Any) -> None:
    shutil.rmtree(checkpoint / "commits")
    (checkpoint / "commits").mkdir()
    assert "no batch of the query has finished" in refused(spark, checkpoint)


def test_a_batch_that_is_not_finished(spark: SparkSession, checkpoint: Any) -> None:
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    assert "batch 1 was started and is not finished" in refused(spark, checkpoint)


def test_a_torn_log(spark: SparkSession, checkpoint: Any) -> None:
    (checkpoint / "offsets/.1.crc").unlink()
    (checkpoint / "offsets/1").write_text("v1\n{torn")
    assert "cannot be read as a part of a checkpoint" in refused(spark, checkpoint)


@pytest.mark.parametrize("kind", ["*.zip", "SSTs/*.sst"])
def test_a_damaged_snapshot(spark: SparkSession, checkpoint: Any, kind: str) -> None:
    damaged = max((checkpoint / "state/0/2").glob(kind))
    damaged.write_bytes(damaged.read_bytes()[:100])
    (damaged.parent / f".{damaged.name}.crc").unlink()
    message = refused(spark, checkpoint)
    assert "cannot be read" in message or "the checkpoint is unchanged" in message


@pytest.mark.thorough
def test_a_missing_sorted_file(spark: SparkSession, checkpoint: Any) -> None:
    max((checkpoint / "state/0/2/SSTs").glob("*.sst")).unlink()
    assert "the checkpoint is unchanged" in refused(spark, checkpoint)


def test_no_permission_to_write(spark: SparkSession, checkpoint: Any) -> None:
    (checkpoint / "offsets").chmod(0o555)
    try:
        message = refused(spark, checkpoint)
    finally:
        (checkpoint / "offsets").chmod(0o755)
    assert "there is no permission to write to" in message
    assert "offsets" in message


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Any]:
    require_component("A file system of a megabyte (mounting one takes root)", "/root" if os.geteuid() == 0 else None)
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.thorough
@pytest.mark.parametrize(("free_bytes", "message"), [(20_000, "its file system has"), (150_000, "No space left")])
def test_a_full_disk(spark: SparkSession, checkpoint: Any, small_disk: Any, free_bytes: int, message: str) -> None:
    shutil.copytree(checkpoint, small_disk / "checkpoint")
    free = shutil.disk_usage(small_disk).free
    (small_disk / "filler").write_bytes(bytes(free - free_bytes))
    assert message in refused(spark, small_disk / "checkpoint", 64)


@pytest.mark.thorough
def test_a_query_that_runs(spark: SparkSession, checkpoint: Any, stopped: Any) -> None:
    query_state = stopped("counts updated")
    with with_settings(spark, BASE):
        source = spark.readStream.schema("k string, v long, t timestamp").parquet(str(query_state.input / "*.parquet"))
        writer = query_state.query.build(source).writeStream.outputMode("update").format("noop").queryName("nightly")
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        try:
            query.processAllAvailable()
            assert "query nightly is running on it" in refused(spark, checkpoint)
            assert "query nightly is running on it" in refused(spark.newSession(), checkpoint)
        finally:
            query.stop()
    assert st.rescale(str(checkpoint), 8, spark=spark).new == 8


def test_a_key_in_two_groups(spark: SparkSession, checkpoint: Any) -> None:
    """The files of a group were copied over those of another; a merge must fail instead of running endlessly."""
    shutil.rmtree(checkpoint / "state/0/2")
    shutil.copytree(checkpoint / "state/0/0", checkpoint / "state/0/2")
    with pytest.raises(StateError, match="the state is damaged: key groups 0 and 2 have the same key"):
        st.rescale(str(checkpoint), 2, spark=spark)


def test_a_state_store_of_another_provider(spark: SparkSession, checkpoint: Any) -> None:
    (checkpoint / "offsets/.1.crc").unlink()
    log = checkpoint / "offsets/1"
    log.write_text(log.read_text().replace(ROCKSDB, "com.example.OtherStateStoreProvider"))
    message = refused(spark, checkpoint)
    assert "OtherStateStoreProvider; only Spark's two built-in stores can be rescaled" in message
    assert f"{STORE}.providerClass=" in message


@pytest.fixture
def older(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate an older release, as the tests run with a single release of Spark."""

    def older_bridge(_: Any) -> Bridge:
        bridge = Bridge(spark)
        bridge.version = (4, 0)
        return bridge

    monkeypatch.setattr(api, "bridge_of", older_bridge)


@pytest.mark.thorough
@pytest.mark.usefixtures("older")
@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("join in column families", "symmetricHashJoin"),
        pytest.param("state with time to live", "transformWithStateInPandasExec", marks=pytest.mark.slow),
    ],
)
def test_state_that_older_releases_cannot_rewrite(
    spark: SparkSession, stopped: Any, tmp_path: Path, name: str, operator: str
) -> None:
    shutil.copytree(stopped(name).checkpoint, tmp_path / "checkpoint")
    message = refused(spark, tmp_path / "checkpoint")
    assert (
        f"operator 0 ({operator}), store default: state of this operator cannot be rescaled before Spark 4.2" in message
    )
    assert f"this is Spark {spark.version}" in message


@pytest.mark.usefixtures("older")
def test_versions_of_state_that_older_releases_cannot_read(spark: SparkSession, checkpoint: Any) -> None:
    (checkpoint / "commits/.1.crc").unlink()
    commit = checkpoint / "commits/1"
    commit.write_text(commit.read_text().replace("v1", "v2"))
    message = refused(spark, checkpoint)
    assert "its checkpoint has format version 2, which only a running query can read" in message


@pytest.mark.usefixtures("older")
def test_methods_that_older_releases_do_not_support(spark: SparkSession, checkpoint: Any) -> None:
    message = refused(spark, checkpoint, method=RewriteMethod.SHUFFLE)
    assert f"this is Spark {spark.version}, which supports only the method rows" in message


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["counts in memory", "counts updated"])
def test_rows_in_the_wrong_key_group(spark: SparkSession, stopped: Any, tmp_path: Path, name: str) -> None:
    shutil.copytree(stopped(name).checkpoint, tmp_path / "checkpoint")
    groups = tmp_path / "checkpoint/state/0"
    for old, new in (("1", "x"), ("2", "1"), ("x", "2")):
        (groups / old).rename(groups / new)
    message = refused(spark, tmp_path / "checkpoint")
    assert "in a wrong key group" in message or "has a row of key group" in message
    assert "the checkpoint is unchanged" in message


def test_methods_that_need_rocksdb(spark: SparkSession, stopped: Any, tmp_path: Path) -> None:
    shutil.copytree(stopped("counts in memory").checkpoint, tmp_path / "checkpoint")
    message = refused(spark, tmp_path / "checkpoint", method=RewriteMethod.FILES)
    assert "HDFSBackedStateStoreProvider, which supports only the method rows" in message


@pytest.mark.thorough
def test_an_operator_whose_state_has_no_key(spark: SparkSession, stopped: Any, tmp_path: Path) -> None:
    run(
        spark,
        Query("limit", lambda df: df.limit(900), "append"),
        stopped("counts updated").input,
        tmp_path / "checkpoint",
    )
    assert "operator 0 (globalLimit)" in refused(spark, tmp_path / "checkpoint")


@pytest.mark.thorough
def test_a_query_without_state(spark: SparkSession, stopped: Any, tmp_path: Path) -> None:
    stateless = Query("stateless", lambda df: df.where(F.col("v") > 1), "append")
    run(spark, stateless, stopped("counts updated").input, tmp_path / "checkpoint")
    assert "it has no state" in refused(spark, tmp_path / "checkpoint")


def test_the_message_lists_all_obstacles(spark: SparkSession, checkpoint: Any) -> None:
    (checkpoint / "offsets").chmod(0o555)
    try:
        message = refused(spark, checkpoint, 4)
    finally:
        (checkpoint / "offsets").chmod(0o755)
    assert "already" in message
    assert "permission" in message
