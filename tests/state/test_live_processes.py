"""A command rescales a query of another process, which is killed in some tests."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock.state as st
from tests.state.queries import add_file, run
from tests.support.paths import TESTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

JOB = TESTS / "jobs" / "state_live.py"


class Program:
    """A program that runs a query; its sink records every row of every batch, repeated batches included."""

    def __init__(self, folder: Path, query: Any, *, slowly: float = 0.0, deadly: int = 0) -> None:
        self.folder = folder
        self.checkpoint = folder / "checkpoint"
        (folder / "in").mkdir(exist_ok=True)
        self.waiting = [file for file in sorted(query.input.glob("*.parquet")) if not self._input(file).exists()]
        arguments = (folder / "in", self.checkpoint, folder, query.query.name, slowly, deadly)
        (folder / "started").unlink(missing_ok=True)
        self.process = subprocess.Popen([sys.executable, str(JOB), *map(str, arguments)], cwd=folder)
        self.wait_for(lambda: (folder / "started").exists())

    def _input(self, file: Path) -> Path:
        return self.folder / "in" / file.name

    def wait_for(self, condition: Any) -> None:
        deadline = time.monotonic() + 90
        while not condition():
            assert time.monotonic() < deadline
            assert self.process.poll() is None, "the program has died"
            time.sleep(0.05)

    def add(self, files: int) -> None:
        for _ in range(files):
            file = self.waiting.pop(0)
            add_file(file, self._input(file))

    @property
    def rows(self) -> list[str]:
        """The rows that the sink has recorded so far, in the order of batches."""
        file = self.folder / "batches.txt"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line.partition("\t")[2] for line in lines]

    def wait_for_rows(self, least: int) -> None:
        self.wait_for(lambda: len(self.rows) >= least)

    def end(self) -> None:
        (self.folder / "end").touch()
        assert self.process.wait(90) == 0

    def command(self, number: int) -> subprocess.Popen:
        """Run the command that rescales a running query."""
        command = [sys.executable, "-m", "penstock", "state", "rescale", str(self.checkpoint), "--live"]
        command += ["--max-parallelism", str(number), "--output-format", "json", "--master", "local[1]"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder)


@pytest.fixture
def programs() -> Iterator[list[Program]]:
    started: list[Program] = []
    yield started
    for program in started:
        program.process.kill()
        program.process.wait()


def expected_rows(spark: SparkSession, query: Any, folder: Path) -> list[str]:
    """Return the output of the query without a rescale."""
    return [str(row) for batch in run(spark, query.query, query.input, folder / "twin") for row in batch]


@pytest.mark.parametrize("name", ["counts updated", "counts in memory", "left join", "state of every kind with timers"])
def test_a_command_rescales_a_query_of_another_process(
    spark: SparkSession, stopped: Any, tmp_path: Path, programs: list[Program], name: str
) -> None:
    query = stopped(name)
    program = Program(tmp_path, query, slowly=1.0)
    programs.append(program)
    program.add(2)
    program.wait_for(lambda: (program.checkpoint / "commits" / "0").exists())
    command = program.command(8)
    program.add(1)
    output, errors = command.communicate(timeout=120)
    assert command.returncode == 0, errors
    report = json.loads(output)["rescale"]
    assert (report["rescale"]["old"], report["rescale"]["new"]) == (4, 8)
    assert 0 < report["seconds_stopped"] < 60
    program.add(2)
    program.end()
    assert st.inspect(str(program.checkpoint), spark=spark).max_parallelism == 8
    assert sorted(program.rows) == sorted(expected_rows(spark, query, tmp_path))


@pytest.mark.parametrize("change", [3, 12, 20, 26, 33, 40])
def test_the_process_is_killed_during_a_rescale(
    spark: SparkSession, stopped: Any, tmp_path: Path, programs: list[Program], change: int
) -> None:
    query = stopped("counts updated")
    program = Program(tmp_path, query, deadly=change)
    programs.append(program)
    program.add(2)
    program.wait_for_rows(400)
    _, errors = (command := program.command(8)).communicate(timeout=120)
    assert program.process.wait(60) == -9, "a change beyond the last change has no effect"
    assert command.returncode == 1
    assert "has not reported how the rescale" in errors
    assert "start_query" in errors
    restarted = Program(tmp_path, query)
    programs.append(restarted)
    restarted.add(3)
    restarted.end()
    assert restarted.rows == expected_rows(spark, query, tmp_path)
    assert st.inspect(str(restarted.checkpoint), spark=spark).max_parallelism in {4, 8}
