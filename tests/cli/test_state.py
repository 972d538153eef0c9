"""The commands on state: their text and JSON output."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from penstock.cli.main import main
from penstock.spark.io.filesystem import HadoopPath

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def checkpoint(spark: SparkSession, stopped: Any, tmp_path: Path) -> str:
    shutil.copytree(stopped("counts updated").checkpoint, tmp_path / "checkpoint")
    return str(tmp_path / "checkpoint")


def invoke(*arguments: Any) -> Any:
    done = CliRunner().invoke(main, ["state", *arguments])
    return done.exit_code, done.output


@pytest.mark.thorough
def test_inspect(checkpoint: Any) -> None:
    code, output = invoke("inspect", checkpoint)
    assert code == 0
    assert "max parallelism 4" in output
    assert "can be rescaled" in output
    assert "recommended max parallelism" in output
    assert "stateStoreSave" in output
    code, output = invoke("inspect", "--count", "--output-format", "json", checkpoint)
    inspection = json.loads(output)["inspection"]
    assert (inspection["max_parallelism"], inspection["obstacle"]) == (4, None)
    assert sum(inspection["stores"][0]["rows"]) == 200


@pytest.mark.thorough
def test_rescale_and_prune(checkpoint: Any) -> None:
    code, output = invoke("rescale", checkpoint, "--max-parallelism", "2", "--dry-run", "--output-format", "json")
    assert json.loads(output)["plan"]["change"] == "merge"
    code, output = invoke("rescale", checkpoint, "--max-parallelism", "2", "--dry-run")
    assert "would be rewritten from 4 key groups to 2. Nothing was written.\n- " in output
    code, output = invoke("rescale", checkpoint, "--max-parallelism", "2")
    assert code == 0, output
    assert re.search(r"The state was rewritten from 4 key groups to 2 in \d+\.\d s. The query continues after", output)
    assert re.search(r"\n- .*, store default: 200 rows, at most \d+ in a key group, .* method files, as ", output)
    assert invoke("rescale", checkpoint, "--abort") == (0, "there was nothing to undo\n")
    assert "state/0/2, state/0/3" in invoke("prune", checkpoint)[1]
    assert "there is nothing to remove" in invoke("prune", checkpoint)[1]


def test_live_rescale_of_a_stopped_query(checkpoint: Any) -> None:
    code, output = invoke("rescale", checkpoint, "--max-parallelism", "2", "--live")
    assert code == 1
    assert "does not accept rescales" in output
    assert "there is no _penstock_query.json" in output
    assert "penstock.state.start_query" in output


def test_errors_are_readable(checkpoint: Any, tmp_path: Path) -> None:
    assert invoke("rescale", checkpoint, "--max-parallelism", "4")[0] == 1
    assert invoke("rescale", checkpoint)[0] == 2
    code, output = invoke("inspect", str(tmp_path))
    assert code == 1
    assert "is not the checkpoint of a streaming query" in output
    assert "Traceback" not in output


@pytest.mark.thorough
def test_file_system_error_during_a_rescale(checkpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: Any) -> None:
        raise OSError(18, "Invalid cross-device link")

    with monkeypatch.context() as patch:
        patch.setattr(HadoopPath, "move_to", refuses)
        code, output = invoke("rescale", checkpoint, "--max-parallelism", "8")
    assert code == 1
    assert "is in the middle of a rescale from 4 to 8 key groups" in output
    assert "Invalid cross-device link" in output
    assert "undo it with --abort" in output
    assert "Traceback" not in output
    assert invoke("rescale", checkpoint, "--abort") == (0, "undone; the query starts as before\n")
