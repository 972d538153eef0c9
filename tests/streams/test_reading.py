"""Reading of progress and batches from checkpoints and files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.errors import StreamError
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.io.filesystem import HadoopPath
from penstock.state.progress_files import PROGRESS_FOLDER
from penstock.streams.reading import HadoopTextFiles, LocalTextFiles, TextFiles, read_batches, read_progress
from tests.streams.test_batches import entry, planned, to_offset
from tests.streams.test_progress import event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def make_checkpoint(folder: Path) -> None:
    for name in (PROGRESS_FOLDER, "offsets"):
        (folder / name).mkdir()
    for batch in (3, 4):
        (folder / PROGRESS_FOLDER / f"{batch}.json").write_text(json.dumps(event(batchId=batch)))
        (folder / "offsets" / str(batch)).write_text(entry(to_offset({("t", 0): batch}, planned(batch))))
    for checksum in (f"{PROGRESS_FOLDER}/.3.json.crc", "offsets/.3.crc"):
        (folder / checksum).write_bytes(b"crc\x00\xb9")


def read(files: TextFiles) -> None:
    assert [batch.batch for batch in read_progress(files)] == [3, 4]
    assert [record.decision.records for record in read_batches(files)] == [3, 4]


def test_a_checkpoint_of_this_machine(tmp_path: Path) -> None:
    make_checkpoint(tmp_path)
    read(LocalTextFiles(tmp_path))


def test_a_checkpoint_of_hadoop(spark: SparkSession, tmp_path: Path) -> None:
    make_checkpoint(tmp_path)
    read(HadoopTextFiles(HadoopPath(Bridge(spark), f"file://{tmp_path}")))


@pytest.mark.parametrize(("newest", "expected"), [(4, [8, 1]), (5, [6, 1])])
def test_the_key_groups_are_those_after_a_rescale(tmp_path: Path, newest: int, expected: list[int]) -> None:
    """A rescale is a batch in the logs, for which Spark reports no progress."""
    make_checkpoint(tmp_path)
    keyed = {"operatorName": "dedupe", "numShufflePartitions": 8, "memoryUsedBytes": 5, "customMetrics": {}}
    state = [keyed, keyed | {"numShufflePartitions": 1}]
    (tmp_path / PROGRESS_FOLDER / "4.json").write_text(json.dumps(event(batchId=4, stateOperators=state)))
    conf = {"spark.sql.shuffle.partitions": "6"}
    (tmp_path / "offsets" / str(newest)).write_text(f"v1\n{json.dumps({'conf': conf})}\n{{}}")
    assert [operator.partitions for operator in read_progress(LocalTextFiles(tmp_path))[-1].state] == expected


def test_a_file_of_lines(tmp_path: Path) -> None:
    file = tmp_path / "progress.jsonl"
    file.write_text("".join(json.dumps(event(batchId=batch)) + "\n" for batch in (3, 4)) + "\n")
    assert [batch.batch for batch in read_progress(LocalTextFiles(file))] == [3, 4]


def test_folders_without_progress(tmp_path: Path) -> None:
    with pytest.raises(StreamError, match="the path does not exist"):
        read_progress(LocalTextFiles(tmp_path / "nowhere"))
    with pytest.raises(StreamError, match="there is no '_penstock_progress' in this folder"):
        read_progress(LocalTextFiles(tmp_path))


def test_a_checkpoint_without_recorded_progress(tmp_path: Path) -> None:
    """Its only file is not a file of progress."""
    (tmp_path / "metadata").write_text('{"id":"8bbb0e6d-9b4c-4a7e-8d86-5f3f0a4c7f4e"}')
    (tmp_path / "offsets").mkdir()
    with pytest.raises(StreamError, match="there is no '_penstock_progress' in this folder"):
        read_progress(LocalTextFiles(tmp_path))


def test_files_that_are_removed_between_listing_and_reading(tmp_path: Path) -> None:
    make_checkpoint(tmp_path)
    for gone in (f"{PROGRESS_FOLDER}/2.json", "offsets/2"):  # listed, but impossible to open
        (tmp_path / gone).symlink_to(tmp_path / "removed")
    read(LocalTextFiles(tmp_path))


def test_files_that_are_removed_between_listing_and_reading_on_hadoop(spark: SparkSession, tmp_path: Path) -> None:
    """Spark removes logs of old batches."""
    make_checkpoint(tmp_path)

    class Removing(HadoopPath):
        def at(self, path: str) -> HadoopPath:
            return Removing(self._bridge, path, self)

        def entries(self) -> list[tuple[str, bool, int]]:
            return [("2.json", False, 1), ("2", False, 1), *super().entries()]

    read(HadoopTextFiles(Removing(Bridge(spark), f"file://{tmp_path}")))


def test_a_folder_without_batches(tmp_path: Path) -> None:
    with pytest.raises(StreamError, match="has no batch whose records Penstock has chosen"):
        read_batches(LocalTextFiles(tmp_path))
