"""What cannot be rescaled is refused in words, and the checkpoint is left as it was, byte for byte."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import penstock.state as st
from penstock.errors import StateError
from penstock.spark.dataframes import with_settings
from penstock.spark.jvm import Bridge
from penstock.state import api
from penstock.state.rewrite_methods import RewriteMethod
from tests.services import needed
from tests.state.queries import BASE, ROCKSDB, STORE, Query, digest, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture
def checkpoint(stopped: Any, tmp_path: Path) -> Any:
    shutil.copytree(stopped("counts updated").checkpoint, tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def refused(spark: SparkSession, folder: Path, number: int = 8, **options: Any) -> str:
    """Rescale a checkpoint that cannot be; return what is said."""
    before = digest(folder)
    with pytest.raises(StateError) as found:
        st.rescale(str(folder), number, spark=spark, **options)
    assert digest(folder) == before
    assert "Exception" not in str(found.value) or "Java" not in str(found.value)
    assert "\tat " not in str(found.value)
    return str(found.value)


@pytest.mark.parametrize("number", [0, -1, 32769])
def test_numbers_out_of_bounds(spark: SparkSession, checkpoint: Any, number: int) -> None:
    assert f"max parallelism is {number}" in refused(spark, checkpoint, number)


def test_the_present_number(spark: SparkSession, checkpoint: Any) -> None:
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
    said = refused(spark, checkpoint)
    assert "cannot be read" in said or "the checkpoint is unchanged" in said


@pytest.mark.thorough
def test_a_missing_sorted_file(spark: SparkSession, checkpoint: Any) -> None:
    max((checkpoint / "state/0/2/SSTs").glob("*.sst")).unlink()
    assert "the checkpoint is unchanged" in refused(spark, checkpoint)


def test_no_permission_to_write(spark: SparkSession, checkpoint: Any) -> None:
    (checkpoint / "offsets").chmod(0o555)
    try:
        said = refused(spark, checkpoint)
    finally:
        (checkpoint / "offsets").chmod(0o755)
    assert "there is no permission to write to" in said
    assert "offsets" in said


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Any]:
    needed("A file system of a megabyte (mounting one takes root)", "/root" if os.geteuid() == 0 else None)
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.thorough
@pytest.mark.parametrize(("left", "said"), [(20_000, "its file system has"), (150_000, "No space left")])
def test_a_full_disk(spark: SparkSession, checkpoint: Any, small_disk: Any, left: int, said: str) -> None:
    shutil.copytree(checkpoint, small_disk / "checkpoint")
    free = shutil.disk_usage(small_disk).free
    (small_disk / "filler").write_bytes(bytes(free - left))
    assert said in refused(spark, small_disk / "checkpoint", 64)


@pytest.mark.thorough
def test_a_query_that_runs(spark: SparkSession, checkpoint: Any, stopped: Any) -> None:
    one = stopped("counts updated")
    with with_settings(spark, BASE):
        source = spark.readStream.schema("k string, v long, t timestamp").parquet(str(one.input / "*.parquet"))
        writer = one.query.build(source).writeStream.outputMode("update").format("noop").queryName("nightly")
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        try:
            query.processAllAvailable()
            assert "query nightly is running on it" in refused(spark, checkpoint)
            assert "query nightly is running on it" in refused(spark.newSession(), checkpoint)
        finally:
            query.stop()
    assert st.rescale(str(checkpoint), 8, spark=spark).new == 8


def test_a_key_in_two_groups(spark: SparkSession, checkpoint: Any) -> None:
    """Files of one group were copied over another's; a merge must end all the same."""
    shutil.rmtree(checkpoint / "state/0/2")
    shutil.copytree(checkpoint / "state/0/0", checkpoint / "state/0/2")
    with pytest.raises(StateError, match="the state is damaged: key groups 0 and 2 have the same key"):
        st.rescale(str(checkpoint), 2, spark=spark)


def test_another_state_store_than_sparks(spark: SparkSession, checkpoint: Any) -> None:
    (checkpoint / "offsets/.1.crc").unlink()
    log = checkpoint / "offsets/1"
    log.write_text(log.read_text().replace(ROCKSDB, "com.example.OtherStateStoreProvider"))
    said = refused(spark, checkpoint)
    assert "OtherStateStoreProvider; only Spark's own two can be rescaled" in said
    assert f"{STORE}.providerClass=" in said


@pytest.fixture
def older(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older releases are only pretended here: the tests run with one Spark."""

    def bridge(_: Any) -> Bridge:
        found = Bridge(spark)
        found.version = (4, 0)
        return found

    monkeypatch.setattr(api, "bridge_of", bridge)


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
    said = refused(spark, tmp_path / "checkpoint")
    assert f"operator 0 ({operator}), store default: state of this operator cannot be rescaled before Spark 4.2" in said
    assert f"this is Spark {spark.version}" in said


@pytest.mark.usefixtures("older")
def test_versions_of_state_that_older_releases_cannot_read(spark: SparkSession, checkpoint: Any) -> None:
    (checkpoint / "commits/.1.crc").unlink()
    commit = checkpoint / "commits/1"
    commit.write_text(commit.read_text().replace("v1", "v2"))
    said = refused(spark, checkpoint)
    assert "its checkpoint has format version 2, which only a running query can read" in said


@pytest.mark.usefixtures("older")
def test_methods_that_older_releases_have_not(spark: SparkSession, checkpoint: Any) -> None:
    said = refused(spark, checkpoint, method=RewriteMethod.SHUFFLE)
    assert f"this is Spark {spark.version}, which takes the method rows only" in said


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["counts in memory", "counts updated"])
def test_rows_in_another_key_group_than_their_own(spark: SparkSession, stopped: Any, tmp_path: Path, name: str) -> None:
    shutil.copytree(stopped(name).checkpoint, tmp_path / "checkpoint")
    groups = tmp_path / "checkpoint/state/0"
    for old, new in (("1", "x"), ("2", "1"), ("x", "2")):
        (groups / old).rename(groups / new)
    said = refused(spark, tmp_path / "checkpoint")
    assert "in a wrong key group" in said or "has a row of key group" in said
    assert "the checkpoint is unchanged" in said


def test_methods_that_need_rocksdb(spark: SparkSession, stopped: Any, tmp_path: Path) -> None:
    shutil.copytree(stopped("counts in memory").checkpoint, tmp_path / "checkpoint")
    said = refused(spark, tmp_path / "checkpoint", method=RewriteMethod.FILES)
    assert "HDFSBackedStateStoreProvider, which takes the method rows only" in said


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


def test_all_obstacles_are_named_at_once(spark: SparkSession, checkpoint: Any) -> None:
    (checkpoint / "offsets").chmod(0o555)
    try:
        said = refused(spark, checkpoint, 4)
    finally:
        (checkpoint / "offsets").chmod(0o755)
    assert "already" in said
    assert "permission" in said
