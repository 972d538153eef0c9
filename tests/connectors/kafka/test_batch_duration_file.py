"""Durations of batches, which the driver passes to stream readers through files."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.connectors.kafka.streams.batch_duration_file import BatchDurationWriter, read_duration
from penstock.connectors.kafka.streams.micro_batches import BatchDecision
from penstock.connectors.kafka.streams.offsets import PlannedBatch, to_offset

DURATIONS = {"triggerExecution": 1_900, "latestOffset": 400, "addBatch": 1_200}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def end_offset(reader: str | None, offset: int = 7) -> dict[str, Any]:
    return to_offset({("t", 0): offset}, PlannedBatch(BatchDecision(7, 7, 2, "reason"), reader=reader))


def progress(*ends: Any, start: Any = None, query: str = "q", **durations: int) -> dict[str, Any]:
    sources = [{"startOffset": start, "endOffset": end} for end in ends]
    report = {"id": query, "durationMs": DURATIONS | durations, "sources": sources}
    return dict(json.loads(json.dumps(report)))


def test_the_reported_duration_excludes_finding_records() -> None:
    end, writer = end_offset("abc"), BatchDurationWriter()
    assert read_duration("abc", end) is None
    writer.write(progress(end))
    assert read_duration("abc", end) == 1.5
    writer.write(progress(end_offset("abc", 8_000_000), start=end, triggerExecution=123_456))
    assert read_duration("abc", end) is None, "the duration belongs to another batch"
    writer.write(progress(end, triggerExecution=410))
    assert read_duration("abc", end) == 0.01, "the file is shorter than before"


def test_durations_are_reported_to_each_reader_until_its_query_ends(folder: Path) -> None:
    writer = BatchDurationWriter()
    writer.write(progress(end_offset("a"), end_offset("b")))
    writer.write(progress(end_offset("c"), query="other", triggerExecution=900))
    assert [read_duration(name, end_offset(name)) for name in "abc"] == [1.5, 1.5, 0.5]
    writer.remove("q")
    writer.remove("q")
    assert [read_duration(name, end_offset(name)) for name in "abc"] == [None, None, 0.5]
    del writer
    gc.collect()
    assert not list(folder.iterdir())


def test_a_driver_that_ends_leaves_no_file(folder: Path) -> None:
    text = json.dumps(progress(end_offset("a")))
    code = "import json, sys; from penstock.connectors.kafka.streams.batch_duration_file import BatchDurationWriter as T; t = T(); "
    code += f"t.write(json.loads(sys.argv[1])); import os; assert os.listdir({str(folder)!r})"
    subprocess.run([sys.executable, "-c", code, text], check=True, env={"TMPDIR": str(folder)})
    assert not list(folder.iterdir())


def test_files_of_killed_drivers_are_removed_a_day_later(folder: Path) -> None:
    for name, hours in {"old": 25, "recent": 23}.items():
        (folder / f"penstock-stream-{name}").write_text("{}")
        modified = time.time() - 3_600 * hours
        os.utime(folder / f"penstock-stream-{name}", (modified, modified))
    (folder / "penstock-stream-linked").symlink_to(folder / "nowhere")
    BatchDurationWriter()
    assert {file.name for file in folder.iterdir()} == {"penstock-stream-recent", "penstock-stream-linked"}


def test_a_negative_duration_is_not_reported(folder: Path) -> None:
    BatchDurationWriter().write(progress(end_offset("abc"), triggerExecution=390))
    assert not list(folder.iterdir())


def test_a_batch_without_new_records_has_no_duration() -> None:
    end, writer = end_offset("abc"), BatchDurationWriter()
    writer.write(progress(end))
    writer.write(progress(end, start=end, triggerExecution=90_000))
    assert read_duration("abc", end) == 1.5


@pytest.mark.parametrize("name", [None, "", "../outside", "a/b"])
def test_nothing_is_written_for_invalid_reader_names(folder: Path, name: str | None) -> None:
    folders = [folder / "penstock-stream-..", folder / "penstock-stream-a"]
    for subfolder in folders:
        subfolder.mkdir()
    BatchDurationWriter().write(progress(end_offset(name)))
    assert sorted(folder.rglob("*")) == folders


@pytest.mark.parametrize("end", [None, "7", 7, {"logOffset": 7}, {"penstock": {"0": 5}}, to_offset({("t", 0): 7})])
def test_offsets_of_other_sources_are_ignored(folder: Path, end: Any) -> None:
    BatchDurationWriter().write(progress(end))
    assert not list(folder.iterdir())


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"end": END}', '{"end": END, "seconds": "soon"}'])
def test_a_malformed_file_has_no_duration(folder: Path, text: str) -> None:
    file = folder / "penstock-stream-abc"
    file.write_text(text.replace("END", json.dumps(end_offset("abc"))))
    file.chmod(0o600)
    assert read_duration("abc", end_offset("abc")) is None


def test_a_file_with_other_permissions_or_a_link_is_ignored(folder: Path) -> None:
    end, writer = end_offset("abc"), BatchDurationWriter()
    writer.write(progress(end))
    file = folder / "penstock-stream-abc"
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o666)
    assert read_duration("abc", end) is None
    file.chmod(0o600)
    file.rename(folder / "elsewhere")
    file.symlink_to(folder / "elsewhere")
    assert read_duration("abc", end) is None


def test_a_file_that_cannot_be_written_is_logged(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "penstock-stream-abc").mkdir()
    with caplog.at_level("INFO", "penstock"):
        writer = BatchDurationWriter()
        writer.write(progress(end_offset("abc")))
    assert "the duration of a batch could not be reported to its stream reader" in caplog.text
    (folder / "penstock-stream-abc").rmdir()
