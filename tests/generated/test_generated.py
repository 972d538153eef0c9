"""Random pipelines with new seeds, and former failures, have the same outcome as in plain Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.native import compute_all_natively
from tests.support.paths import ROOT, TESTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


FOLDER = TESTS / "generated"
SECONDS = float(os.environ.get("GENERATED_SECONDS", "20"))
FAMILIES = {"pipelines": (0.6, ["--verify"]), "native": (0.4, ["--native"])}
"""Generators: their shares of the time, and arguments."""


@pytest.fixture(scope="module")
def runner(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tests.generated.runner import Runner

    with pytest.MonkeyPatch.context() as patch:
        compute_all_natively(patch)
        yield Runner(spark, tmp_path_factory.mktemp("generated"))


@pytest.mark.parametrize("file", sorted((FOLDER / "recorded").glob("*.json")), ids=lambda file: file.stem)
def test_former_failures_have_the_outcome_of_spark(runner: Any, file: Any) -> None:
    from tests.generated.compare import figures

    report = runner.run(json.loads(file.read_text())["spec"])
    assert not report.dropped, report.dropped
    assert not report.differences, "\n".join(figures(d.expected, d.actual) for d in report.differences)


def test_a_seed_determines_the_pipeline() -> None:
    from tests.generated.pipelines import random_native_spec, random_spec

    for generate in (random_spec, random_native_spec):
        assert [generate(seed) for seed in range(50)] == [generate(seed) for seed in range(50)]


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["pipelines", pytest.param("native", marks=pytest.mark.duckdb)])
def test_new_pipelines_have_the_outcome_of_spark(capsys: pytest.CaptureFixture[str], family: str) -> None:
    """The seed is printed; `python -m tests.generated --seed N --count 1` reruns a pipeline."""
    share, arguments = FAMILIES[family]
    seconds = share * SECONDS
    command = [sys.executable, "-m", "tests.generated", "--seconds", str(seconds), "--shrink", "30", *arguments]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds + 600, check=False)
    with capsys.disabled():
        print(f"\nfresh {family}: {process.stdout.splitlines()[0]}, {process.stdout.splitlines()[-1]}")
    assert process.returncode == 0, process.stdout[-6000:] + process.stderr[-2000:]
