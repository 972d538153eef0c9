"""The commands on streams: what they say, to people and to programs, without Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from penstock.cli.main import main
from penstock.connectors.pace import RanBatch
from penstock.state.progress_files import PROGRESS
from tests.streams.test_batches import entry, offset_of, planned
from tests.streams.test_progress import event

if TYPE_CHECKING:
    from pathlib import Path


def said(*arguments: Any) -> Any:
    done = CliRunner().invoke(main, ["stream", *map(str, arguments)])
    return done.exit_code, done.output


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint as Spark leaves it: 1,000 records arrive a second, and a batch takes 1 s and 1 s for each 4,000."""
    for name in ("offsets", "commits", PROGRESS):
        (tmp_path / name).mkdir()
    (tmp_path / "metadata").write_text('{"id": "0a"}')
    ends = 0
    for batch in range(4):
        rows = 10_000 * (1 + batch % 2)
        source = {"endOffset": {"t-0": ends}, "latestOffset": {"t-0": ends + 5}}
        told = event(
            batchId=batch,
            timestamp=f"2026-11-26T07:00:{ends // 1000:02}.000Z",
            numInputRows=rows,
            durationMs={"addBatch": 1, "triggerExecution": 1000 + rows // 4},
            sources=[source],
            penstock={"cores": 4},
        )
        (tmp_path / PROGRESS / f"{batch}.json").write_text(json.dumps(told))
        ends += rows
        before = RanBatch(rows, 1.5, waited=batch == 1) if batch else None
        (tmp_path / "offsets" / str(batch)).write_text(entry(offset_of({("t", 0): ends}, planned(rows, before))))
    return tmp_path


def test_advice(checkpoint: Path) -> None:
    code, output = said("advise", checkpoint)
    assert code == 0, output
    assert "query 0a: 4 batches in 0:40" in output
    assert "arrival: 1,000 records a second" in output
    assert "pace: 1.0 s for each batch and 4,000 records a second, so it is busy for 25% of its time" in output
    assert "lag: 5 records" in output
    assert "2,000 records arrive in it, and take 1.5 s (75% of it)" in output


def test_advice_for_programs(checkpoint: Path) -> None:
    code, output = said("advise", checkpoint, "--output-format", "json")
    assert code == 0, output
    found = json.loads(output)["advice"]
    assert found["load"] == pytest.approx(0.25)
    assert [(one["setting"], one["now"], one["needed"]) for one in found["settings"]] == [
        ("parallelism", "4", "4"),
        ("trigger", "10 s", "2 s"),
    ]


def test_batches(checkpoint: Path) -> None:
    code, output = said("batches", checkpoint)
    assert code == 0, output
    assert "1.5 (waited)" in output
    code, output = said("batches", checkpoint, "--output-format", "json")
    found = json.loads(output)["stream"]["batches"]
    assert [(one["batch"], one["decision"]["records"]) for one in found] == [
        (0, 10_000),
        (1, 20_000),
        (2, 10_000),
        (3, 20_000),
    ]
    assert [one["ran"] and one["ran"]["waited"] for one in found] == [True, False, False, None]


def test_too_little_to_tell(checkpoint: Path) -> None:
    for batch in (1, 2, 3):
        (checkpoint / PROGRESS / f"{batch}.json").unlink()
    code, output = said("advise", checkpoint)
    assert code == 1
    assert "has the progress of 1 batches with rows, and two are needed" in output


def test_help_teaches() -> None:
    code, output = said("advise", "--help")
    assert code == 0
    for word in ("onQueryProgress", "state partitions", "70 %", "Example:"):
        assert word in output
