"""The command `penstock verify`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from penstock.cli.main import main
from penstock.cli.verify import _rows
from penstock.extension import enabled
from penstock.shadow.comparison import REPORTS, Comparison, ShadowReport, Verdict
from penstock.shadow.sinks import ShadowedSinkJob
from tests.cli.test_main import penstock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


JOB = """
import sys
from penstock import Environment
from penstock.connectors import FileSink

env = Environment(progress=False)
df = env.spark.range(1000).selectExpr("id % 7 as k", "id").groupBy("k").sum("id")
{broken}
env.write(df, FileSink(sys.argv[1], mode="overwrite"))
env.execute("sums")
print("rows:", len(env.collect(df)), file=sys.stderr)
sys.exit(0)
"""
BROKEN = """
from penstock.shadow.sinks import ShadowedSinkJob
write = ShadowedSinkJob.write
ShadowedSinkJob.write = lambda self, df: write(self, df.where("k <> 3"))
"""


def run(tmp_path: Path, job: Any, *options: Any) -> Any:
    file = tmp_path / "job.py"
    file.write_text(job)
    return penstock("verify", *options, str(file), str(tmp_path / "out"))


def test_help() -> None:
    result = CliRunner().invoke(main, ["verify", "--help"])
    assert result.exit_code == 0
    for word in ("--output-format", "--master", "Examples:", "Exit code", "doubles", "without writing its rows"):
        assert word in " ".join(result.output.split())


@pytest.fixture
def here(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function that verifies a job in this process, on the shared session, as starting a JVM is slow."""
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(ShadowedSinkJob, "write", ShadowedSinkJob.write)
    monkeypatch.setenv("PENSTOCK_EXECUTION_SHADOW", "NO")  # restored after the command, which sets it for its process
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    REPORTS.clear()

    def run(job: Any) -> Any:
        file = tmp_path / "job.py"
        file.write_text(job)
        return CliRunner().invoke(main, ["verify", str(file), str(tmp_path / "out")])

    with enabled(spark):  # disables Penstock again afterwards
        yield run
    REPORTS.clear()


def test_equal(here: Any) -> None:
    done = here(JOB.format(broken=""))
    assert done.exit_code == 0, done.stderr
    assert "2 equal" in done.stdout
    assert "bit by bit" in done.stdout
    assert "rows: 7" in done.stderr


@pytest.mark.thorough
def test_a_difference_as_json(tmp_path: Path) -> None:
    done = run(tmp_path, JOB.format(broken=BROKEN), "--output-format", "json")
    assert done.returncode == 1, done.stderr
    jobs = json.loads(done.stdout)["verify"]["jobs"]
    assert [job["job"].partition(" at ")[0] for job in jobs] == ["sums", "collect"]
    for job in jobs:
        (output,) = job["outputs"]
        assert output["verdict"] == "different"
        assert output["rows"] == {"penstock": 6, "spark": 7}
        assert [row[0] for row in output["more-on-spark"]] == ["3"]


@pytest.mark.thorough
def test_a_difference_as_text(here: Any) -> None:
    done = here(JOB.format(broken=BROKEN))
    assert done.exit_code == 1
    assert "2 different" in done.stdout
    assert "more often on Spark: k=3" in done.stdout


@pytest.mark.parametrize("code", [2, 7])
def test_exit_code_of_the_program_is_reported(here: Any, code: int) -> None:
    done = here(f"import sys; sys.exit({code})")
    assert done.exit_code == 1
    assert f"the program ended with exit code {code}" in done.stdout


def test_nothing_to_compare(here: Any) -> None:
    done = here("print('hello')")
    assert done.exit_code == 2
    assert "nothing was compared" in done.stdout


def test_time_of_a_job_is_shown_at_its_first_output() -> None:
    """The job's time covers all outputs; plain Spark's time is per output."""
    orders = Comparison("orders", Verdict.EQUAL, "bit by bit", 2000, 2000, seconds=3.0, plain_seconds=1.0)
    users = Comparison("users", Verdict.EQUAL, "bit by bit", 5, 5, seconds=3.0, plain_seconds=None)
    assert list(_rows(ShadowReport("nightly", [orders, users]))) == [
        ["nightly", "orders", "Penstock", "equal", "2,000", "2,000", "3.0", "1.0", "bit by bit"],
        ["nightly", "users", "Penstock", "equal", "5", "5", "", "-", "bit by bit"],
    ]
