"""The commands on streams, without Spark: their text and JSON output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.cli.main import main
from penstock.connectors.kafka.streams.pace import MeasuredBatch
from penstock.state.progress_files import PROGRESS_FOLDER
from tests.streams.test_batches import entry, planned, to_offset
from tests.streams.test_progress import event


def invoke(*arguments: Any) -> Any:
    done = CliRunner().invoke(main, ["stream", *map(str, arguments)])
    return done.exit_code, done.output


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint of Spark: 1,000 records arrive per second, and a batch takes 1 s plus 1 s per 4,000 records."""
    for name in ("offsets", "commits", PROGRESS_FOLDER):
        (tmp_path / name).mkdir()
    (tmp_path / "metadata").write_text('{"id": "0a"}')
    ends = 0
    for batch in range(4):
        rows = 10_000 * (1 + batch % 2)
        source = {"endOffset": {"t-0": ends}, "latestOffset": {"t-0": ends + 5}}
        progress = event(
            batchId=batch,
            timestamp=f"2026-11-26T07:00:{ends // 1000:02}.000Z",
            numInputRows=rows,
            durationMs={"addBatch": 1, "triggerExecution": 1000 + rows // 4},
            sources=[source],
            penstock={"cores": 4},
        )
        (tmp_path / PROGRESS_FOLDER / f"{batch}.json").write_text(json.dumps(progress))
        ends += rows
        before = MeasuredBatch(rows, 1.5, waited=batch == 1) if batch else None
        (tmp_path / "offsets" / str(batch)).write_text(entry(to_offset({("t", 0): ends}, planned(rows, before))))
    return tmp_path


def test_advice(checkpoint: Path) -> None:
    code, output = invoke("advise", checkpoint)
    assert code == 0, output
    assert "query 0a: 4 batches in 0:40" in output
    assert "arrival: 1,000 records a second" in output
    assert "pace: 1.0 s for each batch and 4,000 records a second, so the query is busy for 25% of the time" in output
    assert "lag: 5 records" in output
    assert "2,000 records arrive in this interval and take 1.5 s (75% of it)" in output


def test_advice_as_json(checkpoint: Path) -> None:
    code, output = invoke("advise", checkpoint, "--output-format", "json")
    assert code == 0, output
    advice = json.loads(output)["advice"]
    assert advice["load"] == pytest.approx(0.25)
    assert [(setting["setting"], setting["now"], setting["needed"]) for setting in advice["settings"]] == [
        ("parallelism", "4", "4"),
        ("trigger", "10 s", "2 s"),
    ]


def test_batches(checkpoint: Path) -> None:
    code, output = invoke("batches", checkpoint)
    assert code == 0, output
    assert "1.5 (waited)" in output
    code, output = invoke("batches", checkpoint, "--output-format", "json")
    batches = json.loads(output)["stream"]["batches"]
    assert [(batch["batch"], batch["decision"]["records"]) for batch in batches] == [
        (0, 10_000),
        (1, 20_000),
        (2, 10_000),
        (3, 20_000),
    ]
    assert [batch["ran"] and batch["ran"]["waited"] for batch in batches] == [True, False, False, None]


def test_too_few_batches(checkpoint: Path) -> None:
    for batch in (1, 2, 3):
        (checkpoint / PROGRESS_FOLDER / f"{batch}.json").unlink()
    code, output = invoke("advise", checkpoint)
    assert code == 1
    assert "has the progress of 1 batches with rows, and at least two are needed" in output


def test_help_explains_the_input() -> None:
    code, output = invoke("advise", "--help")
    assert code == 0
    for word in ("onQueryProgress", "state partitions", "70 %", "Example:"):
        assert word in output
