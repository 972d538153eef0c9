"""Random pipelines with a fresh seed, and those that failed once: rows and errors are plain Spark's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.native.bounds import all_that_can_be

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


FOLDER = Path(__file__).parent / "generated"
ROOT = FOLDER.parent.parent
SECONDS = float(os.environ.get("GENERATED_SECONDS", "20"))
FAMILIES = {"pipelines": (0.6, ["--verify"]), "native": (0.4, ["--native"])}
"""What is generated: its share of the time, and its arguments."""


@pytest.fixture(scope="module")
def runner(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tests.generated.runner import Runner

    with pytest.MonkeyPatch.context() as patch:
        all_that_can_be(patch)
        yield Runner(spark, tmp_path_factory.mktemp("generated"))


@pytest.mark.parametrize("file", sorted((FOLDER / "found").glob("*.json")), ids=lambda file: file.stem)
def test_what_failed_once(runner: Any, file: Any) -> None:
    from tests.generated.compare import figures

    report = runner.run(json.loads(file.read_text())["spec"])
    assert not report.dropped, report.dropped
    assert not report.differences, "\n".join(figures(d.expected, d.found) for d in report.differences)


def test_one_seed_is_one_pipeline() -> None:
    from tests.generated.pipelines import random_native_spec, random_spec

    for make in (random_spec, random_native_spec):
        assert [make(seed) for seed in range(50)] == [make(seed) for seed in range(50)]


@pytest.mark.long("a search takes its time")
@pytest.mark.parametrize("family", FAMILIES)
def test_fresh_pipelines(capsys: pytest.CaptureFixture[str], family: str) -> None:
    """The seed is printed; `python -m tests.generated --seed N --count 1` runs one of them again."""
    share, arguments = FAMILIES[family]
    seconds = share * SECONDS
    command = [sys.executable, "-m", "tests.generated", "--seconds", str(seconds), "--shrink", "30", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds + 600, check=False)
    with capsys.disabled():
        print(f"\nfresh {family}: {done.stdout.splitlines()[0]}, {done.stdout.splitlines()[-1]}")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
