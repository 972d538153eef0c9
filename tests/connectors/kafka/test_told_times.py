"""What a batch took, told through a file, as Spark's progress has it."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

import pytest

from penstock.connectors.kafka.stream_offsets import PlannedBatch, offset_of
from penstock.connectors.kafka.told_times import Teller, told
from penstock.connectors.micro_batches import BatchDecision

if TYPE_CHECKING:
    from pathlib import Path

DURATIONS = {"triggerExecution": 1_900, "latestOffset": 400, "addBatch": 1_200}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def end_of(reader: str | None, offset: int = 7) -> dict[str, Any]:
    return offset_of({("t", 0): offset}, PlannedBatch(BatchDecision(7, 7, 2, "why"), reader=reader))


def progress(*ends: Any, start: Any = None, query: str = "q", **durations: int) -> dict[str, Any]:
    sources = [{"startOffset": start, "endOffset": end} for end in ends]
    found = {"id": query, "durationMs": DURATIONS | durations, "sources": sources}
    return dict(json.loads(json.dumps(found)))


def test_the_reader_is_told_the_time_without_that_of_finding_records() -> None:
    end, teller = end_of("abc"), Teller()
    assert told("abc", end) is None
    teller.tell(progress(end))
    assert told("abc", end) == 1.5
    teller.tell(progress(end_of("abc", 8_000_000), start=end, triggerExecution=123_456))
    assert told("abc", end) is None, "this is of another batch"
    teller.tell(progress(end, triggerExecution=410))
    assert told("abc", end) == 0.01, "a longer text was there before"


def test_each_reader_is_told_until_its_query_has_ended(folder: Path) -> None:
    teller = Teller()
    teller.tell(progress(end_of("a"), end_of("b")))
    teller.tell(progress(end_of("c"), query="other", triggerExecution=900))
    found = [told(name, end_of(name)) for name in "abc"]
    assert found == [1.5, 1.5, 0.5]
    teller.forget("q")
    teller.forget("q")
    assert [told(name, end_of(name)) for name in "abc"] == [None, None, 0.5]
    del teller
    gc.collect()
    assert not list(folder.iterdir())


def test_a_driver_that_ends_leaves_no_file(folder: Path) -> None:
    text = json.dumps(progress(end_of("a")))
    code = "import json, sys; from penstock.connectors.kafka.told_times import Teller as T; t = T(); "
    code += f"t.tell(json.loads(sys.argv[1])); import os; assert os.listdir({str(folder)!r})"
    subprocess.run([sys.executable, "-c", code, text], check=True, env={"TMPDIR": str(folder)})
    assert not list(folder.iterdir())


def test_files_of_killed_drivers_are_removed_a_day_later(folder: Path) -> None:
    for name, hours in {"old": 25, "young": 23}.items():
        (folder / f"penstock-stream-{name}").write_text("{}")
        then = time.time() - 3_600 * hours
        os.utime(folder / f"penstock-stream-{name}", (then, then))
    (folder / "penstock-stream-linked").symlink_to(folder / "nowhere")
    Teller()
    assert {one.name for one in folder.iterdir()} == {"penstock-stream-young", "penstock-stream-linked"}


def test_a_clock_that_was_set_back_tells_nothing(folder: Path) -> None:
    Teller().tell(progress(end_of("abc"), triggerExecution=390))
    assert not list(folder.iterdir())


def test_a_topic_without_new_records_has_no_time() -> None:
    end, teller = end_of("abc"), Teller()
    teller.tell(progress(end))
    teller.tell(progress(end, start=end, triggerExecution=90_000))
    assert told("abc", end) == 1.5


@pytest.mark.parametrize("name", [None, "", "../outside", "a/b"])
def test_names_that_no_reader_has_are_not_written_to(folder: Path, name: str | None) -> None:
    folders = [folder / "penstock-stream-..", folder / "penstock-stream-a"]
    for one in folders:
        one.mkdir()
    Teller().tell(progress(end_of(name)))
    assert sorted(folder.rglob("*")) == folders


@pytest.mark.parametrize("end", [None, "7", 7, {"logOffset": 7}, {"penstock": {"0": 5}}, offset_of({("t", 0): 7})])
def test_sources_of_others_are_passed_over(folder: Path, end: Any) -> None:
    Teller().tell(progress(end))
    assert not list(folder.iterdir())


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"end": END}', '{"end": END, "seconds": "soon"}'])
def test_a_file_of_another_release_tells_nothing(folder: Path, text: str) -> None:
    file = folder / "penstock-stream-abc"
    file.write_text(text.replace("END", json.dumps(end_of("abc"))))
    file.chmod(0o600)
    assert told("abc", end_of("abc")) is None


def test_a_file_that_others_may_write_is_not_believed(folder: Path) -> None:
    end, teller = end_of("abc"), Teller()
    teller.tell(progress(end))
    file = folder / "penstock-stream-abc"
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o666)
    assert told("abc", end) is None
    file.chmod(0o600)
    file.rename(folder / "elsewhere")
    file.symlink_to(folder / "elsewhere")
    assert told("abc", end) is None


def test_a_file_that_cannot_be_written_is_no_error(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "penstock-stream-abc").mkdir()
    with caplog.at_level("INFO", "penstock"):
        teller = Teller()
        teller.tell(progress(end_of("abc")))
    assert "a stream reader is not told how long its batches take" in caplog.text
    (folder / "penstock-stream-abc").rmdir()
