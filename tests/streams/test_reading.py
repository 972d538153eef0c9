"""Where progress and batches are read from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from penstock.errors import StreamError
from penstock.spark.filesystem import Folder
from penstock.spark.jvm import Bridge
from penstock.state.progress_files import PROGRESS
from penstock.streams.reading import HadoopPlace, LocalPlace, Place, read_batches, read_progress
from tests.streams.test_batches import entry, offset_of, planned
from tests.streams.test_progress import event

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def make_checkpoint(folder: Path) -> None:
    for name in (PROGRESS, "offsets"):
        (folder / name).mkdir()
    for batch in (3, 4):
        (folder / PROGRESS / f"{batch}.json").write_text(json.dumps(event(batchId=batch)))
        (folder / "offsets" / str(batch)).write_text(entry(offset_of({("t", 0): batch}, planned(batch))))
    for checksum in (f"{PROGRESS}/.3.json.crc", "offsets/.3.crc"):
        (folder / checksum).write_bytes(b"crc\x00\xb9")


def read(place: Place) -> None:
    assert [one.batch for one in read_progress(place)] == [3, 4]
    assert [one.decision.records for one in read_batches(place)] == [3, 4]


def test_a_checkpoint_of_this_machine(tmp_path: Path) -> None:
    make_checkpoint(tmp_path)
    read(LocalPlace(tmp_path))


def test_a_checkpoint_of_hadoop(spark: SparkSession, tmp_path: Path) -> None:
    make_checkpoint(tmp_path)
    read(HadoopPlace(Folder(Bridge(spark), f"file://{tmp_path}")))


def test_a_file_of_lines(tmp_path: Path) -> None:
    file = tmp_path / "progress.jsonl"
    file.write_text("".join(json.dumps(event(batchId=batch)) + "\n" for batch in (3, 4)) + "\n")
    assert [one.batch for one in read_progress(LocalPlace(file))] == [3, 4]


def test_what_has_no_progress(tmp_path: Path) -> None:
    with pytest.raises(StreamError, match="there is nothing there"):
        read_progress(LocalPlace(tmp_path / "nowhere"))
    with pytest.raises(StreamError, match="there is no '_penstock_progress' in this folder"):
        read_progress(LocalPlace(tmp_path))


def test_what_has_no_batches(tmp_path: Path) -> None:
    with pytest.raises(StreamError, match=r"no batch in .* was decided by Penstock"):
        read_batches(LocalPlace(tmp_path))
