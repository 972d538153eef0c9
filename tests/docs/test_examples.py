"""The examples run: each program prints what its page shows, and the tests of each folder pass in a copy of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from penstock import Environment
from tests.conftest import OFF
from tests.support.outputs import shapes
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


EXAMPLES = ROOT / "examples"
PAGE = EXAMPLES / "README.md"


def call(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, timeout=240, check=False)


def figures(line: str) -> list[float]:
    """Return the numbers of a line after its first colon, or of the line if it has none."""
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", line.partition(":")[2] or line)]


def check_dynamic_source_parallelism(lines: list[str]) -> None:
    files, *columns = ([figures(stages) for stages in re.findall(r"\[.*?\]", line)] for line in lines)
    plain, job = files
    assert max(plain) == 30
    assert max(job) == 3
    assert len({max(plain) for plain, _ in columns}) == 1, "plain Spark has the same tasks for any columns"
    tasks = [max(job) for _, job in columns]
    assert tasks[0] < tasks[1] <= tasks[2], "they follow the columns"


def check_load_based_rebalance(lines: list[str]) -> None:
    (plain, *plain_rows), *adaptive = (figures(line) for line in lines)
    assert plain_rows == [10_000] * 4
    for seconds, slow, *others in adaptive:
        assert slow < min(others) / 2
        assert seconds < plain


def check_adaptive_plan(lines: list[str]) -> None:
    shuffled, *tasks = zip(*(figures(line)[:4] for line in lines if "MiB shuffled" in line), strict=True)
    assert shuffled[1] < shuffled[0] / 10, "broadcast"
    assert shuffled[3] < shuffled[2] / 5, "dynamic filter"
    assert tasks[-1][-2] > 10 * tasks[-1][-1], "the strategy limits the tasks"


def check_sink_and_scan_parallelism(lines: list[str]) -> None:
    """The tasks of the stages, and the files."""
    tasks = {re.split(r"  |tasks of", line)[0].strip(): figures(line.split("stages")[1]) for line in lines}
    assert {numbers[-1] for numbers in tasks.values()} == {150_000}
    assert tasks["at most 2 are inferred"][:2] == [2, 2]
    assert tasks["6 tasks read"][:2] == [6, 6]
    assert tasks["3 tasks write"][-2] == 3
    assert (tasks["6 tasks read, 3 write"][0], tasks["6 tasks read, 3 write"][-2]) == (6, 3)


def check_rescale_state(lines: list[str]) -> None:
    first, plain, _, rescaled = (figures(line) for line in lines)
    assert [first[0], plain[0], rescaled[0]] == [4, 4, 8]
    assert [first[-1], plain[-1], rescaled[-1]] == [1000, 2000, 3000], "no order is lost"


def check_score_rows(lines: list[str]) -> None:
    without, with_it = (figures(line) for line in lines)
    assert without[0] > 6 == with_it[0]
    assert without[1] == with_it[1] == 600


PROGRAMS: dict[str, Callable[[list[str]], None]] = {
    "dynamic_source_parallelism.py": check_dynamic_source_parallelism,
    "load_based_rebalance.py": check_load_based_rebalance,
    "adaptive_plan.py": check_adaptive_plan,
    "sink_and_scan_parallelism.py": check_sink_and_scan_parallelism,
    "rescale_state.py": check_rescale_state,
    "strategy/score_rows.py": check_score_rows,
}


def sample(program: str) -> list[str]:
    """Return the output of a program in the page of the examples."""
    section = PAGE.read_text().split(f"## {program}\n")[1]
    return section.split("```text\n")[1].split("```")[0].splitlines()


def test_every_program_has_a_section_and_a_test() -> None:
    programs = {
        path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.py") if "\nif __name__" in path.read_text()
    }
    assert programs == set(PROGRAMS) == set(re.findall("^## (.*py)$", PAGE.read_text(), re.MULTILINE))


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_sample_output_of_a_program_shows_its_facts(program: str) -> None:
    PROGRAMS[program](sample(program))


@pytest.mark.thorough
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_prints_what_its_page_shows(program: str, tmp_path: Path) -> None:
    done = call(tmp_path, str(EXAMPLES / program))
    assert done.returncode == 0, done.stderr[-3000:]
    PROGRAMS[program](done.stdout.splitlines())
    assert shapes(done.stdout) == shapes("\n".join(sample(program)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["strategy", "connector"])
def test_an_example_passes_its_own_tests(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    done = call(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error::pytest.PytestWarning")
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert "passed" in done.stdout
    assert "skipped" not in done.stdout


def test_the_strategy_bounds_a_real_job(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own tests only check the limit of a node; this test checks the tasks that Spark ran."""
    monkeypatch.syspath_prepend(str(EXAMPLES / "strategy"))
    from rows_per_task import RowsPerTask

    options = OFF | {"execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task": "1 kb"}
    df = spark.range(0, 3_000, 1, 2).selectExpr("id % 300 as k", "uuid() as v").groupBy("k").agg(F.max("v"))
    tasks = {}
    for name, strategies in {"with": [RowsPerTask(100)], "without": []}.items():
        env = Environment(spark, config=options, progress=False, strategies=strategies)
        assert len(env.collect(df)) == 300
        tasks[name] = env.last_job.vertices[-1].tasks
    assert tasks["without"] > 6 >= tasks["with"] > 1, tasks
