"""Commits on a full disk: the target stays readable, and failed commits are undone."""

from __future__ import annotations

import os
import re
import shutil
import traceback
from collections.abc import Iterator
from itertools import combinations_with_replacement
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.commit import Access, recover
from penstock.commit.journal import journals_at
from penstock.connectors import FileSink
from penstock.errors import PenstockError
from tests.commit.checks import journals, run
from tests.commit.harness import in_child
from tests.commit.local import LocalFolder, LocalSqlite, without_a_jvm
from tests.commit.targets import FILES, Delta, Files, Iceberg, Jdbc, Template
from tests.support.disks import small_file_system

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment


pytestmark = pytest.mark.forks

BLOCK = 4096
PAIRS = [
    pytest.param(
        pair, id=" + ".join(pair), marks=pytest.mark.slow if "files" not in pair and pair != ("local", "local") else ()
    )
    for pair in combinations_with_replacement(["files", "delta", "local", "iceberg"], 2)
]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Any]:
    """A separate file system of 4 MiB."""
    with small_file_system(tmp_path / "small", 4) as folder:
        yield folder


def fill(folder: Path, free_blocks: int) -> Any:
    """Fill a file system except for a number of blocks."""
    filler = folder / "filler"
    free = os.statvfs(folder)
    with filler.open("wb") as file:
        file.write(b"x" * max(0, free.f_bavail * free.f_bsize - free_blocks * BLOCK))
    return filler


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", ["append", "append by partition", "overwrite", "dynamic", "create"])
def test_a_commit_on_a_full_disk(
    monkeypatch: pytest.MonkeyPatch, small: Any, tmp_path_factory: pytest.TempPathFactory, case: str
) -> None:
    spark = without_a_jvm(monkeypatch, small)
    template = Template(None, tmp_path_factory.mktemp("template"))
    mode, layout, exists = FILES[case]
    outcomes = []
    for free_blocks in range(12):
        folder = small / str(free_blocks)
        targets = [Files(template, folder / name, mode, layout, exists=exists, token="t") for name in "ab"]

        def write(target: Any, job: Any) -> None:
            Files.write(target, job)
            if target is targets[1]:  # noqa: B023
                fill(small, free_blocks)  # noqa: B023

        for target in targets:
            target.write = lambda job, target=target, write=write: write(target, job)  # type: ignore[misc]
        end = in_child(spark, lambda: run(spark, targets))  # noqa: B023
        (small / "filler").unlink()
        rows = [target.rows() for target in targets]
        expected = "new" if end.error is None else "old"
        assert rows == [getattr(target, expected) for target in targets], (free_blocks, end.error)
        assert end.error is None or "No space left" in end.error
        assert not [path for target in targets for path in journals(target) if path.suffix in {".json", ".ref"}]
        outcomes.append(expected)
        for target in targets:
            del target.write
        run(spark, targets)
        assert [target.rows() for target in targets] == [target.new for target in targets]
        shutil.rmtree(folder)
    assert {"old", "new"} == set(outcomes)  # with and without enough space


@pytest.mark.thorough
@pytest.mark.parametrize("pair", PAIRS)
def test_a_pair_of_sinks_on_a_full_disk(
    monkeypatch: pytest.MonkeyPatch, small: Any, tmp_path_factory: pytest.TempPathFactory, pair: Any
) -> None:
    """After an irreversible commit the other sink follows once there is space; otherwise all is undone."""
    spark = without_a_jvm(monkeypatch, small)
    template = Template(None, tmp_path_factory.mktemp("template"))
    kinds = {"delta": Delta, "iceberg": Iceberg}
    completed = set()
    for free_blocks in (0, 1, 3, 5, 8, 24):
        folder = small / str(free_blocks)
        folder.mkdir()
        targets = []
        for name, kind in zip("ab", pair, strict=True):
            if kind == "files":
                targets.append(Files(template, folder / name, "overwrite", "plain", exists=True, token="t"))
            elif kind == "local":
                targets.append(Jdbc(None, LocalSqlite(folder / f"{name}.db"), "append", exists=True, token="t"))
            else:
                targets.append(kinds[kind](template, folder / name, "append", exists=True, token="t"))

        def full(folder: Any = folder, targets: Any = targets, free_blocks: Any = free_blocks) -> Any:
            write = targets[1].write

            def filled(job: Any) -> None:
                write(job)
                fill(small, free_blocks)

            targets[1].write = filled
            error = None
            try:
                run(spark, targets)
            except Exception as problem:
                error = problem
            (small / "filler").unlink()
            del targets[1].write
            assert all(target.is_readable(target.rows()) for target in targets), error
            for target in targets:
                for path in journals_at(Access(None), LocalFolder(None, str(target.journal_folder))):
                    secrets = {
                        address: values for target in targets for address, values in target.sink().secrets.items()
                    }
                    recover(Access(None, secrets), path)
            rows = [target.rows() for target in targets]
            states = [rows == [getattr(target, which) for target in targets] for which in ("old", "new")]
            assert any(states), (rows, error)
            assert error is None or re.search("No space left|disk is full|disk I/O error", str(error)), error
            run(spark, targets)
            assert [target.rows() for target in targets] == [target.new for target in targets]
            return states[1]

        end = in_child(spark, full)
        assert end.error is None, end.error
        completed.add(end.result)
        shutil.rmtree(folder)
    assert completed == {False, True}  # with and without enough space


@pytest.mark.thorough
def test_a_job_on_a_full_disk(env: Environment, spark: SparkSession, small: Any) -> None:
    path = str(small / "out")
    spark.range(100).write.parquet(path)
    filler = fill(small, 20)
    env.write(spark.range(200_000).selectExpr("id", "rand(1) as r"), FileSink(path, mode="overwrite"))
    with pytest.raises(PenstockError) as failed:
        env.execute()
    assert "No space left" in "".join(traceback.format_exception(failed.value))
    assert re.search(r"(the disk of .* is|disk that rows are written to is) full|free some space", str(failed.value))
    assert spark.read.parquet(path).count() == 100
    filler.unlink()
    env.write(spark.range(200), FileSink(path, mode="overwrite"))
    env.execute()
    assert spark.read.parquet(path).count() == 200
    assert sorted(os.listdir(small)) == ["out"]
